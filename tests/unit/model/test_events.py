"""Events on the wire: names, frames, and what is not readable."""

import msgspec
import pytest
from backlogs import START, placed

from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import (
    decode_delivery,
    decode_emitted,
    decode_lifecycle,
    decode_poll_demand,
    decode_query_reply,
    decode_ready,
    decode_routed,
    decode_stop,
    decode_usage,
    encode,
    frame,
)
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaEmitted,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.model.events.scheduling import (
    Claim,
    EmittedAgenda,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
    ReadyEvent,
    RoundDecided,
    Settlement,
)

CLAIMED = AgendaClaimed(
    agenda_id="a", at=START, insight_id="media", attempt=1, puller_id="p", lease_ms=5
)
EMITTED = EmittedAgenda(
    agenda_id="a",
    insight_id="media",
    customer_id="acme",
    attempt=2,
    accepted_at=START,
    emitted_at=START,
    lease_ms=60_000,
    agenda=msgspec.Raw(b'{"id":"a"}'),
)
UNREADABLE = [None, b"", b"{", b"7", b"\xff\xfe", b'{"type":"nothing.known"}', b"[" * 100_000]


def test_an_event_is_an_object_that_names_its_type():
    assert msgspec.json.decode(encode(CLAIMED)) == {
        "type": "agenda.claimed",
        "agenda_id": "a",
        "at": "2026-01-01T00:00:00Z",
        "insight_id": "media",
        "attempt": 1,
        "puller_id": "p",
        "lease_ms": 5,
    }


@pytest.mark.parametrize(
    ("union", "names"),
    [
        (
            LifecycleEvent,
            "agenda.accepted agenda.claimed agenda.emitted agenda.failed agenda.progressed "
            "agenda.refused agenda.heartbeat agenda.succeeded",
        ),
        (
            ReadyEvent,
            "queue.queried insight.attempts.reported insight.agendas.routed insight.tick",
        ),
    ],
)
def test_every_event_has_a_name_of_its_own(union, names):
    tags = sorted(kind.__struct_config__.tag for kind in union.__args__)
    assert set(names.split()) <= set(tags)
    assert len(tags) == len(set(tags))


def test_a_frame_is_a_list_and_reads_like_its_events():
    ended = AgendaSucceeded(agenda_id="a", at=START, insight_id="media", attempt=1)
    assert [*decode_lifecycle(encode([CLAIMED, ended]))] == [CLAIMED, ended]
    assert frame([encode(CLAIMED), encode(ended)]) == encode([CLAIMED, ended])
    assert [*decode_lifecycle(encode(CLAIMED))] == [CLAIMED]
    assert [*decode_lifecycle(b"[]")] == []


def test_fields_of_the_next_version_are_passed_over():
    value = encode(CLAIMED)[:-1] + b',"novelty":[1]}'
    assert [*decode_lifecycle(value)] == [CLAIMED]


def test_an_instant_without_an_offset_is_not_readable():
    value = encode(CLAIMED).replace(b"00Z", b"00")
    with pytest.raises(UnreadableRecordError, match="timezone"):
        decode_lifecycle(value)


def test_other_offsets_are_the_same_instant():
    value = encode(CLAIMED).replace(b"00:00:00Z", b"02:00:00+02:00")
    assert [*decode_lifecycle(value)] == [CLAIMED]


@pytest.mark.parametrize(
    "decode",
    [
        decode_lifecycle,
        decode_ready,
        decode_emitted,
        decode_stop,
        decode_poll_demand,
        decode_delivery,
        decode_usage,
    ],
)
@pytest.mark.parametrize("value", UNREADABLE, ids=lambda one: str(one)[:12])
def test_what_is_no_event_is_reported(decode, value):
    with pytest.raises(UnreadableRecordError):
        decode(value)


@pytest.mark.parametrize("value", UNREADABLE[1:], ids=lambda one: str(one)[:12])
def test_what_is_no_placed_agenda_or_answer_is_reported(value):
    with pytest.raises(UnreadableRecordError):
        decode_routed(value)
    with pytest.raises(UnreadableRecordError):
        decode_query_reply(value)


def test_events_of_the_scheduler_come_back_the_same():
    agendas = tuple(msgspec.Raw(encode(placed(name))) for name in "ab")
    page = InsightAgendasRouted(
        insight_id="media",
        agendas=agendas,
        origins=(
            Origin(partition=1, offset=7),
            Origin(partition=1, offset=8, index=3),
        ),
    )
    noted = InsightAttemptsReported(
        insight_id="media",
        claims=(Claim(agenda_id="a", attempt=1),),
        settlements=(
            Settlement(agenda_id="a", attempt=1, outcome="failed", spent_s={"cut": 0.5}),
        ),
    )
    tick = InsightTick(insight_id="", lag=3, emitted=9)
    back = decode_ready(encode([page, noted, tick]))
    assert [decode_routed(one) for one in back[0].agendas] == [placed("a"), placed("b")]
    assert back[0].origins == page.origins
    assert back[1:] == [noted, tick]


def test_an_agenda_is_carried_as_it_was_written():
    spaced = b'{ "id" : "a", "n": 1.50 }'
    one = msgspec.structs.replace(EMITTED, agenda=msgspec.Raw(spaced))
    assert bytes(decode_emitted(encode(one)).agenda) == spaced


def test_an_emitted_agenda_is_never_a_frame():
    with pytest.raises(UnreadableRecordError):
        decode_emitted(b"[" + encode(EMITTED) + b"]")


def test_numbers_that_json_cannot_carry_are_not_readable():
    value = encode(AgendaSucceeded(
        agenda_id="a", at=START, insight_id="media", attempt=1, spent_s={"cut": 1.5}
    ))  # fmt: skip
    for wrong in (b"NaN", b"1e999", b"null"):
        with pytest.raises(UnreadableRecordError):
            decode_lifecycle(value.replace(b"1.5", wrong))


def test_events_do_not_change():
    with pytest.raises(AttributeError):
        CLAIMED.attempt = 2


def test_defaults_are_left_out():
    emitted = AgendaEmitted(agenda_id="a", at=START, insight_id="media", attempt=1)
    assert b"null" not in encode(emitted)
    decided = RoundDecided(
        insight_id="media",
        at=START,
        round=1,
        algorithm="fifo",
        lag=0,
        in_flight=0,
        slots=1,
        chosen=(),
        ready=0,
        virtual_time=0.0,
        customers=(),
    )
    assert b"waiting" not in encode(decided)
