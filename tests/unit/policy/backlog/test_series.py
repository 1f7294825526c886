"""A position of a series is placed once, whatever is submitted again and whatever crashes."""

from datetime import timedelta

import pytest
from backlogs import START, backlog, placed, settled
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.agenda import parse_agenda, routed_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.base import SeriesPosition
from pop_stream.model.events.lifecycle import AgendaCancelled
from pop_stream.model.events.scheduling import NO_ORIGIN, Origin
from pop_stream.model.series import series_partition
from pop_stream.policy.backlog.series import PlacedSeries
from pop_stream.policy.lifecycle.reconcile import LedgerRow, placed_for_repair
from pop_stream.policy.lifecycle.states import State

ANYWHERE = Origin(partition=NO_ORIGIN, offset=0)


def of_series(position, agenda_id=None, customer="ann", series="nightly"):
    return placed(
        agenda_id or f"{series}-{position}",
        customer,
        series=SeriesPosition(id=series, position=position),
    )


def offer(one, agenda):
    """Place it if it is new; whether it was."""
    fresh = one.filter_new([agenda], [ANYWHERE], START.timestamp())
    if fresh:
        one.place([agenda])
    return bool(fresh)


def test_a_position_is_not_placed_again_after_its_agenda_has_ended():
    one = backlog()
    assert offer(one, of_series(7))
    one.choose(1)
    one.settle(settled("nightly-7"))
    one.drain_outbox()
    assert not offer(one, of_series(7))
    assert one.ready == 0


def test_what_comes_late_in_a_series_ends_cancelled_and_says_why():
    one = backlog()
    offer(one, of_series(7))
    assert not offer(one, of_series(3, "late"))
    (event,) = one.drain_outbox().lifecycle
    assert isinstance(event, AgendaCancelled)
    assert (event.agenda_id, event.attempt) == ("late", 1)
    assert "'nightly' is at position 7, so 3 is not placed" in event.message


def test_a_repeat_of_an_agenda_that_is_here_is_dropped_in_silence():
    one = backlog()
    offer(one, of_series(7))
    assert not offer(one, of_series(7))
    twice = [of_series(8), of_series(8)]
    assert one.filter_new(twice, [ANYWHERE] * 2) == [0]
    assert not one.drain_outbox()


def test_a_series_is_its_customers_own():
    one = backlog()
    assert offer(one, of_series(7, "a", customer="ann"))
    assert offer(one, of_series(7, "b", customer="bob"))


def test_of_a_series_that_was_forgotten_positions_are_new_again():
    known = PlacedSeries(most=2)
    for name in ("a", "b", "c"):
        assert known.record_if_new(of_series(1, series=name))
    assert [*known.all()] == ["ann b", "ann c"]
    assert known.drain_changed()["ann a"] == -1
    assert known.record_if_new(of_series(1, series="a"))
    other = PlacedSeries()
    other.apply({"ann a": 5})
    other.apply({"ann a": -1})
    assert other.all() == {}


def test_deltas_are_split_with_their_series():
    one = backlog()
    for number in range(5):
        offer(one, of_series(number, series=f"s{number}"))
    parts = one.snapshot().split(2)
    assert [len(part.series) for part in parts] == [2, 2, 1]


class Source:
    """Fires a series into a backlog that may crash, and notes what ran."""

    def __init__(self):
        self.backlog, self.pages, self.deltas = backlog(), [], []
        self.fired, self.ran = 0, []

    def fire(self, back, *, is_written=True):
        """The position so many before the last one."""
        agenda = of_series(max(1, self.fired - back))
        if self.backlog.filter_new([agenda], [ANYWHERE]):
            self.pages.append((self.backlog.place([agenda]), [agenda]))
        self.write(is_written=is_written)

    def write(self, *, is_written=True):
        if (delta := self.backlog.drain_delta()) is not None and is_written:
            self.deltas.append(delta)

    def take(self, step, back):
        match step:
            case "fire":
                self.fired += 1
                self.fire(0)
            case "fire again" if self.fired:
                self.fire(back)
            case "end":
                for pick in self.backlog.choose(1):
                    self.ran.append(pick.agenda_id)
                    self.backlog.settle(settled(pick.agenda_id))
                self.write()
            case "crash before the delta":
                self.fired += 1
                self.fire(0, is_written=False)
                self.restart()
            case "crash":
                self.restart()

    def restart(self):
        self.backlog = backlog()
        self.backlog.restore(self.pages, self.deltas)


STEPS = st.sampled_from(["fire", "fire again", "end", "crash", "crash before the delta"])


@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 5)), max_size=40))
def test_every_position_runs_once_whatever_is_fired_again_and_whatever_crashes(steps):
    source = Source()
    for step, back in steps:
        source.take(step, back)
    ran = source.ran + [pick.agenda_id for pick in source.backlog.choose(100)]
    assert len({*ran}) == len(ran) == source.fired


# ---- at the edge ----

AGENDA = {
    "id": "a",
    "customer_id": "ann",
    "series": {"id": "nightly", "position": 7},
    "operations": [{"name": "a", "type": "noop"}],
}


def test_the_scheduler_gets_the_series_and_what_is_placed_again_has_none():
    agenda = parse_agenda(AGENDA)
    routed = routed_agenda(agenda, b"{}", agenda_id="a", accepted_at=START)
    assert routed.series == SeriesPosition(id="nightly", position=7)
    row = LedgerRow("a", "crunch", State.READY, 1, version=1)
    body = agenda.model_dump_json(exclude_defaults=True).encode()
    assert placed_for_repair(row, body, START + timedelta(seconds=1)).series is None


@pytest.mark.parametrize(
    ("series", "field"),
    [
        ({"id": "nightly", "position": -1}, "series.position"),
        ({"id": "nightly", "position": 2**53}, "series.position"),
        ({"id": "two words", "position": 1}, "series.id"),
        ({"id": "nightly"}, "series.position"),
    ],
)
def test_a_series_that_is_none_is_refused_by_field(series, field):
    with pytest.raises(SubmissionError) as refused:
        parse_agenda(AGENDA | {"series": series})
    assert refused.value.issues[0].field == field


def test_all_of_a_series_go_to_one_partition():
    partitions = {series_partition("ann", f"s{number}", 8) for number in range(100)}
    assert partitions == {*range(8)}
    assert series_partition("ann", "nightly", 8) == series_partition("ann", "nightly", 8)
