"""Recorded rounds, chosen again by the scheduler that the service runs.

The inputs of a round are on record: the events before it, its slots and instant, and the
definitions in force. So the same choices must come out. This module restores a scheduler from
round 1 or a checkpoint, applies the events, and chooses again. `first_inexact_round` says from
which round on the result may differ because a record is missing or unreadable.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.events.scheduling import (
    InsightAgendasRouted,
    QueueQueried,
    ReadyEvent,
    RoundDecided,
    RoutedAgenda,
)
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.policy.backlog.checkpoint import PageSource, RoundCheckpoint, restore_checkpoint
from pop_stream.policy.fairness.flow import Share, share_of_definition
from pop_stream.policy.insight_scheduler import InsightScheduler


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record, or a part of one, that was skipped because it cannot be read.

    Attributes:
        is_decision: Whether a round may have been on it; else it was an event of `pop.ready`,
            which the scheduler may have been able to read.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    is_decision: bool


def first_inexact_round(
    decisions: Sequence[RoundDecided], unreadable: Iterable[UnreadableRecord]
) -> RoundDecided | None:
    """The first round that may come out otherwise for what is missing; None if none may.

    A round is missing where its number is. An unreadable event of `pop.ready` concerns all
    rounds after it; one from before the first of these rounds does not, as it is part of the
    checkpoint, unless that is round 1.

    Args:
        decisions: The rounds that are chosen again, in order.
        unreadable: What was skipped.
    """
    missed = [one.offset for one in unreadable if not one.is_decision]
    known_from = decisions[0].offset if decisions and decisions[0].round > 1 else -1
    for before, after in pairwise([*decisions[:1], *decisions]):
        is_gap = after.round > before.round + 1
        if is_gap or any(known_from < offset <= after.offset for offset in missed):
            return after
    return None


_NO_BODY: Final = Raw(b"null")


@dataclass(frozen=True, slots=True)
class ReplayStart:
    """The state that a round was chosen from.

    Attributes:
        round: That round.
        begins: Whether the scheduler had just read the insight from its table.
    """

    round: int
    begins: bool
    parts: Sequence[RoundCheckpoint]
    pages: Sequence[tuple[int, Sequence[RoutedAgenda]]]


def replay_starts(
    parts: Iterable[RoundCheckpoint],
    placings: Iterable[tuple[int, InsightAgendasRouted]],
    decisions: Iterable[RoundDecided],
) -> list[ReplayStart]:
    """The checkpoints that a replay can start with, oldest first.

    Left out are those that lack a part, whose round was decided again at another instant, or
    of which an agenda was routed longer ago than the record goes. Takes memory for the pages
    that they name, not for all agendas.

    Args:
        parts: Of all checkpoints of an insight.
        placings: All on record, by offset; read twice at most.
        decisions: The rounds that counted.
    """
    decided = {decision.round: decision for decision in decisions}
    by_try: dict[tuple[int, datetime], dict[int, RoundCheckpoint]] = defaultdict(dict)
    for part in parts:
        by_try[part.round, part.at][part.part] = part
    whole = [
        (decided[number].offset, [known[one] for one in sorted(known)])
        for (number, at), known in sorted(by_try.items())
        if number in decided and decided[number].at == at
        if len(known) == next(iter(known.values())).parts
    ]
    sources = (one for _, some in whole for part in some for one in part.pages)
    pages = _RecordedPages(placings, {one.agenda_id: one.agendas for one in sources})
    found: list[ReplayStart] = []
    for offset, some in whole:
        wanted = [one for part in some for one in part.pages]
        agendas = [(one.number, pages.of(one, offset)) for one in wanted]
        known_pages = [(number, page) for number, page in agendas if page is not None]
        if len(known_pages) == len(wanted):
            found.append(ReplayStart(some[0].round, some[0].begins, some, known_pages))
    return found


class _RecordedPages:
    """The pages that routed agendas became, found by one of their agendas.

    Args:
        placings: By offset; read again where an event has more agendas than the page that it
            became, as some had come before.
        wanted: By agenda that is wanted, how many its page has.
    """

    def __init__(
        self, placings: Iterable[tuple[int, InsightAgendasRouted]], wanted: Mapping[str, int]
    ) -> None:
        self._found: dict[str, list[tuple[int, Sequence[RoutedAgenda]]]] = defaultdict(list)
        self._first: dict[tuple[str, int], int] = {}
        for offset, event in placings if wanted else ():
            agendas = [decode_routed(body) for body in event.agendas]
            named = [one.agenda_id for one in agendas if one.agenda_id in wanted]
            if named:
                without_bodies = [replace(one, agenda=_NO_BODY) for one in agendas]
                for agenda_id in named:
                    self._found[agenda_id].append((offset, without_bodies))
        repeated = {
            (one.agenda_id, one.attempt)
            for name, some in self._found.items()
            for _, agendas in some
            if len(agendas) > wanted[name]
            for one in agendas
        }
        for offset, event in placings if repeated else ():
            for one in map(decode_routed, event.agendas):
                if (one.agenda_id, one.attempt) in repeated:
                    self._first.setdefault((one.agenda_id, one.attempt), offset)

    def of(self, source: PageSource, before: int) -> Sequence[RoutedAgenda] | None:
        """The agendas of a page, routed at this offset or before; None if not on record.

        What came a second time is not in a page, unless the first time had been lost.
        """
        for offset, agendas in reversed(self._found.get(source.agenda_id, ())):
            fresh = [one for one in agendas if self._first_at(one, offset) == offset]
            for candidate in (fresh, agendas) if offset <= before else ():
                if len(candidate) == source.agendas and _contains(candidate, source):
                    return candidate
        return None

    def _first_at(self, agenda: RoutedAgenda, offset: int) -> int:
        return self._first.get((agenda.agenda_id, agenda.attempt), offset)


def _contains(agendas: Sequence[RoutedAgenda], source: PageSource) -> bool:
    return agendas[source.slot].agenda_id == source.agenda_id


@dataclass(frozen=True, slots=True)
class ReadyInput:
    """One event of `pop.ready` about the insight, with the offset of its record.

    Attributes:
        at: When it was written, in seconds since the epoch. The service handled it a little
            later, so a retry may become due in another round than it did.
    """

    offset: int
    event: ReadyEvent
    at: float = 0.0


class ReplayState:
    """The insight's scheduler, under the definitions of each round."""

    def __init__(
        self,
        definitions_at: Callable[[int], Definitions],
        weights: Mapping[CustomerId, float] | None = None,
    ) -> None:
        self._definitions_at = definitions_at
        self._weights = weights or {}
        self._version = -1
        self._definitions = Definitions()
        self._scheduler: InsightScheduler | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no round was replayed yet."""
        return self._scheduler is None

    def scheduler_for(
        self, decision: RoundDecided, start: ReplayStart | None
    ) -> InsightScheduler:
        """As of this round; a new one in the state to start with, where there is one."""
        scheduler = None if start is not None else self._scheduler
        if scheduler is not None and decision.definitions == self._version:
            return scheduler
        self._version = decision.definitions
        self._definitions = self._definitions_at(decision.definitions)
        insight_id = InsightId(decision.insight_id)
        insight = self._definitions.insights.get(insight_id) or Insight(id=insight_id)
        if scheduler is not None:
            scheduler.reconfigure(insight)
            return scheduler
        self._scheduler = scheduler = InsightScheduler(insight, self._share)
        if start is not None:
            restore_checkpoint(scheduler.backlog, start.parts, start.pages)
        return scheduler

    def _share(self, customer_id: CustomerId) -> Share:
        share = share_of_definition(self._definitions, customer_id)
        weight = self._weights.get(customer_id, share.weight)
        return Share(weight, share.max_in_flight, share.rate_per_s, share.burst, share.paused)


def apply_input(scheduler: InsightScheduler, one: ReadyInput) -> None:
    """Apply one event as the service did; queries are left out, for they change nothing."""
    if not isinstance(one.event, QueueQueried):
        scheduler.apply(one.event, one.at)
    scheduler.advance_to(one.at)
    scheduler.drain_outbox()


def discard_writes(scheduler: InsightScheduler) -> None:
    """Drop what the service would write to its table; else it grows with every event."""
    scheduler.backlog.drain_delta()
    scheduler.backlog.drain_emptied()


class InputCursor:
    """The inputs that were not applied yet, in order."""

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
    """The rounds from the first that a replay can start with."""
    starts = {1, *(one.round for one in known)}
    numbers = (number for number, one in enumerate(decisions) if one.round in starts)
    return decisions[next(numbers, len(decisions)) :]


def start_of(
    decision: RoundDecided, known: Iterable[ReplayStart], state: ReplayState
) -> ReplayStart | None:
    """The state to start with, if this round is the first one replayed."""
    if not state.is_empty:
        return None
    return next((one for one in known if one.round == decision.round), None)


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """One round, as recorded and as chosen again."""

    recorded: RoundDecided
    chosen: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the same agendas were chosen in the same order."""
        return self.chosen == self.recorded.chosen


