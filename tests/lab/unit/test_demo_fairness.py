"""How the demo judges a run: by emission, from what is on record of its rounds."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from pop_stream.lab.demo.statistics import DemoEmission, contest_of
from pop_stream.lab.fairness_metrics.recorded import (
    ObservedAgenda,
    decisions_since,
    served_attempts,
)
from pop_stream.lab.fairness_metrics.service_log import ServedAttempt
from pop_stream.lab.replay.decisions_log import DecisionHistory
from pop_stream.lab.replay.replay import ReadyInput
from pop_stream.model.events.scheduling import InsightAgendasRouted, RoundDecided, RoutedAgenda
from pop_stream.model.ids import CustomerId

START = datetime(2030, 1, 1, tzinfo=UTC)
BOTH = ("flood", "dora")


def emission(customer, *, arrived, emitted, started=None, spent=1.0, weight=1.0):
    return DemoEmission(
        ServedAttempt(
            customer_id=CustomerId(customer),
            submitted_at=arrived,
            arrived_at=arrived,
            emitted_at=emitted,
            started_at=started or emitted,
            ended_at=(started or emitted) + spent,
            charged=spent,
            spent=spent,
            weight=weight,
        ),
        size=1_000,
    )


def turns(customer, *, every, weight=1.0, count=60):
    return [
        emission(customer, arrived=100, emitted=100 + every * (n + 1), weight=weight)
        for n in range(count)
    ]


def test_what_a_flood_had_out_before_the_others_came_is_no_part_of_the_contest():
    """It runs while they wait; what is decided from then on is even."""
    early = [emission("flood", arrived=0, emitted=50 + n, started=101 + n) for n in range(40)]
    found = contest_of([*early, *turns("flood", every=2), *turns("dora", every=2)], BOTH)
    assert found.jain == pytest.approx(1.0, abs=1e-3)
    assert found.competitors == 2
    assert found.given == {"flood": 60, "dora": 60}
    assert found.span_s == 120


def test_a_flood_that_is_emitted_before_its_turn_shows():
    found = contest_of([*turns("flood", every=1, count=180), *turns("dora", every=3)], BOTH)
    assert found.jain == pytest.approx(0.8, abs=0.01)


def test_shares_are_by_weight():
    dora = turns("dora", every=1, weight=2.0, count=120)
    found = contest_of([*turns("flood", every=2), *dora], BOTH)
    assert found.jain == pytest.approx(1.0, abs=1e-3)


def test_an_agenda_interrupted_for_long_does_not_make_all_too_large_to_judge():
    slow = emission("flood", arrived=100, emitted=200, spent=15)
    found = contest_of([*turns("flood", every=2), slow, *turns("dora", every=2)], BOTH)
    assert found.competitors == 2


def test_who_has_too_few_to_tell_is_not_judged():
    few = [*turns("flood", every=2, count=5), *turns("dora", every=2, count=5)]
    found = contest_of(few, BOTH)
    assert (found.jain, found.competitors, found.span_s) == (None, 0, 10)


def placed(agenda_id):
    return RoutedAgenda(
        agenda_id=agenda_id,
        customer_id="dora",
        accepted_at=START,
        agenda=msgspec.Raw(b"{}"),
        operation_types=("file.read",),
    )


def placing(offset, *agenda_ids):
    agendas = tuple(msgspec.Raw(msgspec.json.encode(placed(one))) for one in agenda_ids)
    return ReadyInput(
        offset, InsightAgendasRouted(insight_id="files", agendas=agendas, origins=())
    )


def decided(number, *chosen, offset):
    return RoundDecided(
        insight_id="files",
        at=START + timedelta(seconds=number),
        round=number,
        algorithm="weighted_fair",
        lag=0,
        in_flight=0,
        slots=9,
        chosen=chosen,
        ready=0,
        virtual_time=0.0,
        customers=(),
        offset=offset,
    )


def observed(*agenda_ids):
    at = START.timestamp()
    return {one: ObservedAgenda(at, at + 9, at + 10, 0.5) for one in agenda_ids}


def test_who_was_placed_before_a_round_waits_from_that_round_on():
    history = DecisionHistory(
        inputs=[placing(1, "a", "b"), placing(3, "c")],
        decisions=[decided(1, "a", offset=2), decided(2, "c", "b", offset=4)],
        versions=[],
    )
    waited = {
        one.agenda_id: (served.arrived_at, served.emitted_at)
        for one, served in served_attempts(history, observed("a", "b", "c"))
    }
    first, second = START.timestamp() + 1, START.timestamp() + 2
    assert waited == {"a": (first, first), "b": (first, second), "c": (second, second)}


def test_rounds_of_earlier_runs_and_agendas_no_longer_on_record_are_passed_over():
    history = DecisionHistory(
        inputs=[placing(5, "new")],
        decisions=[decided(1, "gone", offset=2), decided(7, "gone-too", "new", offset=5)],
        versions=[],
    )
    whole = [
        one.agenda_id
        for one, _ in served_attempts(history, observed("gone", "gone-too", "new"))
    ]
    assert whole == ["new"]
    assert [one.round for one in decisions_since(history, START.timestamp() + 3).decisions] == [
        7
    ]
