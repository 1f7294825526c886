"""Signs of life that nobody could look up, on their way to the schedulers."""

import asyncio
from collections import Counter

from fakes import FixedDefinitions, MemoryPublisher

from pop_stream.kafka import deliveries as hearsay_module
from pop_stream.kafka.deliveries import KafkaHearsay
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_ready
from pop_stream.model.events.scheduling import Claim
from pop_stream.model.ids import InsightId
from pop_stream.model.partitioning import partition_of

WITHIN_S = 10


def opened(publisher):
    insights = {InsightId(one): Insight(id=one) for one in ("media", "files")}
    known = FixedDefinitions(Definitions(insights=insights))
    return KafkaHearsay(Topics("t."), publisher, known)


async def until_published(publisher, count):
    async with asyncio.timeout(WITHIN_S):
        while len(publisher.records) < count:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.01)


def notes(publisher):
    return [one for record in publisher.records for one in decode_ready(record.value)]


async def test_what_is_said_again_goes_once_to_each_scheduler_that_may_know():
    publisher = MemoryPublisher()
    async with opened(publisher) as hearsay:
        for agenda_id in ("a", "b", "a"):
            hearsay.pass_on(agenda_id, 2, ["media", "files"])
        await until_published(publisher, 2)
    told = {one.insight_id: one.unverified for one in notes(publisher)}
    assert told == dict.fromkeys(("media", "files"), (Claim("a", 2), Claim("b", 2)))
    for record in publisher.records:
        assert record.topic == "t.ready"
        assert record.partition == partition_of(record.key, 4)


async def test_many_go_in_records_of_a_bounded_size(monkeypatch):
    monkeypatch.setattr(hearsay_module, "_AT_ONCE", 2)
    monkeypatch.setattr(hearsay_module, "_MOST", 5)
    publisher = MemoryPublisher()
    async with opened(publisher) as hearsay:
        for number in range(9):
            hearsay.pass_on(f"a{number}", 1, ["media"])
        await until_published(publisher, 3)
    assert Counter(len(one.unverified) for one in notes(publisher)) == {2: 2, 1: 1}


async def test_a_broker_that_is_away_ends_nothing():
    publisher = MemoryPublisher(failures=[UnavailableError("away")])
    async with opened(publisher) as hearsay:
        hearsay.pass_on("a", 1, ["media"])
        async with asyncio.timeout(WITHIN_S):
            while publisher.failures:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0.01)
        hearsay.pass_on("b", 1, ["media"])
        await until_published(publisher, 1)
    assert [one.unverified for one in notes(publisher)] == [(Claim("b", 1),)]
