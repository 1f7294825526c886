"""Yesterday again: recorded rounds chosen anew, as they were or with other weights.

The inputs of the policy are all on record: what was placed, claimed and settled, how many
slots each round had and when, and which definitions were in force. So the same choices must
come out; and with other weights one sees what they would have changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pop_stream.core.backlog import hearing
from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.definitions.definitions import Definitions, Insight
from pop_stream.core.events import (
    InsightNoted,
    InsightPlaced,
    InsightTick,
    ReadyEvent,
    RoundDecided,
    Settlement,
    decode_placed,
)
from pop_stream.core.fairness.flow import Share
from pop_stream.core.values.ids import CustomerId, InsightId


@dataclass(frozen=True, slots=True)
class Input:
    """One event of `pop.ready` about the insight, with the offset of its record.

    Attributes:
        at: When it was written, in seconds since the epoch. The scheduler handled it a
            little later, so a retry may come due in another round than it did.
    """

    offset: int
    event: ReadyEvent
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """One round, as recorded and as chosen again."""

    recorded: RoundDecided
    chosen: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the same agendas were chosen in the same order."""
        return self.chosen == self.recorded.chosen


def share_from(definitions: Definitions, customer_id: CustomerId) -> Share:
    """A customer's share as its definition says."""
    customer = definitions.customer(customer_id)
    return Share(
        weight=customer.weight,
        max_in_flight=customer.max_in_flight,
        rate_per_s=customer.rate_per_s,
        burst=customer.burst,
        paused=customer.paused,
    )


def last_words(decisions: Iterable[RoundDecided]) -> list[RoundDecided]:
    """The rounds that counted, in order.

    A round that was emitted but not kept, because of a crash in between, was decided again
    under the same number; the later record is what the table knows.
    """
    by_round = {decision.round: decision for decision in decisions}
    return [by_round[number] for number in sorted(by_round)]


def replay(
    inputs: Sequence[Input],
    decisions: Sequence[RoundDecided],
    definitions_at: Callable[[int], Definitions],
) -> Iterator[Replayed]:
    """Choose every recorded round again.

    Args:
        inputs: All of the insight's events from its first on, by offset.
        decisions: From round 1 on, as `last_words` gives them.
        definitions_at: Definitions by the version that was in force.
    """
    stage = _Stage(definitions_at)
    waiting = iter(inputs)
    pending = next(waiting, None)
    for decision in decisions:
        backlog = stage.backlog_for(decision)
        while pending is not None and pending.offset <= decision.offset:
            _feed(backlog, pending)
            pending = next(waiting, None)
        now = decision.at.timestamp()
        backlog.wake(now)
        chosen = backlog.choose(decision.slots, now)
        yield Replayed(decision, tuple(one.agenda_id for one in chosen))


@dataclass(slots=True)
class Outcome:
    """What a customer got out of some rounds.

    Attributes:
        waits_s: From acceptance to emission, one an agenda, in order of emission.
    """

    waits_s: list[float] = field(default_factory=list)

    @property
    def mean_wait_s(self) -> float:
        """Mean wait; 0 if nothing was emitted."""
        return sum(self.waits_s) / len(self.waits_s) if self.waits_s else 0.0


def what_if(
    inputs: Sequence[Input],
    decisions: Sequence[RoundDecided],
    definitions_at: Callable[[int], Definitions],
    weights: Mapping[str, float],
) -> Mapping[str, Outcome]:
    """Choose the recorded rounds with other weights: same slots, same instants, same costs.

    An agenda that is emitted at another time is taken to cost what it cost then, and the
    slot of a recorded settlement is given back by the agenda that has been out longest.
    """
    spent = _spent(inputs)
    accepted = _accepted(inputs)
    outcomes: dict[str, Outcome] = {}
    out: dict[str, int] = {}
    stage = _Stage(definitions_at, weights)
    waiting = iter(inputs)
    pending = next(waiting, None)
    for decision in decisions:
        backlog = stage.backlog_for(decision)
        while pending is not None and pending.offset <= decision.offset:
            _feed_other(backlog, pending, out, spent)
            pending = next(waiting, None)
        now = decision.at.timestamp()
        backlog.wake(now)
        for one in backlog.choose(decision.slots, now):
            out[one.agenda_id] = one.attempt
            outcome = outcomes.setdefault(one.customer_id, Outcome())
            outcome.waits_s.append(max(0.0, now - accepted.get(one.agenda_id, now)))
    return outcomes


