"""What a record of the lifecycle comes to before any of it is folded."""

from datetime import UTC, datetime, timedelta

import pytest
from aiokafka import ConsumerRecord

from pop_stream.kafka.lifecycle_reader import MAX_CLOCK_AHEAD, read
from pop_stream.model.events.codec import decode_lifecycle, encode, frame
from pop_stream.model.events.lifecycle import AgendaEmitted, AgendaFailed
from pop_stream.rollup.rollup import offset_ranges

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(value, *, partition=0, offset=7):
    return ConsumerRecord(
        "pop.agenda-events", partition, offset, 0, 0, b"a1", value, None, 2, 0, ()
    )


def emitted(agenda_id="a1", at=NOW):
    return AgendaEmitted(agenda_id=agenda_id, at=at, insight_id="files", attempt=1)


def emitted_json(agenda_id="a1"):
    return encode(emitted(agenda_id))


def test_a_lone_event_is_an_entry():
    one = record(emitted_json())
    assert read(one, now=NOW) == ([(one, emitted(), True)], [])


def test_the_last_event_of_a_frame_ends_its_record():
    one = record(frame([emitted_json("a1"), emitted_json("a2"), emitted_json("a3")]))
    entries, refusals = read(one, now=NOW)
    assert [entry.event for entry in entries] == [emitted("a1"), emitted("a2"), emitted("a3")]
    assert [entry.ends_record for entry in entries] == [False, False, True]
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
    entries, (refusal,) = read(one, now=NOW)
    assert entries == [(one, None, True)]
    assert refusal.record is one
    assert refusal.error[0] == "unreadable_record"
    assert refusal.error[1]


def test_an_empty_frame_is_accounted_for():
    one = record(b"[]")
    assert read(one, now=NOW) == ([(one, None, True)], [])


def test_a_bad_event_takes_none_of_its_frame_with_it():
    bad = b'{"type":"agenda.emitted","agenda_id":5}'
    one = record(frame([emitted_json("a1"), bad, emitted_json("a2"), b"3"]))
    entries, refusals = read(one, now=NOW)
    assert [entry.event.agenda_id for entry in entries] == ["a1", "a2"]
    assert entries[-1].ends_record
    assert [refusal.record.value for refusal in refusals] == [bad, b"3"]
    assert {refusal.record.offset for refusal in refusals} == {7}


@pytest.mark.parametrize("agenda_id", ["", "a\0", "a b", "-a", "x" * 129, "a/b"])
def test_an_event_without_a_proper_id_is_refused(agenda_id):
    one = record(frame([emitted_json(agenda_id), emitted_json("a2")]))
    (entry,), (refusal,) = read(one, now=NOW)
    assert entry.event.agenda_id == "a2"
    assert decode_lifecycle(refusal.record.value)[0].agenda_id == agenda_id
    assert "is no id" in refusal.error[1]


def test_an_event_from_the_future_is_refused():
    early, late = NOW + MAX_CLOCK_AHEAD, NOW + MAX_CLOCK_AHEAD + timedelta(seconds=1)
    entries, refusals = read(record(encode(emitted(at=early))), now=NOW)
    assert entries[0].event.at == early
    assert refusals == []
    _, (refusal,) = read(record(encode(emitted(at=late))), now=NOW)
    assert "clock is wrong" in refusal.error[1]


def test_what_a_reader_of_the_next_version_writes_is_read():
    value = encode(
        AgendaFailed(agenda_id="a1", at=NOW, insight_id="i", attempt=1, message="no")
    ).replace(b'"message"', b'"mood":"bad","message"')
    (entry,), refusals = read(record(value), now=NOW)
    assert (entry.event.message, refusals) == ("no", [])


def test_spans_lead_from_the_known_position_past_the_last_ended_record():
    entries = []
    for partition, offset in [(0, 12), (0, 15), (3, 2)]:
        value = frame([emitted_json("a1"), emitted_json("a2")])
        entries += read(record(value, partition=partition, offset=offset), now=NOW)[0]
    known = {0: 10, 3: 2, 4: 8}
    assert offset_ranges(entries, known) == {0: (10, 16), 3: (2, 3)}
    assert offset_ranges(entries[:3], known) == {0: (10, 15)}
    assert offset_ranges(entries[:1], known) == {0: (10, 12)}
    assert offset_ranges(entries[3:5], known) == {0: (10, 16), 3: (2, 2)}
