"""Recorded rounds, chosen again."""

from datetime import timedelta

import pytest
from backlogs import START, failed, settled, several
from msgspec import Raw

from pop_stream.lab.replay.replay import (
    ReadyInput,
    final_decisions,
    replay,
    share_of_definition,
)
from pop_stream.lab.replay.what_if import CustomerOutcome, recorded_outcomes, what_if
from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import (
    Claim,
    Command,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
    QueueQueried,
    RoundDecided,
)
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.policy.backlog.backlog import Backlog, apply_tick, hear
from pop_stream.policy.fairness.flow import Share


def definitions(version: int, **weights: float) -> Definitions:
    customers = {
        CustomerId(name): Customer(id=name, weight=weight) for name, weight in weights.items()
    }
    insights = {InsightId("media"): Insight(id="media")}
    return Definitions(customers=customers, insights=insights, version=version)


class Recorder:
    """A scheduler's day, recorded as the topics would."""

    def __init__(self) -> None:
        self.versions = [definitions(1)]
        self.inputs: list[ReadyInput] = []
        self.decisions: list[RoundDecided] = []
        self.beginnings = []
        self._offset = 0
        self._now = START
        self._backlog = Backlog(Insight(id="media"), self._share)

    def _share(self, customer_id: CustomerId) -> Share:
        return Share(weight=self.versions[-1].customer(customer_id).weight)

    def reweigh(self, **weights: float) -> None:
        self.versions.append(definitions(len(self.versions) + 1, **weights))
        self._backlog.reconfigure(Insight(id="media"))

    def place(self, customer_id: str, count: int) -> None:
        agendas = several(customer_id, count, first=self._offset * 1000)
        origins = [Origin(partition=0, offset=self._offset, index=i) for i in range(count)]
        bodies = tuple(Raw(encode(one)) for one in agendas)
        event = InsightAgendasRouted(insight_id="media", agendas=bodies, origins=tuple(origins))
        self._record(event)
        self._backlog.place([agendas[i] for i in self._backlog.news(agendas, origins)])

    def settle(self, agenda_ids: list[str], seconds: float) -> None:
        claims = tuple(Claim(agenda_id=one, attempt=1) for one in agenda_ids)
        ends = tuple(settled(one, noop=seconds) for one in agenda_ids)
        self._record(
            InsightAttemptsReported(insight_id="media", claims=claims, settlements=ends)
        )
        for claim in claims:
            self._backlog.claim(claim.agenda_id, claim.attempt)
        for end in ends:
            self._backlog.settle(end)

    def round(self, slots: int) -> list[str]:
        self._record(InsightTick(insight_id="media"))
        self._backlog.apply_due(self._now.timestamp())
        chosen = self._backlog.choose(slots, self._now.timestamp())
        self.decisions.append(
            RoundDecided(
                insight_id="media",
                at=self._now,
                round=self._backlog.rounds,
                algorithm="weighted_fair",
                lag=0,
                in_flight=0,
                slots=slots,
                chosen=tuple(one.agenda_id for one in chosen),
                ready=self._backlog.ready,
                virtual_time=0.0,
                customers=(),
                offset=self._offset,
                definitions=self.versions[-1].version,
            )
        )
        return [one.agenda_id for one in chosen]

    def hear(self, event) -> None:
        self._record(event)
        hear(self._backlog, event, self._now.timestamp())

    def tick(self) -> None:
        """Everything told so far has been heard."""
        event = InsightTick(insight_id="media", relayed_until=self._now)
        self._record(event)
        apply_tick(self._backlog, event, self._now.timestamp())

    @property
    def waiting(self) -> list[str]:
        return [*self._backlog.slots.refs()]

    @property
    def last(self) -> str:
        return max(self._backlog.slots.refs())

    def definitions_at(self, version: int) -> Definitions:
        return self.versions[version - 1]

    def _record(self, event) -> None:
        self._offset += 1
        self._now += timedelta(seconds=1)
        self.inputs.append(ReadyInput(self._offset, event, self._now.timestamp()))


@pytest.fixture
def day() -> Recorder:
    recorder = Recorder()
    recorder.place("a", 30)
    recorder.settle(recorder.round(6), seconds=0.5)
    recorder.place("b", 30)
    recorder.settle(recorder.round(8), seconds=2.0)
    recorder.reweigh(b=4.0)
    recorder.settle(recorder.round(10), seconds=0.7)
    recorder.place("c", 5)
    recorder.round(20)
    return recorder


def test_the_same_choices_come_out(day):
    rounds = [*replay(day.inputs, day.decisions, day.definitions_at)]
    assert len(rounds) == 4
    assert all(one.is_same for one in rounds)


@pytest.mark.parametrize("weights", [(0.01, 50.0), (50.0, 0.01), (3.0, 1.0)])
def test_weights_that_changed_among_ends_come_out_the_same(weights):
    """A round knows its definitions, but not before which of the ends they came into force."""
    day = Recorder()
    for customer in "abc":
        day.place(customer, 40)
    for weight in weights:
        out = day.round(9)
        day.settle(out[:4], seconds=3.0)
        day.reweigh(b=weight, c=1 / weight)
        day.settle(out[4:], seconds=0.2)
    for slots in (1, 5, 30):
        day.settle(day.round(slots), seconds=0.9)
    rounds = [*replay(day.inputs, day.decisions, day.definitions_at)]
    assert len(rounds) == 5
    assert all(one.is_same for one in rounds)


def test_a_change_nobody_recorded_shows(day):
    rounds = [*replay(day.inputs, day.decisions, lambda _: definitions(9, a=9.0))]
    assert not all(one.is_same for one in rounds)


