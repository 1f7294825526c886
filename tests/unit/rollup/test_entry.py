"""What a record of the lifecycle comes to before any of it is folded."""

from datetime import UTC, datetime, timedelta

import pytest
from aiokafka import ConsumerRecord
from msgspec import Raw

from pop_stream.kafka.lifecycle_reader import MAX_CLOCK_AHEAD, read
from pop_stream.model.events.codec import decode_lifecycle, encode, frame
from pop_stream.model.events.lifecycle import (
    SIGNED_EVENTS,
    AgendaAccepted,
    AgendaCommanded,
    AgendaEmitted,
    AgendaFailed,
    AgendaRefused,
    AgendaResolved,
    AgendaRestarted,
)
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.rollup.rollup import offset_ranges

NO_SECRET = RecordSigner()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


TOPIC = "pop.agenda-events"
SIGNER = RecordSigner([b"s" * 32])
SIGNED = (
    AgendaAccepted(
        agenda_id="a1", at=NOW, insight_id="files", customer_id="acme", agenda=Raw(b"{}")
    ),
    AgendaRefused(agenda_id="a1", at=NOW, issues=(), customer_id="acme", agenda=Raw(b"{}")),
    AgendaCommanded(agenda_id="a1", at=NOW, insight_id="files", action="cancel"),
    AgendaRestarted(agenda_id="a1", at=NOW, insight_id="files", attempt=2, routed=Raw(b"{}")),
    AgendaResolved(
        agenda_id="a1", at=NOW, insight_id="files", attempt=1, operation="a",
        outcome="succeeded",
    ),
)  # fmt: skip


def record(value, *, partition=0, offset=7, headers=()):
    return ConsumerRecord(TOPIC, partition, offset, 0, 0, b"a1", value, None, 2, 0, headers)


def emitted(agenda_id="a1", at=NOW):
    return AgendaEmitted(agenda_id=agenda_id, at=at, insight_id="files", attempt=1)


def emitted_json(agenda_id="a1"):
    return encode(emitted(agenda_id))


def test_a_lone_event_is_an_entry():
    one = record(emitted_json())
    assert read(one, now=NOW, signer=NO_SECRET) == ([(one, emitted(), True, 0)], [])


def test_the_last_event_of_a_frame_ends_its_record():
    one = record(frame([emitted_json("a1"), emitted_json("a2"), emitted_json("a3")]))
    entries, refusals = read(one, now=NOW, signer=NO_SECRET)
    assert [entry.event for entry in entries] == [emitted("a1"), emitted("a2"), emitted("a3")]
    assert [entry.ends_record for entry in entries] == [False, False, True]
    assert [entry.number for entry in entries] == [0, 1, 2]
    assert refusals == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"null",
        b"{}",
        b'"agenda.emitted"',
        b'{"type": "agenda.vanished"}',
        b"[" * 5_000 + b"]" * 5_000,
        b'{"type":"agenda.accepted","agenda_id":"a1","at":"2026-01-01T00:00:00Z",'
        b'"insight_id":"i","customer_id":"c","agenda":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        emitted_json().replace(b"Z", b""),
    ],
)
def test_a_record_that_is_no_event_is_refused_whole(value):
    one = record(value)
    entries, (refusal,) = read(one, now=NOW, signer=NO_SECRET)
    assert entries == [(one, None, True, 0)]
    assert refusal.record is one
    assert refusal.error[0] == "unreadable_record"
    assert refusal.error[1]


def test_an_empty_frame_is_accounted_for():
    one = record(b"[]")
    assert read(one, now=NOW, signer=NO_SECRET) == ([(one, None, True, 0)], [])


def test_a_bad_event_takes_none_of_its_frame_with_it():
    bad = b'{"type":"agenda.emitted","agenda_id":5}'
    one = record(frame([emitted_json("a1"), bad, emitted_json("a2"), b"3"]))
    entries, refusals = read(one, now=NOW, signer=NO_SECRET)
    assert [entry.event.agenda_id for entry in entries] == ["a1", "a2"]
    assert entries[-1].ends_record
    assert [refusal.record.value for refusal in refusals] == [bad, b"3"]
    assert {refusal.record.offset for refusal in refusals} == {7}


