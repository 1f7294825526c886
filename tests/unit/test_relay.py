"""What the scheduler is told of the lifecycle, in notes that fit."""

from datetime import timedelta

import pytest
from backlogs import START
from fakes import FixedDefinitions, MemoryPublisher
from msgspec import Raw
from submissions import record

from pop_stream.bus.publisher import FRAME_BYTES
from pop_stream.bus.topics import Topics
from pop_stream.core.definitions import Definitions, Insight
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaFailed,
    AgendaSucceeded,
    Claim,
    InsightNoted,
    Settlement,
    decode_ready,
    encode,
)
from pop_stream.core.partitioning import partition_of
from pop_stream.intake.relay import Relay, notes_of
from pop_stream.settings import Settings

TOPICS = Topics("t.")


def claimed(agenda_id, insight_id="media", attempt=1):
    return AgendaClaimed(
        agenda_id=agenda_id,
        at=START,
        insight_id=insight_id,
        attempt=attempt,
        puller_id="p",
        lease_ms=1_000,
    )


def succeeded(agenda_id, insight_id="media", attempt=1, **spent_s):
    return AgendaSucceeded(
        agenda_id=agenda_id, at=START, insight_id=insight_id, attempt=attempt, spent_s=spent_s
    )


def failed(agenda_id, insight_id="media"):
    return AgendaFailed(
        agenda_id=agenda_id,
        at=START + timedelta(seconds=1),
        insight_id=insight_id,
        attempt=2,
        message="no",
        spent_s={"cut": 0.5},
    )


async def relayed(*values, definitions=None, publisher=None):
    publisher = publisher or MemoryPublisher()
    known = FixedDefinitions(definitions or Definitions())
    relay = Relay(Settings(topic_prefix="t."), publisher, known)
    await relay.handle([record(value, offset=n) for n, value in enumerate(values)])
    return publisher.records


def notes(records):
    return [event for one in records for event in decode_ready(one.value)]


def test_claims_and_ends_become_one_note_per_insight_in_order():
    found = notes_of(
        [
            claimed("a"),
            claimed("x", "video"),
            succeeded("a", cut=0.25),
            failed("b"),
            claimed("c", attempt=3),
        ]
    )
    assert found == [
        InsightNoted(
            insight_id="media",
            claims=(Claim(agenda_id="a", attempt=1), Claim(agenda_id="c", attempt=3)),
            settlements=(
                Settlement(
                    agenda_id="a", attempt=1, outcome="succeeded", spent_s={"cut": 0.25}
                ),
                Settlement(agenda_id="b", attempt=2, outcome="failed", spent_s={"cut": 0.5}),
            ),
        ),
        InsightNoted(insight_id="video", claims=(Claim(agenda_id="x", attempt=1),)),
    ]


def test_the_rest_of_the_lifecycle_is_not_the_schedulers():
    accepted = AgendaAccepted(
        agenda_id="a", at=START, insight_id="media", customer_id="c", agenda=Raw(b"{}")
    )
    emitted = AgendaEmitted(agenda_id="a", at=START, insight_id="media", attempt=1)
    assert notes_of([accepted, emitted]) == []


async def test_frames_and_lone_events_are_read_alike():
    records = await relayed(encode([claimed("a"), claimed("b")]), encode(claimed("c")))
    [note] = notes(records)
    assert [claim.agenda_id for claim in note.claims] == ["a", "b", "c"]


async def test_nothing_to_tell_writes_nothing():
    emitted = AgendaEmitted(agenda_id="a", at=START, insight_id="media", attempt=1)
    assert await relayed(encode(emitted)) == []


async def test_notes_go_where_the_insight_is_decided_for():
    pooled = Insight(id="media", pool="gpu")
    known = Definitions(insights={"media": pooled})
    [one] = await relayed(encode(claimed("a")), definitions=known)
    assert (one.topic, one.key) == (TOPICS.ready, b"media")
    assert one.partition == partition_of(b"pool/gpu", 4)
    [other] = await relayed(encode(claimed("a", "video")), definitions=known)
    assert other.partition == partition_of(b"video", 4)


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"[" * 100_000, b'{"type":"?"}'])
async def test_an_unreadable_record_is_passed_over(value):
    [note] = notes(await relayed(value, encode(claimed("a"))))
    assert note.claims == (Claim(agenda_id="a", attempt=1),)


@pytest.mark.parametrize("wrong", [claimed("a" * 400_000), claimed("a", "i" * 400_000)])
async def test_ids_that_cannot_be_are_passed_over(wrong):
    [note] = notes(await relayed(encode([wrong, claimed("a")])))
    assert note.claims == (Claim(agenda_id="a", attempt=1),)


async def test_a_backlog_of_events_is_told_in_notes_that_fit():
    names = [f"agenda-{number:025d}" for number in range(9_000)]
    values = [encode([claimed(one), succeeded(one, cut=0.123456)]) for one in names]
    records = await relayed(*values)
    assert len(records) > 2
    assert max(len(one.value) for one in records) <= FRAME_BYTES
    told = notes(records)
    assert [claim.agenda_id for note in told for claim in note.claims] == names
    assert [end.agenda_id for note in told for end in note.settlements] == names
    first_end = next(n for n, note in enumerate(told) if note.settlements)
    assert not any(note.claims for note in told[first_end:])


async def test_an_end_with_monstrous_costs_frees_its_slot_all_the_same():
    costs = {f"{'t' * 190}{number}": 1.0 for number in range(3_000)}
    records = await relayed(encode(succeeded("a", **costs)), encode(succeeded("b", cut=1.0)))
    ends = [end for note in notes(records) for end in note.settlements]
    assert [(end.agenda_id, len(end.spent_s)) for end in ends] == [("a", 0), ("b", 1)]


async def test_a_broker_that_is_away_is_waited_for():
    publisher = MemoryPublisher(failures=[UnavailableError("away")])
    assert notes(await relayed(encode(claimed("a")), publisher=publisher))
