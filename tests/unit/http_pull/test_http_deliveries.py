"""What a process of the API tells of its callers."""

import asyncio
from datetime import timedelta

import msgspec
from deadlines import within
from puller_fakes import emitted

from pop_stream.kafka.deliveries import MAX_RETURNED_BYTES, KafkaHttpDeliveries
from pop_stream.model.events.codec import decode_poll_demand
from pop_stream.model.events.pull import PollWanted
from pop_stream.settings import Settings


class Publisher:
    def __init__(self):
        self.published = asyncio.Queue()

    async def publish(self, records):
        for record in records:
            self.published.put_nowait(decode_poll_demand(record.value))


async def test_no_demand_is_published_before_deliveries_can_be_read():
    """It would never come, and its agenda not before the end of the lease."""
    publisher = Publisher()
    deliveries = KafkaHttpDeliveries(Settings(), publisher)
    publishing = asyncio.create_task(deliveries._publish_demand())
    waits = timedelta(seconds=30)
    taking = asyncio.create_task(deliveries.poll("media", 1, waits, is_connected=lambda: True))
    try:
        for _ in range(20):
            await asyncio.sleep(0)
        assert publisher.published.empty()
        deliveries._followers[0].following.set()
        async with within(5):
            reported = await publisher.published.get()
        assert isinstance(reported, PollWanted)
        assert (reported.insight_id, reported.wanted) == ("media", 1)
    finally:
        for task in (publishing, taking):
            task.cancel()
        await asyncio.gather(publishing, taking, return_exceptions=True)


async def test_what_callers_left_behind_is_bounded_by_its_bytes():
    """While Kafka takes nothing; what is beyond comes back by its lease."""
    publisher = Publisher()
    deliveries = KafkaHttpDeliveries(Settings(), publisher)
    large = emitted(agenda=msgspec.Raw(b'"' + b"x" * 1_000_000 + b'"'))
    for _ in range(100):
        deliveries.return_delivery(large)
    kept = deliveries._returned.qsize()
    assert MAX_RETURNED_BYTES < kept * 1_000_000 < MAX_RETURNED_BYTES + 2_000_000
    giving = asyncio.create_task(deliveries._publish_returned())
    try:
        async with within(20):
            for _ in range(kept):
                await publisher.published.get()
            while deliveries._returned_bytes:  # noqa: ASYNC110  # the task goes on right after
                await asyncio.sleep(0)
        deliveries.return_delivery(large)
        async with within(20):
            await publisher.published.get()
    finally:
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)
