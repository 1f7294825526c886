"""What a process of the API tells of its callers."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest

from pop_stream.bus.handouts import KafkaHandouts
from pop_stream.core.errors import UnservedError
from pop_stream.core.events import PullRefused, PullWanted, decode_pull, encode
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


async def test_a_refusal_of_before_this_process_began_is_no_answer_to_its_callers():
    handouts = KafkaHandouts(Settings(), Publisher())

    def hear_refusal():
        told = PullRefused(insight_id="media", reason="nobody can")
        handouts._hear(SimpleNamespace(value=encode(told), headers=(), offset=0))

    hear_refusal()
    handouts._expect_served("media")
    handouts._tails[0].began.set()
    hear_refusal()
    with pytest.raises(UnservedError, match="nobody can"):
        handouts._expect_served("media")
