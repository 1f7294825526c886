"""What a process of the API tells of its callers."""

import asyncio
from datetime import timedelta

from pop_stream.bus.handouts import KafkaHandouts
from pop_stream.core.events import PullWanted, decode_pull
from pop_stream.settings import Settings


class Publisher:
    def __init__(self):
        self.published = asyncio.Queue()

    async def publish(self, records):
        for record in records:
            self.published.put_nowait(decode_pull(record.value))


async def test_nothing_is_asked_for_before_it_could_be_heard_what_is_handed_out():
    """It would never come, and its agenda not before the end of the lease."""
    publisher = Publisher()
    handouts = KafkaHandouts(Settings(), publisher)
    telling = asyncio.create_task(handouts._tell())
    waits = timedelta(seconds=30)
    taking = asyncio.create_task(handouts.take("media", 1, waits, is_there=lambda: True))
    try:
        for _ in range(20):
            await asyncio.sleep(0)
        assert publisher.published.empty()
        handouts._tails[0].began.set()
        async with asyncio.timeout(5):
            told = await publisher.published.get()
        assert isinstance(told, PullWanted)
        assert (told.insight_id, told.wanted) == ("media", 1)
    finally:
        for task in (telling, taking):
            task.cancel()
        await asyncio.gather(telling, taking, return_exceptions=True)
