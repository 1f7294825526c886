"""An insight's backlog on a stage: fed with what is on record, as it was defined then."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pop_stream.core.backlog import hearing
from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.definitions.definitions import Definitions, Insight
from pop_stream.core.events import (
    InsightAttemptsReported,
    InsightAgendasRouted,
    InsightTick,
    ReadyEvent,
    RoundDecided,
    decode_routed,
)
from pop_stream.core.fairness.flow import Share
from pop_stream.core.simulation.beginnings import ReplayStart
from pop_stream.core.values.ids import CustomerId, InsightId


@dataclass(frozen=True, slots=True)
class ReadyInput:
    """One event of `pop.ready` about the insight, with the offset of its record.

    Attributes:
        at: When it was written, in seconds since the epoch. The scheduler handled it a
            little later, so a retry may come due in another round than it did.
    """

    offset: int
    event: ReadyEvent
    at: float = 0.0


def share_of_definition(definitions: Definitions, customer_id: CustomerId) -> Share:
    """A customer's share as its definition says."""
    customer = definitions.customer(customer_id)
    return Share(
        weight=customer.weight,
        max_in_flight=customer.max_in_flight,
        rate_per_s=customer.rate_per_s,
        burst=customer.burst,
        paused=customer.paused,
    )


class ReplayState:
    """The backlog under the definitions of each round."""

    def __init__(
        self,
        definitions_at: Callable[[int], Definitions],
        weights: Mapping[CustomerId, float] | None = None,
    ) -> None:
        self._definitions_at = definitions_at
        self._weights = weights or {}
        self._version = -1
        self._definitions = Definitions()
        self._backlog: Backlog | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been begun with."""
        return self._backlog is None

    def backlog_for(self, decision: RoundDecided, begin: ReplayStart | None) -> Backlog:
        """As of this round; in the state to begin with, where there is one."""
        if begin is not None:
            self._backlog = None
        if self._backlog is None or decision.definitions != self._version:
            self._version = decision.definitions
            self._definitions = self._definitions_at(decision.definitions)
            insight_id = InsightId(decision.insight_id)
            insight = self._definitions.insights.get(insight_id) or Insight(id=insight_id)
            if self._backlog is None:
                self._backlog = Backlog(insight, self._share)
                if begin is not None:
                    begin.restore_into(self._backlog)
            else:
                self._backlog.reconfigure(insight)
        return self._backlog

    def _share(self, customer_id: CustomerId) -> Share:
        share = share_of_definition(self._definitions, customer_id)
        weight = self._weights.get(customer_id, share.weight)
        return Share(weight, share.max_in_flight, share.rate_per_s, share.burst, share.paused)


def apply_input(backlog: Backlog, one: ReadyInput) -> None:
    """Let the backlog hear one event, as the scheduler did."""
    match one.event:
        case InsightAgendasRouted(agendas=bodies, origins=origins):
            agendas = [decode_routed(body) for body in bodies]
            fresh = backlog.news(agendas, origins)
            if fresh:
                backlog.place([agendas[index] for index in fresh], one.at)
        case InsightAttemptsReported():
            hearing.apply_relayed(backlog, one.event, one.at)
        case InsightTick():
            hearing.apply_tick(backlog, one.event, one.at)
        case _:
            pass
    backlog.apply_due(one.at)
    backlog.drain_outbox()


def discard_writes(backlog: Backlog) -> None:
    """Let go of what only a scheduler would write down; it grows with all that happens."""
    backlog.drain_delta()
    backlog.drain_emptied()


class InputCursor:
    """Inputs that are yet to be fed, in order."""

    def __init__(self, inputs: Iterable[ReadyInput]) -> None:
        self._inputs = iter(inputs)
        self._next = next(self._inputs, None)

    def take_up_to(self, offset: int) -> Iterator[ReadyInput]:
        """Those up to this one that were not taken before."""
        while self._next is not None and self._next.offset <= offset:
            yield self._next
            self._next = next(self._inputs, None)


def replayable_decisions(
    decisions: Sequence[RoundDecided], known: Iterable[ReplayStart]
) -> Sequence[RoundDecided]:
    """From the first round on that can be begun with."""
    starts = {1, *(one.round for one in known)}
    numbers = (number for number, one in enumerate(decisions) if one.round in starts)
    return decisions[next(numbers, len(decisions)) :]


def start_of(
    decision: RoundDecided, known: Iterable[ReplayStart], state: ReplayState
) -> ReplayStart | None:
    """What to begin this round with, if it is the first."""
    if not state.is_empty:
        return None
    return next((one for one in known if one.round == decision.round), None)
