"""Which ends are old enough to be removed, and that nothing else ever is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pop_stream.core.lifecycle.lifecycle import TERMINAL, State
from pop_stream.core.lifecycle.retention import Retention

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEPT = Retention(
    succeeded=timedelta(days=1),
    failed=timedelta(days=2),
    stopped=timedelta(days=3),
    refused=timedelta(hours=1),
)


def test_every_end_has_an_age_and_nothing_else_has():
    before = KEPT.before(NOW)
    assert set(before) == set(TERMINAL)
    assert before[State.SUCCEEDED] == NOW - timedelta(days=1)
    assert before[State.FAILED] == NOW - timedelta(days=2)
    assert before[State.CANCELLED] == before[State.EXPIRED] == NOW - timedelta(days=3)
    assert before[State.REFUSED] == NOW - timedelta(hours=1)


def test_the_shortest_span_is_of_agendas_that_were_accepted():
    assert KEPT.shortest == timedelta(days=1)
    assert replace(KEPT, stopped=timedelta(minutes=1)).shortest == timedelta(minutes=1)
