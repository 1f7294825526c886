"""The loop of a part that works on whole batches: read, handle, commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

_log = structlog.get_logger()

Handle = Callable[[Sequence[ConsumerRecord]], Awaitable[None]]


async def handle_batches(
    consumer: AIOKafkaConsumer, handle: Handle, *, max_records: int, stop: asyncio.Event
) -> None:
    """Hand whole batches to `handle` until `stop`, committing each after it returned.

    A lone record is handed over at once; under load a batch holds all that was fetched, up
    to `max_records`, ordered within each partition. When `handle` raises, nothing of its
    batch is committed and the error leaves this loop: the process should end, and the next
    owner of the partitions repeats the batch.
    """
    while not stop.is_set():
        fetched = await consumer.getmany(timeout_ms=250, max_records=max_records)
        if not fetched:
            continue
        await handle([record for records in fetched.values() for record in records])
        await commit(consumer, {tp: records[-1].offset + 1 for tp, records in fetched.items()})


async def commit(consumer: AIOKafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
    """Commit, except partitions that were moved to another member meanwhile.

    Their batch is repeated there, which every handler must bear.
    """
    try:
        await consumer.commit(offsets)
    except (CommitFailedError, IllegalStateError):
        _log.info("commit.overtaken", partitions=[str(tp) for tp in offsets])
    except KafkaError as error:
        # The next batch commits past this one; a crash before repeats it.
        _log.warning("commit.failed", error=repr(error))
