"""What other weights would have done: recorded rounds, chosen again with them."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from pop_stream.lab.replay.replay import (
    InputCursor,
    ReadyInput,
    ReplayStart,
    ReplayState,
    apply_input,
    discard_writes,
    replayable_decisions,
    start_of,
)
from pop_stream.model.definitions import Definitions
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.events.scheduling import (
    InsightAgendasRouted,
    InsightAttemptsReported,
    RoundDecided,
    RoutedAgenda,
    Settlement,
)
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.turn_order import MICROSECONDS
from pop_stream.policy.insight_scheduler import InsightScheduler


@dataclass(slots=True)
class CustomerOutcome:
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
    inputs: Iterable[ReadyInput],
    decisions: Sequence[RoundDecided],
    definitions_at: Callable[[int], Definitions],
    weights: Mapping[CustomerId, float],
    known: Sequence[ReplayStart] = (),
) -> Mapping[str, CustomerOutcome]:
    """Choose the recorded rounds with other weights: same slots, same instants, same costs.

    An agenda that is emitted at another time is taken to cost what it cost then, and to fail
    as it did; each recorded settlement ends the agenda that has been in flight longest.
    Commands, and definitions but for these weights, act when they did.

    Takes memory for the backlog, and for what each attempt that ended had cost.

    Args:
        inputs: As for `replay`, but read twice: an agenda may be emitted before it was.
        decisions: As `final_decisions` gives them.
        definitions_at: Definitions by the version that was in force.
        weights: Of these customers, in place of their own.
        known: States to start with; without one, only round 1.
    """
    ends = _settlements_by_attempt(inputs)
    outcomes: dict[str, CustomerOutcome] = {}
    out: OrderedDict[str, int] = OrderedDict()
    state = ReplayState(definitions_at, weights)
    waiting = InputCursor(inputs)
    for decision in replayable_decisions(decisions, known):
        now = decision.at.timestamp()
        start = start_of(decision, known, state)
        scheduler = state.scheduler_for(decision, start)
        if start is not None:
            out |= _out_longest_first(scheduler.backlog)
        for one in waiting.take_up_to(decision.offset):
            if start is None:
                _apply_other_input(scheduler, one, out, ends)
        if start is None:
            scheduler.advance_to(now)
        discard_writes(scheduler)
        for chosen in scheduler.repeat_round(now, decision.slots).chosen:
            out[chosen.agenda_id] = chosen.attempt
            outcome = outcomes.setdefault(chosen.customer_id, CustomerOutcome())
            page, slot = scheduler.backlog.index.at(chosen.ref)
            outcome.waits_s.append(max(0.0, now - page.arrivals[slot]))
    return outcomes


def recorded_outcomes(
    inputs: Iterable[ReadyInput],
    decisions: Sequence[RoundDecided],
    known: Sequence[ReplayStart] = (),
) -> Mapping[str, CustomerOutcome]:
    """What customers got out of the rounds that `what_if` chooses, as they were."""
    accepted: dict[str, tuple[str, float]] = {}
    outcomes: dict[str, CustomerOutcome] = {}
    waiting = InputCursor(inputs)
    for decision in replayable_decisions(decisions, known):
        now = decision.at.timestamp()
        for one in waiting.take_up_to(decision.offset):
            for agenda, at in _accepted(one):
                accepted[agenda.agenda_id] = agenda.customer_id, at
            for agenda_id in _ended_agendas(one):
                accepted.pop(agenda_id, None)
        for agenda_id in decision.chosen:
            customer_id, at = accepted.get(agenda_id, ("", now))
            outcome = outcomes.setdefault(customer_id, CustomerOutcome())
            outcome.waits_s.append(max(0.0, now - at))
    return outcomes


def _apply_other_input(
    scheduler: InsightScheduler,
    one: ReadyInput,
    out: OrderedDict[str, int],
    ends: Mapping[tuple[str, int], Settlement],
) -> None:
    event = one.event
    if not isinstance(event, InsightAttemptsReported):
        apply_input(scheduler, one)
        return
    backlog = scheduler.backlog
    for _ in event.settlements:
        _settle_longest_out(backlog, out, ends, one.at)
    for command in event.commands:
        backlog.apply_command(command, one.at)
    scheduler.advance_to(one.at)
    scheduler.drain_outbox()


def _settle_longest_out(
    backlog: Backlog,
    out: OrderedDict[str, int],
    ends: Mapping[tuple[str, int], Settlement],
    now: float,
) -> None:
    """End the attempt that is in flight longest, as it ended on record.

    One that a command has ended already is skipped.
    """
    while out:
        agenda_id, attempt = out.popitem(last=False)
        known = ends.get((agenda_id, attempt))
        spent_s = _as_reserved(backlog, agenda_id) if known is None else known.spent_s
        end = Settlement(
            agenda_id=agenda_id, attempt=attempt, outcome="succeeded", spent_s=spent_s
        )
        if backlog.settle(known if known and known.outcome == "failed" else end, now):
            return


def _as_reserved(backlog: Backlog, agenda_id: str) -> dict[str, float]:
    """What an attempt that ended in no record is taken to have cost."""
    ref = backlog.index.find(agenda_id)
    record = None if ref is None else backlog.index.in_flight_record(ref)
    return {} if record is None else {"": record.charged / MICROSECONDS}


def _out_longest_first(backlog: Backlog) -> dict[str, int]:
    """Attempts in flight, those of the oldest pages first."""
    index = backlog.index
    places = (
        (index.in_flight_record(ref), one)
        for one, ref in sorted(index.refs().items(), key=itemgetter(1))
    )
    return {one: note.attempt for note, one in places if note is not None}


def _settlements_by_attempt(inputs: Iterable[ReadyInput]) -> dict[tuple[str, int], Settlement]:
    return {
        (settlement.agenda_id, settlement.attempt): settlement
        for one in inputs
        if isinstance(one.event, InsightAttemptsReported)
        for settlement in one.event.settlements
    }


def _accepted(one: ReadyInput) -> Iterator[tuple[RoutedAgenda, float]]:
    if isinstance(one.event, InsightAgendasRouted):
        for placed in map(decode_routed, one.event.agendas):
            yield placed, placed.accepted_at.timestamp()


def _ended_agendas(one: ReadyInput) -> Iterator[str]:
    """Agendas that are not chosen again."""
    if isinstance(one.event, InsightAttemptsReported):
        for settlement in one.event.settlements:
            if settlement.outcome == "succeeded":
                yield settlement.agenda_id
