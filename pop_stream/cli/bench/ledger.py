"""Puts together what Kafka recorded of an insight and what a witness saw of its agendas."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pop_stream.bus.history import History, read_history
from pop_stream.cli.bench.load import Load
from pop_stream.cli.bench.witness import Course
from pop_stream.core.audits.service import Served, Weighed
from pop_stream.core.backlog.costs import CostBook, bounded
from pop_stream.core.events import (
    InsightNoted,
    InsightPlaced,
    PlacedAgenda,
    RoundDecided,
    decode_placed,
)
from pop_stream.core.simulation.stage import Input
from pop_stream.core.values.ids import CustomerId
from pop_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class Attempt:
    """One agenda's way.

    Attributes:
        agenda_id: Whose attempt; one that a crash made the scheduler repeat has two.
        accepted_at: When intake had it, in seconds since the epoch.
        asked_s: How long it was told to run. What it took beyond that, the machine cost it:
            with sleeps of milliseconds that is noise no scheduler could foresee.
    """

    agenda_id: str
    served: Served
    accepted_at: float
    asked_s: float


@dataclass(slots=True)
class _Desk:
    """What the scheduler knew at each of its rounds, gathered again from its inputs.

    Attributes:
        placed: Agendas that wait, with the round from which on they could be chosen.
    """

    costs: CostBook
    placed: dict[str, tuple[PlacedAgenda, float]]
    out: dict[str, PlacedAgenda]

    def feed(self, one: Input, at: float) -> None:
        match one.event:
            case InsightPlaced(agendas=agendas):
                for agenda in map(decode_placed, agendas):
                    self.placed.setdefault(agenda.agenda_id, (agenda, at))
            case InsightNoted(settlements=settlements):
                for settlement in settlements:
                    ended = self.out.pop(settlement.agenda_id, None)
                    if ended is not None:
                        self._learn(ended, settlement.spent_s)
            case _:
                pass

    def _learn(self, ended: PlacedAgenda, spent_s: Mapping[str, float]) -> None:
        self.costs.learn(ended.operation_types, spent_s)
        if ended.cost_s is not None and spent_s:
            spent = sum(spent_s.values())
            self.costs.compare(ended.customer_id, declared=ended.cost_s, spent=spent)


def recorded(
    settings: Settings, insight_id: str, courses: Mapping[str, Course], load: Load
) -> tuple[History, list[Attempt]]:
    """An insight's record, and its attempts; not to be called where an event loop runs."""
    history = read_history(settings, insight_id)
    return history, [*attempts(history, courses, load)]


def since(history: History, at: float) -> History:
    """Without the rounds before an instant: an insight may have had other runs."""
    return replace(
        history, decisions=[one for one in history.decisions if one.at.timestamp() >= at]
    )


def depth_of(history: History) -> int:
    """Most agendas that the scheduler held to be out at once."""
    return max((one.in_flight + len(one.chosen) for one in history.decisions), default=0)


def attempts(history: History, courses: Mapping[str, Course], load: Load) -> Iterator[Attempt]:
    """Every agenda that was submitted and ended, with what the scheduler took it to cost.

    Whoever was placed before a round, by the order of `pop.ready`, waits from that round on:
    when exactly it came before cannot be told and makes no difference.
    """
    desk = _Desk(CostBook(), {}, {})
    inputs = iter(history.inputs)
    ahead = next(inputs, None)
    for decision in history.decisions:
        at = decision.at.timestamp()
        while ahead is not None and ahead.offset <= decision.offset:
            desk.feed(ahead, at)
            ahead = next(inputs, None)
        yield from _emitted(desk, decision, courses, load)


def weighings(history: History) -> Iterator[Weighed]:
    """Weights that rounds knew, whenever they had become others."""
    known: dict[str, float] = {}
    for decision in history.decisions:
        for one in decision.customers:
            if known.get(one.customer_id, 1.0) != one.weight:
                known[one.customer_id] = one.weight
                at = decision.at.timestamp()
                yield Weighed(at, CustomerId(one.customer_id), one.weight)


def _emitted(
    desk: _Desk,
    decision: RoundDecided,
    courses: Mapping[str, Course],
    load: Load,
) -> Iterator[Attempt]:
    weights = {one.customer_id: one.weight for one in decision.customers}
    at = decision.at.timestamp()
    for agenda_id in decision.chosen:
        agenda, arrived_at = desk.placed[agenda_id]
        desk.out[agenda_id] = agenda
        course = courses.get(agenda_id)
        if agenda_id not in load.submitted_at or course is None or not course.ended_at:
            continue
        one = Served(
            customer_id=CustomerId(agenda.customer_id),
            submitted_at=load.submitted_at[agenda_id],
            arrived_at=arrived_at,
            emitted_at=at,
            started_at=max(course.started_at or course.claimed_at, at),
            ended_at=max(course.ended_at, at),
            charged=desk.costs.estimate(
                agenda.operation_types, agenda.cost_s, agenda.customer_id
            ),
            spent=bounded(course.spent_s),
            weight=weights.get(agenda.customer_id, 1.0),
        )
        asked_s = load.arrival(agenda_id).runtime_s
        yield Attempt(agenda_id, one, agenda.accepted_at.timestamp(), asked_s)