def final_decisions(decisions: Iterable[RoundDecided]) -> list[RoundDecided]:
    """The rounds that counted, in order.

    A crash between the emission of a round and its row makes the scheduler decide it again
    under the same number; the later record is the one that the table has.
    """
    by_round = {decision.round: decision for decision in decisions}
    return [by_round[number] for number in sorted(by_round)]


def replay(
    inputs: Iterable[ReadyInput],
    decisions: Sequence[RoundDecided],
    definitions_at: Callable[[int], Definitions],
    known: Sequence[ReplayStart] = (),
) -> Iterator[ReplayedRound]:
    """Choose every recorded round again, from the first that a replay can start with.

    Where the service restarted, it goes on from the checkpoint of that restart, because leases
    and tokens began again there.

    Args:
        inputs: All of the insight's events that are on record, by offset; read once.
        decisions: As `final_decisions` gives them.
        definitions_at: Definitions by the version that was in force.
        known: States to start with; without one, only round 1.
    """
    state = ReplayState(definitions_at)
    restarts = {one.round: one for one in known if one.begins}
    waiting = InputCursor(inputs)
    for decision in replayable_decisions(decisions, known):
        now = decision.at.timestamp()
        start = restarts.get(decision.round) or start_of(decision, known, state)
        scheduler = state.scheduler_for(decision, start)
        for one in waiting.take_up_to(decision.offset):
            if start is None:
                apply_input(scheduler, one)
        if start is None:
            scheduler.advance_to(now)
        chosen = scheduler.repeat_round(now, decision.slots).chosen
        scheduler.assign_partitions(chosen, scheduler.insight.partitions, now)
        discard_writes(scheduler)
        yield ReplayedRound(decision, tuple(one.agenda_id for one in chosen))