def test_a_round_that_was_not_kept_gives_way_to_its_repeat(day):
    lost = day.decisions[-1]
    repeated = RoundDecided(**{
        name: getattr(lost, name) for name in lost.__struct_fields__
    } | {"lag": 7})  # fmt: skip
    assert final_decisions([*day.decisions, repeated])[-1].lag == 7
    assert [one.round for one in final_decisions(day.decisions)] == [1, 2, 3, 4]


def test_other_weights_move_waits_from_one_to_the_other(day):
    before = recorded_outcomes(day.inputs, day.decisions)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"b": 0.1})
    assert len(after["b"].waits_s) < len(before["b"].waits_s)
    assert len(after["a"].waits_s) > len(before["a"].waits_s)
    emitted = [sum(len(one.waits_s) for one in some.values()) for some in (before, after)]
    assert emitted[0] == emitted[1]


def test_the_same_weights_change_nothing(day):
    before = recorded_outcomes(day.inputs, day.decisions)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {})
    assert {name: one.mean_wait_s for name, one in after.items()} == pytest.approx(
        {name: one.mean_wait_s for name, one in before.items()}
    )


def test_what_was_placed_twice_or_settled_by_nobody_changes_nothing(day):
    before = recorded_outcomes(day.inputs, day.decisions)
    stray = InsightAttemptsReported(
        insight_id="media", settlements=(settled("stranger", noop=9.0),)
    )
    doubled = [ReadyInput(0, stray), day.inputs[0], *day.inputs]
    rounds = [*replay(doubled, day.decisions, day.definitions_at)]
    assert all(one.is_same for one in rounds)
    after = what_if(doubled, day.decisions, day.definitions_at, {})
    assert {*after} == {*before}


def test_failures_and_leases_come_to_the_same_again():
    """Retries come due, and the lost come back, in the rounds that they came in."""
    day = Recorder()
    day.place("a", 4)
    first = day.round(3)
    day.hear(
        InsightAttemptsReported(
            insight_id="media",
            claims=tuple(Claim(agenda_id=one, attempt=1) for one in first),
            settlements=(failed(first[0]),),
            commands=(Command(agenda_id=first[1], action="cancel"),),
        )
    )
    day._record(QueueQueried(insight_id="media", query_id="q"))
    for _ in range(70):
        day.tick()
    assert sorted(day.round(9)) == sorted({*first[:1], *first[2:], day.last})
    rounds = [*replay(day.inputs, day.decisions, day.definitions_at)]
    assert [one.is_same for one in rounds] == [True, True]
    after = what_if(day.inputs, day.decisions, day.definitions_at, {})
    assert len(after["a"].waits_s) >= 4


def test_commands_act_with_other_weights_too():
    """What was cancelled while it waited is chosen by no round, whatever the weights."""
    day = Recorder()
    day.place("a", 6)
    day.place("b", 6)
    names = sorted(day.waiting)
    gone = [one for one in names if one.startswith("b")][:4]
    commands = tuple(Command(agenda_id=one, action="cancel") for one in gone)
    day.hear(InsightAttemptsReported(insight_id="media", commands=commands))
    day.round(12)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"b": 9.0})
    assert {one: len(after[one].waits_s) for one in "ab"} == {"a": 6, "b": 2}


def test_a_weight_of_then_gives_way_to_the_one_that_is_tried():
    day = Recorder()
    for customer in "abc":
        day.place(customer, 30)
    day.round(3)
    day.reweigh(a=20.0, b=20.0)
    day.round(21)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"a": 1.0})
    emitted = {one: len(after[one].waits_s) for one in "abc"}
    assert emitted["b"] > 15
    assert emitted["a"] == emitted["c"] < 4


def test_failures_come_again_with_other_weights():
    """Else a failed attempt would be worth a whole agenda, and its retry none."""
    day = Recorder()
    day.place("a", 2)
    first = day.round(2)
    claims = tuple(Claim(agenda_id=one, attempt=1) for one in first)
    ends = tuple(failed(one) for one in first)
    day.hear(InsightAttemptsReported(insight_id="media", claims=claims, settlements=ends))
    for _ in range(70):
        day.tick()
    assert len(day.round(9)) == 2
    after = what_if(day.inputs, day.decisions, day.definitions_at, {})
    assert len(after["a"].waits_s) == 4


def test_what_agendas_truly_cost_counts_with_other_weights_too():
    day = Recorder()
    for customer in "ab":
        day.place(customer, 40)
    for _ in range(3):
        out = day.round(8)
        day.settle([one for one in out if one.startswith("a")], seconds=9.0)
        day.settle([one for one in out if one.startswith("b")], seconds=0.1)
    day.round(20)
    before = recorded_outcomes(day.inputs, day.decisions)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"a": 1.0})
    assert len(before["b"].waits_s) > 2 * len(before["a"].waits_s)
    assert {one: len(after[one].waits_s) for one in "ab"} == pytest.approx(
        {one: len(before[one].waits_s) for one in "ab"}, abs=4
    )


def test_the_mean_wait_of_some_and_of_none():
    assert CustomerOutcome([1.0, 4.0, 4.0]).mean_wait_s == 3.0
    assert CustomerOutcome().mean_wait_s == 0.0


def test_rounds_are_chosen_again_in_their_order(day):
    assert final_decisions(day.decisions[::-1]) == day.decisions


def test_a_share_is_all_that_the_definition_says():
    acme = Customer(id="acme", weight=3, max_in_flight=4, rate_per_s=5, burst=6, paused=True)
    known = Definitions(customers={CustomerId("acme"): acme})
    assert share_of_definition(known, CustomerId("acme")) == Share(3, 4, 5, 6, paused=True)
