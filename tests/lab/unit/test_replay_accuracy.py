"""From which round on a replay may not be exact, and what is used of a spoiled record."""

import msgspec
import pytest
from replay_recorder import Recorder

from pop_stream.lab.replay.replay import (
    ReadyInput,
    UnreadableRecord,
    first_inexact_round,
    replay,
)
from pop_stream.model.events.codec import encode, frame
from pop_stream.model.events.record_splitting import readable_events
from pop_stream.model.events.scheduling import InsightTick


def lost(offset, *, is_decision=False):
    return UnreadableRecord("pop.ready", 0, offset, "no event", is_decision=is_decision)


@pytest.fixture
def day():
    """Rounds 1 to 4, decided by the records 2, 4, 6 and 8."""
    day = Recorder()
    for customer in "abcd":
        day.place(customer, 10)
        day.round(4)
    return day


@pytest.mark.parametrize(
    ("offset", "doubtful"), [(0, 1), (2, 1), (3, 2), (4, 2), (7, 4), (8, 4), (9, None)]
)
def test_a_lost_event_is_missed_by_the_rounds_from_it_on(day, offset, doubtful):
    found = first_inexact_round(day.decisions, [lost(offset)])
    assert (found and found.round) == doubtful


@pytest.mark.parametrize(("offset", "doubtful"), [(3, None), (4, None), (5, 3)])
def test_what_was_lost_before_a_checkpoint_is_in_it(day, offset, doubtful):
    found = first_inexact_round(day.decisions[1:], [lost(offset)])
    assert (found and found.round) == doubtful


def test_a_lost_round_is_missed_by_the_next(day):
    left = [one for one in day.decisions if one.round != 3]
    assert first_inexact_round(left, [lost(1, is_decision=True)]).round == 4
    assert first_inexact_round(day.decisions, [lost(1, is_decision=True)]) is None


def test_without_rounds_nothing_is_in_doubt():
    assert first_inexact_round([], [lost(1)]) is None


def test_of_a_page_only_the_agenda_is_lost_that_cannot_be_read(day):
    """The scheduler places the rest, in halves."""
    page = day.inputs[0].event
    bodies = [*page.agendas[:3], msgspec.Raw(b'{"agenda_id": 3}'), *page.agendas[4:]]
    spoiled = msgspec.structs.replace(page, agendas=tuple(bodies))
    events, reasons = readable_events(encode(spoiled))
    placed = [body for event in events for body in event.agendas]
    assert [*map(bytes, placed)] == [
        bytes(body) for number, body in enumerate(page.agendas) if number != 3
    ]
    assert len(reasons) == 1
    assert "agenda_id" in reasons[0]
    inputs = [ReadyInput(1, event, day.inputs[0].at) for event in events] + day.inputs[1:]
    rounds = [*replay(inputs, day.decisions, day.definitions_at)]
    assert [one.is_same for one in rounds][:1] == [False]


def test_of_a_frame_the_rest_is_used():
    tick = encode(InsightTick(insight_id="media", lag=1))
    events, reasons = readable_events(frame([tick, b'{"type": "other"}', tick]))
    assert [one.lag for one in events] == [1, 1]
    assert len(reasons) == 1


@pytest.mark.parametrize("value", [None, b"", b"{", b"7", b"\xff"])
def test_what_is_no_event_is_reported(value):
    events, reasons = readable_events(value)
    assert not events
    assert len(reasons) == 1


def test_agendas_without_origins_are_not_taken(day):
    page = day.inputs[0].event
    events, reasons = readable_events(
        encode(msgspec.structs.replace(page, origins=page.origins[:4]))
    )
    assert len(reasons) == 6
    assert sum(len(one.agendas) for one in events) == 4
