"""What is claimed, what is left out, and in which order it becomes known."""

import base64
from dataclasses import dataclass

import pytest
from aiokafka import TopicPartition
from fakes import ManualClock, MemoryPublisher
from puller_fakes import AT, emitted

from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle, encode
from pop_stream.model.events.lifecycle import AgendaClaimed
from pop_stream.puller.claiming.claims import AttemptWindow, Claimer

TOPICS = Topics("t.")


@dataclass
class Taken:
    value: bytes | None
    offset: int
    partition: int = 0
    topic: str = "t.insight.media"
    key: bytes | None = b"a1"
    headers: tuple[tuple[str, bytes], ...] = ()


@pytest.fixture
def publisher():
    return MemoryPublisher(partition_count=1)


@pytest.fixture
def claimer(publisher):
    return Claimer(publisher, TOPICS, ManualClock(AT), puller_id="p1", window=AttemptWindow())


def taken(*agendas, partition=0):
    return [Taken(encode(one), offset, partition) for offset, one in enumerate(agendas)]


async def test_claims_are_published_in_one_batch_with_what_is_to_be_committed(
    claimer, publisher
):
    agendas = [emitted(agenda_id=f"a{i}", lease_ms=1000 + i) for i in range(3)]
    claimed = await claimer.claim([*taken(*agendas), Taken(encode(agendas[0]), 7, 1)])
    assert [one.agenda_id for one in claimed.attempts] == ["a0", "a1", "a2"]
    (record,) = publisher.on(TOPICS.agenda_events)
    claims = decode_lifecycle(record.value)
    assert all(isinstance(claim, AgendaClaimed) for claim in claims)
    assert [(c.agenda_id, c.attempt, c.lease_ms, c.puller_id) for c in claims] == [
        (f"a{i}", 1, 1000 + i, "p1") for i in range(3)
    ]
    media = "t.insight.media"
    first, second = TopicPartition(media, 0), TopicPartition(media, 1)
    assert claimed.offsets == {first: 3, second: 8}


async def test_repeats_and_outdated_attempts_are_committed_and_not_claimed(claimer, publisher):
    first = await claimer.claim(taken(emitted(attempt=2)))
    again = await claimer.claim(taken(emitted(attempt=1), emitted(attempt=2)))
    assert (len(first.attempts), again.attempts) == (1, [])
    assert len(publisher.records) == 1
    assert again.offsets == {TopicPartition("t.insight.media", 0): 2}


@pytest.mark.parametrize(
    "value", [None, b"", b"not json", b"[]", b'{"agenda_id": "a1"}', b"\xff"]
)
async def test_unreadable_record_goes_to_the_dead_letters_and_the_rest_goes_on(
    claimer, publisher, value
):
    records = [Taken(value, 0), Taken(encode(emitted()), 1)]
    claimed = await claimer.claim(records)
    assert len(claimed.attempts) == 1
    (letter,) = publisher.on(TOPICS.dead_letters)
    assert letter.key == b"a1"
    assert base64.b64encode(value or b"") in (letter.value or b"")
    assert b'"code":"unreadable_record"' in (letter.value or b"")
    assert claimed.offsets == {TopicPartition("t.insight.media", 0): 2}


async def test_batch_that_was_given_up_may_come_again(claimer):
    records = taken(emitted())
    claimer.abandon((await claimer.claim(records)).attempts)
    assert len((await claimer.claim(records)).attempts) == 1


async def test_what_is_claimed_and_not_started_is_there_to_be_kept_alive(claimer):
    records = taken(emitted(agenda_id="a1"), emitted(agenda_id="a2"))
    both = await claimer.claim(records)
    assert [one.emitted.agenda_id for one in claimer] == ["a1", "a2"]
    claimer.release(both.attempts)
    assert [*claimer] == []
    other = await claimer.claim(taken(emitted(agenda_id="a3")))
    claimer.abandon(other.attempts)
    assert [*claimer] == []


async def test_letting_go_of_an_outdated_attempt_leaves_the_next_one_alone(claimer):
    old = await claimer.claim(taken(emitted(attempt=1)))
    await claimer.claim(taken(emitted(attempt=2)))
    claimer.release(old.attempts)
    assert [one.emitted.attempt for one in claimer] == [2]
