"""Topics read by who has no event loop, as fast as it is used."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Final

from aiokafka import ConsumerRecord

_MAX_RECORDS: Final = 500


def iterate_sync(records: AsyncIterator[ConsumerRecord]) -> Iterator[ConsumerRecord]:
    """The same records, for who does not wait for each; not where an event loop runs."""
    with asyncio.Runner() as runner:
        batches = iter(lambda: runner.run(_next_batch(records)), [])
        yield from chain.from_iterable(batches)


async def _next_batch(records: AsyncIterator[ConsumerRecord]) -> list[ConsumerRecord]:
    """The next of them, in memory at once; none at their end."""
    batch: list[ConsumerRecord] = []
    async for record in records:
        batch.append(record)
        if len(batch) == _MAX_RECORDS:
            break
    return batch
