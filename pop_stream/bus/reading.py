"""Topics read by who has no event loop, as fast as it is used."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Final

from aiokafka import ConsumerRecord

_MOST_RECORDS: Final = 500


def streamed(records: AsyncIterator[ConsumerRecord]) -> Iterator[ConsumerRecord]:
    """The same records, for who does not wait for each; not where an event loop runs."""
    with asyncio.Runner() as runner:
        lots = iter(lambda: runner.run(_lot(records)), [])
        yield from chain.from_iterable(lots)


async def _lot(records: AsyncIterator[ConsumerRecord]) -> list[ConsumerRecord]:
    """The next of them, in memory at once; none at their end."""
    lot: list[ConsumerRecord] = []
    async for record in records:
        lot.append(record)
        if len(lot) == _MOST_RECORDS:
            break
    return lot
