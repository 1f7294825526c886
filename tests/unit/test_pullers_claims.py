"""What is claimed, what is left out, and in which order it becomes known."""

import base64
from dataclasses import dataclass

import pytest
from aiokafka import TopicPartition
from fakes import ManualClock, MemoryPublisher
from pullers_fakes import AT, emitted

from pop_stream.bus.topics import Topics
from pop_stream.core.events import AgendaClaimed, decode_lifecycle, encode
from pop_stream.pullers.claims import Claimer
from pop_stream.pullers.window import AttemptWindow

TOPICS = Topics("t.")


@dataclass
class Taken:
    value: bytes | None
    offset: int
    partition: int = 0
    topic: str = "t.insight.media"
    key: bytes | None = b"a1"


class Commits(list):
    """Notes what was committed, and what was published by then."""

    def __init__(self, publisher, *, succeeds=True):
        self.publisher = publisher
        self.succeeds = succeeds
        self.published_before = 0

    async def __call__(self, offsets):
        self.append(offsets)
        self.published_before = len(self.publisher.records)
        return self.succeeds


@pytest.fixture
def publisher():
    return MemoryPublisher(partition_count=1)


@pytest.fixture
def claimer(publisher):
    return Claimer(publisher, TOPICS, ManualClock(AT), puller_id="p1", window=AttemptWindow())


def taken(*agendas, partition=0):
    return [Taken(encode(one), offset, partition) for offset, one in enumerate(agendas)]


async def test_claims_are_published_in_one_batch_before_offsets_are_committed(
    claimer, publisher
):
    agendas = [emitted(agenda_id=f"a{i}", lease_ms=1000 + i) for i in range(3)]
    commit = Commits(publisher)
    fresh = await claimer.claim([*taken(*agendas), Taken(encode(agendas[0]), 7, 1)], commit)
    assert [one.agenda_id for one in fresh] == ["a0", "a1", "a2"]
    (record,) = publisher.on(TOPICS.agenda_events)
    claims = decode_lifecycle(record.value)
    assert all(isinstance(claim, AgendaClaimed) for claim in claims)
    assert [(c.agenda_id, c.attempt, c.lease_ms, c.puller_id) for c in claims] == [
        (f"a{i}", 1, 1000 + i, "p1") for i in range(3)
    ]
    media = "t.insight.media"
    assert commit == [{TopicPartition(media, 0): 3, TopicPartition(media, 1): 8}]
    assert commit.published_before == 1


async def test_repeats_and_outdated_attempts_are_committed_and_not_claimed(claimer, publisher):
    first = await claimer.claim(taken(emitted(attempt=2)), Commits(publisher))
    commit = Commits(publisher)
    again = await claimer.claim(taken(emitted(attempt=1), emitted(attempt=2)), commit)
    assert (len(first), again) == (1, [])
    assert len(publisher.records) == 1
    assert commit == [{TopicPartition("t.insight.media", 0): 2}]


@pytest.mark.parametrize(
    "value", [None, b"", b"not json", b"[]", b'{"agenda_id": "a1"}', b"\xff"]
)
async def test_unreadable_record_goes_to_the_dead_letters_and_the_rest_goes_on(
    claimer, publisher, value
):
    commit = Commits(publisher)
    records = [Taken(value, 0), Taken(encode(emitted()), 1)]
    assert len(await claimer.claim(records, commit)) == 1
    (letter,) = publisher.on(TOPICS.dead_letters)
    assert letter.key == b"a1"
    assert base64.b64encode(value or b"") in (letter.value or b"")
    assert b'"code":"unreadable_record"' in (letter.value or b"")
    assert commit.published_before == 2
    assert commit == [{TopicPartition("t.insight.media", 0): 2}]


async def test_batch_that_was_not_committed_is_not_started_and_may_come_again(
    claimer, publisher
):
    records = taken(emitted())
    assert await claimer.claim(records, Commits(publisher, succeeds=False)) == []
    assert len(await claimer.claim(records, Commits(publisher))) == 1
