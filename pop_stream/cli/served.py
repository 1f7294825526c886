"""Puts together what Kafka recorded of an insight and what was seen of its agendas."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pop_stream.bus.history import History
from pop_stream.core.audits.service import Served
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


@dataclass(frozen=True, slots=True)
class Seen:
    """What an observer saw of an agenda that ended; instants in seconds since the epoch.

    Attributes:
        spent_s: Worker-seconds of the attempt that ended it.
    """

    submitted_at: float
    started_at: float
    ended_at: float
    spent_s: float


def since(history: History, at: float) -> History:
    """Without the rounds before an instant: an insight may have had other runs."""
    return replace(
        history, decisions=[one for one in history.decisions if one.at.timestamp() >= at]
    )


def served_in(
    history: History, seen: Mapping[str, Seen]
) -> Iterator[tuple[PlacedAgenda, Served]]:
    """Every emission of what was seen to end, with what the scheduler took it to cost.

    Whoever was placed before a round, by the order of `pop.ready`, waits from that round on:
    when exactly it came before cannot be told and makes no difference. Not to be called
    where an event loop runs.

    Args:
        history: Of one insight.
        seen: By agenda id; others are left out.
    """
    desk = _Desk(CostBook(), {}, {})
    inputs = iter(history.inputs)
    ahead = next(inputs, None)
    for decision in history.decisions:
        at = decision.at.timestamp()
        while ahead is not None and ahead.offset <= decision.offset:
            desk.feed(ahead, at)
            ahead = next(inputs, None)
        yield from _emitted(desk, decision, seen)


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


def _emitted(
    desk: _Desk, decision: RoundDecided, seen: Mapping[str, Seen]
) -> Iterator[tuple[PlacedAgenda, Served]]:
    weights = {one.customer_id: one.weight for one in decision.customers}
    at = decision.at.timestamp()
    for agenda_id in decision.chosen:
        if agenda_id not in desk.placed:  # so old that only the round is still on record
            continue
        agenda, arrived_at = desk.placed[agenda_id]
        desk.out[agenda_id] = agenda
        one = seen.get(agenda_id)
        if one is None:
            continue
        yield (
            agenda,
            Served(
                customer_id=CustomerId(agenda.customer_id),
                submitted_at=one.submitted_at,
                arrived_at=arrived_at,
                emitted_at=at,
                started_at=max(one.started_at, at),
                ended_at=max(one.ended_at, at),
                charged=desk.costs.estimate(
                    agenda.operation_types, agenda.cost_s, agenda.customer_id
                ),
                spent=bounded(one.spent_s),
                weight=weights.get(agenda.customer_id, 1.0),
            ),
        )