@pytest.mark.parametrize("agenda_id", ["", "a\0", "a b", "-a", "x" * 129, "a/b"])
def test_an_event_without_a_proper_id_is_refused(agenda_id):
    one = record(frame([emitted_json(agenda_id), emitted_json("a2")]))
    (entry,), (refusal,) = read(one, now=NOW, signer=NO_SECRET)
    assert entry.event.agenda_id == "a2"
    assert decode_lifecycle(refusal.record.value)[0].agenda_id == agenda_id
    assert "is no id" in refusal.error[1]


def test_an_event_from_the_future_is_refused():
    early, late = NOW + MAX_CLOCK_AHEAD, NOW + MAX_CLOCK_AHEAD + timedelta(seconds=1)
    entries, refusals = read(record(encode(emitted(at=early))), now=NOW, signer=NO_SECRET)
    assert entries[0].event.at == early
    assert refusals == []
    _, (refusal,) = read(record(encode(emitted(at=late))), now=NOW, signer=NO_SECRET)
    assert "clock is wrong" in refusal.error[1]


def test_what_a_reader_of_the_next_version_writes_is_read():
    value = encode(
        AgendaFailed(agenda_id="a1", at=NOW, insight_id="i", attempt=1, message="no")
    ).replace(b'"message"', b'"mood":"bad","message"')
    (entry,), refusals = read(record(value), now=NOW, signer=NO_SECRET)
    assert (entry.event.message, refusals) == ("no", [])


def test_spans_lead_from_the_known_position_past_the_last_ended_record():
    entries = []
    for partition, offset in [(0, 12), (0, 15), (3, 2)]:
        value = frame([emitted_json("a1"), emitted_json("a2")])
        entries += read(
            record(value, partition=partition, offset=offset), now=NOW, signer=NO_SECRET
        )[0]
    known = {0: 10, 3: 2, 4: 8}
    assert offset_ranges(entries, known) == {0: (10, 16), 3: (2, 3)}
    assert offset_ranges(entries[:3], known) == {0: (10, 15)}
    assert offset_ranges(entries[:1], known) == {0: (10, 12)}
    assert offset_ranges(entries[3:5], known) == {0: (10, 16), 3: (2, 2)}


def test_there_is_an_example_of_all_that_must_be_signed():
    assert {type(one) for one in SIGNED} == {*SIGNED_EVENTS}


@pytest.mark.parametrize("event", SIGNED)
@pytest.mark.parametrize("headers", ["none", "noise", "of another record", "of another topic"])
def test_what_only_ingest_and_api_may_say_is_refused_without_their_signature(event, headers):
    value = frame([emitted_json("a1"), encode(event), emitted_json("a2")])
    shown = {
        "none": (),
        "noise": [("pop-signature", b"v1=00")],
        "of another record": SIGNER.headers(TOPIC, key=b"a1", value=encode(event)),
        "of another topic": SIGNER.headers("pop.submissions", key=b"a1", value=value),
    }[headers]
    entries, (refusal,) = read(record(value, headers=shown), now=NOW, signer=SIGNER)
    assert [one.event.agenda_id for one in entries] == ["a1", "a2"]  # pullers' own events count
    assert refusal.error[0] == "unauthenticated"
    assert "POP_SIGNING_SECRETS" in refusal.error[1]
    assert [*decode_lifecycle(refusal.record.value)] == [event]


@pytest.mark.parametrize("event", SIGNED)
@pytest.mark.parametrize("in_frame", [False, True])
def test_what_ingest_and_api_have_signed_is_read(event, in_frame):
    value = frame([emitted_json("a1"), encode(event)]) if in_frame else encode(event)
    signed = SIGNER.headers(TOPIC, key=b"a1", value=value)
    later = RecordSigner([b"n" * 32, b"s" * 32])
    for signer in (SIGNER, later, NO_SECRET):
        entries, refusals = read(record(value, headers=signed), now=NOW, signer=signer)
        assert (entries[-1].event, refusals) == (event, [])
