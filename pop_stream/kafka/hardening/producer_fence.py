"""A producer sends nothing that its process may no longer write.

What was handed to the client may wait in it: for a connection, for another request's answer,
for an error to pass, or because the process is frozen. Transactions would fence such a
producer, but one writes to partitions that change owners one by one.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from pop_stream.kafka.hardening import internals

MayWrite = Callable[[str, float], bool | None]
"""Whether what was handed over at an instant (of `time.monotonic`) may be written to a topic;
None while that is not known, and then it is asked again."""

_RETRY_S: Final = 0.02


class ProducerFencedError(KafkaError):  # type: ignore[misc]  # aiokafka is untyped here
    """The process lost the right to write this; the producer must be made anew."""


def fence_producer(producer: AIOKafkaProducer, may: MayWrite) -> None:
    """Have a producer ask right before each request, repetitions too, what it may send.

    What may not be written fails with `ProducerFencedError`. Nothing that follows it on its
    partition is accepted any more: the broker misses its sequence number.

    Args:
        producer: Not yet started.
        may: Called in the producer's event loop, once for each batch, and again while unknown.
    """
    sender = internals.SenderInternals(producer)

    def fenced(send: internals.Send) -> internals.Send:
        async def ask_and_send(node_id: int, batches: internals.Batches) -> None:
            allowed = {tp: one for tp, one in batches.items() if await _may_send(may, tp, one)}
            for tp in batches.keys() - allowed.keys():
                batches[tp].failure(exception=ProducerFencedError())
                sender.end_batch(tp)
            if allowed:
                await send(node_id, allowed)
            else:
                sender.end_request(node_id)

        return ask_and_send

    sender.wrap_send(fenced)


async def _may_send(may: MayWrite, tp: Any, batch: Any) -> bool:  # noqa: ANN401  # aiokafka is untyped
    since = internals.batch_created_at(batch)
    while (answer := may(tp.topic, since)) is None:  # noqa: ASYNC110  # another thread decides
        await asyncio.sleep(_RETRY_S)
    return answer