def recorded_outcomes(
    inputs: Sequence[Input], decisions: Iterable[RoundDecided]
) -> Mapping[str, Outcome]:
    """What customers got out of the rounds as they were."""
    accepted, customers = _accepted(inputs), _customers(inputs)
    outcomes: dict[str, Outcome] = {}
    for decision in decisions:
        now = decision.at.timestamp()
        for agenda_id in decision.chosen:
            outcome = outcomes.setdefault(customers.get(agenda_id, ""), Outcome())
            outcome.waits_s.append(max(0.0, now - accepted.get(agenda_id, now)))
    return outcomes


class _Stage:
    """The backlog under the definitions of each round."""

    def __init__(
        self,
        definitions_at: Callable[[int], Definitions],
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._definitions_at = definitions_at
        self._weights = weights or {}
        self._version = -1
        self._definitions = Definitions()
        self._backlog: Backlog | None = None

    def backlog_for(self, decision: RoundDecided) -> Backlog:
        if self._backlog is None or decision.definitions != self._version:
            self._version = decision.definitions
            self._definitions = self._definitions_at(decision.definitions)
            insight_id = InsightId(decision.insight_id)
            insight = self._definitions.insights.get(insight_id) or Insight(id=insight_id)
            if self._backlog is None:
                self._backlog = Backlog(insight, self._share)
            else:
                self._backlog.reconfigure(insight)
        return self._backlog

    def _share(self, customer_id: CustomerId) -> Share:
        share = share_from(self._definitions, customer_id)
        weight = self._weights.get(customer_id, share.weight)
        return Share(weight, share.max_in_flight, share.rate_per_s, share.burst, share.paused)


def _feed(backlog: Backlog, one: Input) -> None:
    match one.event:
        case InsightPlaced(agendas=bodies, origins=origins):
            agendas = [decode_placed(body) for body in bodies]
            fresh = backlog.news(agendas, origins)
            if fresh:
                backlog.place([agendas[index] for index in fresh], one.at)
        case InsightNoted():
            hearing.hear(backlog, one.event, one.at)
        case InsightTick():
            hearing.look_again(backlog, one.event, one.at)
        case _:
            pass
    backlog.take_told()


def _feed_other(
    backlog: Backlog,
    one: Input,
    out: dict[str, int],
    spent: Mapping[str, Mapping[str, float]],
) -> None:
    event = one.event
    if not isinstance(event, InsightNoted):
        _feed(backlog, one)
        return
    for _ in event.settlements:
        if not out:
            return
        agenda_id = next(iter(out))
        settlement = Settlement(
            agenda_id=agenda_id,
            attempt=out.pop(agenda_id),
            outcome="succeeded",
            spent_s=dict(spent.get(agenda_id, {})),
        )
        backlog.settle(settlement)


def _spent(inputs: Iterable[Input]) -> dict[str, Mapping[str, float]]:
    return {
        settlement.agenda_id: settlement.spent_s
        for one in inputs
        if isinstance(one.event, InsightNoted)
        for settlement in one.event.settlements
    }


def _accepted(inputs: Iterable[Input]) -> dict[str, float]:
    return {
        placed.agenda_id: placed.accepted_at.timestamp()
        for one in inputs
        if isinstance(one.event, InsightPlaced)
        for placed in map(decode_placed, one.event.agendas)
    }


def _customers(inputs: Iterable[Input]) -> dict[str, str]:
    return {
        placed.agenda_id: placed.customer_id
        for one in inputs
        if isinstance(one.event, InsightPlaced)
        for placed in map(decode_placed, one.event.agendas)
    }
