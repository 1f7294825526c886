"""Makes a log of service of a real run, of the topics' record and what an observer saw."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pop_stream.lab.fairness_metrics.service_log import ServedAttempt
from pop_stream.lab.replay.decisions_log import DecisionHistory
from pop_stream.lab.replay.replay import ReadyInput
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.events.scheduling import (
    InsightAgendasRouted,
    InsightAttemptsReported,
    RoundDecided,
    RoutedAgenda,
    Settlement,
)
from pop_stream.model.ids import CustomerId
from pop_stream.policy.fairness.cost_model import CostModel, clamp_cost


@dataclass(frozen=True, slots=True)
class ObservedAgenda:
    """What an observer saw of an agenda that ended; instants in seconds since the epoch.

    Attributes:
        spent_s: Worker-seconds of the attempt that ended it.
    """

    submitted_at: float
    started_at: float
    ended_at: float
    spent_s: float


def decisions_since(history: DecisionHistory, at: float) -> DecisionHistory:
    """Without the rounds before an instant: an insight may have had other runs."""
    return replace(
        history, decisions=[one for one in history.decisions if one.at.timestamp() >= at]
    )


def served_attempts(
    history: DecisionHistory, observed: Mapping[str, ObservedAgenda]
) -> Iterator[tuple[RoutedAgenda, ServedAttempt]]:
    """Every emission of what was seen to end, with what the scheduler took it to cost.

    An agenda that was routed before a round, by the order of `pop.ready`, waits from that round
    on: when exactly it came before is not on record and makes no difference. Not to be called
    where an event loop runs.

    Args:
        history: Of one insight.
        observed: By agenda id; others are left out.
    """
    recorded = _RecordedScheduler(CostModel(), {}, {})
    inputs = iter(history.inputs)
    ahead = next(inputs, None)
    for decision in history.decisions:
        at = decision.at.timestamp()
        while ahead is not None and ahead.offset <= decision.offset:
            recorded.apply(ahead, at)
            ahead = next(inputs, None)
        yield from _served_of_round(recorded, decision, observed)


@dataclass(slots=True)
class _RecordedScheduler:
    """What the scheduler knew at each of its rounds, gathered again from its inputs.

    Attributes:
        placed: Agendas that wait, with the round from which on they could be chosen.
    """

    costs: CostModel
    placed: dict[str, tuple[RoutedAgenda, float]]
    out: dict[str, RoutedAgenda]

    def apply(self, one: ReadyInput, at: float) -> None:
        match one.event:
            case InsightAgendasRouted(agendas=agendas):
                for agenda in map(decode_routed, agendas):
                    self.placed.setdefault(agenda.agenda_id, (agenda, at))
            case InsightAttemptsReported(settlements=settlements):
                for settlement in settlements:
                    ended = self.out.pop(settlement.agenda_id, None)
                    if ended is not None:
                        self._learn(ended, settlement)
            case _:
                pass

    def _learn(self, ended: RoutedAgenda, settlement: Settlement) -> None:
        spent_s, succeeded = settlement.spent_s, settlement.outcome == "succeeded"
        if not spent_s:
            return
        costs, customer_id, spent = self.costs, ended.customer_id, sum(spent_s.values())
        if succeeded:
            costs.learn(ended.operation_types, spent_s)
        costs.learn_usual(customer_id, clamp_cost(spent), succeeded=succeeded)
        if ended.cost_s is not None:
            costs.learn_ratio(
                customer_id, declared=ended.cost_s, spent=spent, succeeded=succeeded
            )


def _served_of_round(
    recorded: _RecordedScheduler, decision: RoundDecided, observed: Mapping[str, ObservedAgenda]
) -> Iterator[tuple[RoutedAgenda, ServedAttempt]]:
    weights = {one.customer_id: one.weight for one in decision.customers}
    at = decision.at.timestamp()
    for agenda_id in decision.chosen:
        if agenda_id not in recorded.placed:  # so old that only the round is still on record
            continue
        agenda, arrived_at = recorded.placed[agenda_id]
        recorded.out[agenda_id] = agenda
        one = observed.get(agenda_id)
        if one is None:
            continue
        yield (
            agenda,
            ServedAttempt(
                customer_id=CustomerId(agenda.customer_id),
                submitted_at=one.submitted_at,
                arrived_at=arrived_at,
                emitted_at=at,
                started_at=max(one.started_at, at),
                ended_at=max(one.ended_at, at),
                charged=recorded.costs.estimate(
                    agenda.operation_types, agenda.cost_s, agenda.customer_id
                ).cost_s,
                spent=clamp_cost(one.spent_s),
                weight=weights.get(agenda.customer_id, 1.0),
            ),
        )
