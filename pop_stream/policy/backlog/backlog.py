"""One insight's backlog as others call it: place, choose, claim, settle, command.

The bodies of agendas stay in the table; here are ids, customers, costs and states. Each change
is also collected in a `Delta` of absolute values, so that the pages with all deltas applied in
order are the state after a restart. The package says what survives and what does not.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from pop_stream.model.definitions import Insight
from pop_stream.model.events.base import HealthValue
from pop_stream.model.events.scheduling import (
    Command,
    Origin,
    RoutedAgenda,
    Settlement,
)
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.agenda_index import (
    EMITTED,
    HELD,
    READY,
    WAITING,
    AgendaIndex,
    AgendaPosition,
    BacklogPage,
    ChosenAgenda,
    ref_of,
)
from pop_stream.policy.backlog.attempts import Attempts
from pop_stream.policy.backlog.batches import Batches
from pop_stream.policy.backlog.commands import BacklogCommands
from pop_stream.policy.backlog.duplicates import Duplicates
from pop_stream.policy.backlog.flow_counts import IdleRunnerCounts
from pop_stream.policy.backlog.health import HealthTracker
from pop_stream.policy.backlog.leases import EmittedOffsets
from pop_stream.policy.backlog.outbox import BacklogOutbox, OutboxBatch
from pop_stream.policy.backlog.snapshot import BacklogSnapshot
from pop_stream.policy.backlog.state import BacklogState
from pop_stream.policy.delta import Delta
from pop_stream.policy.fairness.cost_model import CostModel
from pop_stream.policy.fairness.customer_queue import ref_in
from pop_stream.policy.fairness.flow import Pick, Share
from pop_stream.policy.fairness.queue import FairQueue
from pop_stream.policy.fairness.turn_order import MICROSECONDS

_GAIN: Final = 1 / 64


class MeanWait:
    """A running mean of how long agendas waited for their emission; decides nothing.

    Attributes:
        mean_s: Over the last 64 or so, of whichever customers, in seconds; 0 before any.
    """

    __slots__ = ("mean_s",)

    def __init__(self) -> None:
        self.mean_s = 0.0

    def note(self, wait_s: float) -> None:
        """Count an agenda that is emitted after such a wait."""
        self.mean_s += _GAIN * (wait_s - self.mean_s)


MAX_START_WAITS: Final = 4_096
"""More than the relay reports in one event."""


class Backlog:
    """All agendas of one insight that have not ended; see the package.

    Instants are in seconds since the epoch, on the scheduler's clock.

    Args:
        insight: Its algorithm, leases and retries, and whether priorities are strict.
        share_of: A customer's present share.

    Attributes:
        attempts: What is out; its lease clocks are in memory only.
        commands: Commands, and what is due.
        duplicates: What agendas with a key are duplicates of.
        batches: Which agendas bring others along.
        sync_matched: Claims for which a runner stood idle, since the backlog was loaded.
        sync_matched_s: Seconds from the emissions of these to the reports of their claims, in
            all.
        idle: Idle runners by puller; in memory only.
        mean_wait: From acceptance to emission; in memory only.
        start_waits: Agendas whose first attempt was claimed, with their wait up to it, for
            whoever counts them to take out; of those that nobody takes the newest are kept.
    """

    def __init__(self, insight: Insight, share_of: Callable[[CustomerId], Share]) -> None:
        self._backlog = BacklogState(insight, share_of)
        self.attempts = Attempts(self._backlog)
        self.commands = BacklogCommands(self._backlog)
        self.duplicates = Duplicates(self._backlog, self.commands)
        self.batches = Batches(self._backlog)
        self.sync_matched = 0
        self.sync_matched_s = 0.0
        self.idle = IdleRunnerCounts()
        self.mean_wait = MeanWait()
        self._lost_again: dict[tuple[str, int], float] = {}
        self.start_waits: deque[tuple[str, float]] = deque(maxlen=MAX_START_WAITS)
        self._snapshot = BacklogSnapshot(self._backlog)

    @property
    def insight(self) -> Insight:
        """Its definition."""
        return self._backlog.insight

    @property
    def queue(self) -> FairQueue:
        """The agendas that are ready, in the order of turns."""
        return self._backlog.queue

    @property
    def costs(self) -> CostModel:
        """What operations cost, as learned from those that succeeded."""
        return self._backlog.costs

    @property
    def index(self) -> AgendaIndex:
        """What each agenda is."""
        return self._backlog.index

    @property
    def health(self) -> HealthTracker:
        """How attempts ended lately, and what is reported from outside."""
        return self._backlog.health

    @property
    def ready(self) -> int:
        """Agendas that wait for their turn."""
        return self.queue.ready

    @property
    def waiting(self) -> int:
        """Agendas that wait for an instant."""
        return self.index.count(WAITING)

    @property
    def held(self) -> int:
        """Agendas that wait for their release."""
        return self.index.count(HELD)

    @property
    def in_flight(self) -> int:
        """Agendas emitted and not settled."""
        return self.queue.in_flight

    @property
    def unclaimed(self) -> int:
        """Agendas emitted and not claimed."""
        return self.index.count(EMITTED)

    @property
    def emitted_offsets(self) -> EmittedOffsets:
        """Where the unclaimed ones lie on the topic; register each chosen agenda there."""
        return self._backlog.emitted_offsets

    @property
    def emitted(self) -> int:
        """Agendas ever emitted."""
        return self._backlog.emitted

    @property
    def claimed(self) -> int:
        """Agendas ever claimed."""
        return self._backlog.claimed

    @property
    def rounds(self) -> int:
        """Rounds that chose at least one agenda."""
        return self._backlog.rounds

    @property
    def placed_offsets(self) -> Mapping[str, tuple[int, int]]:
        """By partition of `pop.submissions`, offset and index of the last agenda placed."""
        offsets = self._snapshot.origins.as_dict()
        return {partition: at for partition, at in offsets.items() if int(partition) >= 0}

    @property
    def next_page(self) -> int:
        """The number of the next page."""
        return self.index.next_number

    # ---- arrivals ----

    def filter_new(
        self, agendas: Sequence[RoutedAgenda], origins: Sequence[Origin], now: float = 0.0
    ) -> list[int]:
        """Indices of the agendas that were not placed before, by origin, by id and by series.

        A rerun that has ended already is not new either: of two requests for the same rerun
        the second comes too late.

        An agenda whose series is past it, and which is not here, ends cancelled: either it
        ended before, and that changes nothing, or it came too late.

        The call records origins and positions: a second one with the same agendas returns none.
        So call it once, and `place` what it returns.
        """
        fresh: dict[str, int] = {}
        for index, agenda in enumerate(agendas):
            agenda_id = agenda.agenda_id
            is_new = (
                self._snapshot.record_if_new(origins[index])
                and self.index.find(agenda_id) is None
                and not self._has_lost(agenda)
            )
            if not is_new or agenda_id in fresh:
                continue
            if self._backlog.reruns.is_over(agenda_id, agenda.attempt):
                continue
            if self._backlog.series.record_if_new(agenda):
                fresh[agenda_id] = index
            else:
                message = self._backlog.series.reason_against(agenda)
                self.outbox.ended(
                    agenda_id, agenda.attempt, now, reason="cancelled", message=message
                )
        return [*fresh.values()]

    def _has_lost(self, agenda: RoutedAgenda) -> bool:
        """Whether it ended as a duplicate when its page was read again after a crash.

        The event that brought the page comes again then. Placed once more it might win.
        """
        arrived_at = self._lost_again.get((agenda.agenda_id, agenda.attempt))
        return arrived_at is not None and (
            abs(agenda.accepted_at.timestamp() - arrived_at) < _SAME_ARRIVAL_S
        )

    def place(self, agendas: Sequence[RoutedAgenda], now: float = 0.0) -> int:
        """Add a page of new agendas, at most `PAGE_SLOTS`; returns its number."""
        page = self.index.add(self.next_page, agendas, latest=now or inf)
        self.queue.advance_to(now)
        self._add_page(page, now)
        self._snapshot.mark_changed()
        return page.number

    def report_health(self, source: str, value: HealthValue, now: float) -> None:
        """Take up a value of the insight's health that is put from outside."""
        self.health.report(source, value, now)
        self._snapshot.mark_changed()

    # ---- emission ----

    def choose(self, slots: int, now: float = 0.0) -> list[ChosenAgenda]:
        """Choose up to `slots` agendas in fair order; from then on they are in flight.

        With zero slots or less, none.
        """
        chosen: list[ChosenAgenda] = []
        backlog, queue = self._backlog, self.queue
        while len(chosen) < slots:
            if (pick := queue.pick(backlog.cost, now)) is None:
                break
            chosen.append(self._emit(pick, now))
            for companion in self.batches.companions(pick, slots - len(chosen)):
                chosen.append(self._emit(companion, now))
        backlog.rounds += bool(chosen)
        return chosen

    def _emit(self, pick: Pick, now: float) -> ChosenAgenda:
        attempt = self._backlog.emit(pick).attempt
        page, slot = self.index.at(pick.ref)
        wait_s = max(0.0, now - page.arrivals[slot])
        self.mean_wait.note(wait_s)
        self.queue.flow(pick.customer_id).note_emission(
            cost=pick.reservation.charged / MICROSECONDS, wait_s=wait_s, now=now
        )
        first_wait_s = page.wait_s(slot, now) if attempt == 1 else None
        return ChosenAgenda(pick.ref, page.ids[slot], pick.customer_id, attempt, first_wait_s)

    def claim(
        self,
        agenda_id: str,
        attempt: int,
        now: float = 0.0,
        relayed_at: float | None = None,
        *,
        sync_matched: bool = False,
        deferrals: int = 0,
    ) -> bool:
        """A puller has claimed the attempt; False if it is not in flight and unclaimed."""
        ref = self.index.find(agenda_id)
        emitted_at = None
        if sync_matched and ref is not None:
            emitted_at = self._backlog.emitted_offsets.emitted_at(ref)
        is_taken = self.attempts.claim(agenda_id, attempt, now, relayed_at, deferrals=deferrals)
        if is_taken and sync_matched:
            self.sync_matched += 1
            self.sync_matched_s += 0.0 if emitted_at is None else max(0.0, now - emitted_at)
        if is_taken and attempt == 1 and ref is not None:
            page, slot = self.index.at(ref)
            wait_s = page.wait_s(slot, now if relayed_at is None else relayed_at)
            if wait_s is not None:
                self.start_waits.append((agenda_id, wait_s))
        return is_taken

    def drain_start_waits(self) -> Sequence[tuple[str, float]]:
        """Agendas whose first attempt was claimed since the last call, and their waits."""
        waits = [*self.start_waits]
        self.start_waits.clear()
        return waits

    def oldest_wait_s(self, now: float) -> float:
        """For how long the oldest agenda that is ready has been accepted; 0 if none is ready.

        It looks at pages in the order in which they were placed, so it may be off by what two
        of them differ in.
        """
        for page in self.index.pages():
            if READY in page.states:
                ready = zip(page.arrivals, page.states, strict=True)
                return max(0.0, now - min(at for at, state in ready if state == READY))
        return 0.0

    def settle(
        self, settlement: Settlement, now: float = 0.0, relayed_at: float | None = None
    ) -> bool:
        """An attempt ended; False if it is not in flight: reported before, or outdated."""
        self.queue.advance_to(now)
        return self.attempts.settle(settlement, now, relayed_at)

    def apply_command(self, command: Command, now: float = 0.0) -> bool:
        """Do what a person wants; False if that changes nothing, or was applied before."""
        if command.origin is not None and not self._snapshot.record_if_new(command.origin):
            return False
        return self.commands.apply(command, now)

    def apply_due(self, now: float) -> int:
        """Let happen what is due: retries, start instants, deadlines; returns how many."""
        return self.commands.apply_due(now)

    def drain_outbox(self) -> OutboxBatch:
        """What is to be published since the last call, in the order in which it happened."""
        return self.outbox.take()

    @property
    def outbox(self) -> BacklogOutbox:
        """What is to be published."""
        return self._backlog.outbox

    # ---- reads ----

    def position_of(self, agenda_id: str) -> AgendaPosition | None:
        """Where an agenda is; None if it has ended or was never placed."""
        backlog = self._backlog
        ref = backlog.index.find(agenda_id)
        if ref is None:
            return None
        return AgendaPosition(
            flow=self.queue.flow(backlog.customer_id(ref)),
            state=backlog.index.state(ref),
            entry=backlog.entry(ref),
            cost=backlog.cost(ref).cost_s,
            attempt=backlog.index.attempt(ref),
            overrides=backlog.index.overrides(ref),
        )

    def cost_of(self, entry: int) -> float:
        """Worker-seconds of a waiting agenda, by its entry in the queue."""
        return self._backlog.cost(ref_in(entry)).cost_s

    # ---- persistence ----

    def drain_delta(self) -> Delta | None:
        """What changed since the last call, or None."""
        return self._snapshot.drain_delta()

    def drain_emptied(self) -> list[int]:
        """Numbers of the pages that became empty since the last call."""
        return self.index.drain_emptied()

    def snapshot(self) -> Delta:
        """The whole state but for the pages, in place of all deltas so far.

        Customers that are idle and owe nothing are forgotten with it.
        """
        return self._snapshot.snapshot()

    def state(self) -> Delta:
        """The same with idle customers included; changes nothing."""
        return self._snapshot.state()

    def restore(
        self,
        pages: Iterable[tuple[int, Sequence[RoutedAgenda]]],
        deltas: Iterable[Delta],
        now: float = 0.0,
    ) -> None:
        """Bring a new backlog into the state in which these pages and deltas were written.

        Pages come in the order of their numbers, and are read one at a time, so an iterator
        will do; deltas come oldest first. Pages whose agendas are all gone are returned by
        `drain_emptied`, because a crash may have kept them from being deleted. All leases
        begin at `now`.
        """
        unknown = self._snapshot.restore(pages, deltas, now)
        self.queue.companions = self.insight.companions if self._backlog.batches else 0
        for page in unknown:
            came = [(one, *at) for one, at in zip(page.ids, _arrivals(page), strict=True)]
            self._add_page(page, now)
            for agenda_id, attempt, arrived_at in came:
                if agenda_id and self.index.find(agenda_id) is None:
                    self._lost_again[agenda_id, attempt] = arrived_at

    def reconfigure(self, insight: Insight) -> None:
        """Follow a changed insight and changed shares; acts on all that waits."""
        before = self.insight
        if (before.algorithm, before.aging_s) == (insight.algorithm, insight.aging_s):
            self._backlog.insight = insight
            self.queue.refresh_shares()
        else:
            self._backlog.reorder(insight)

    # ---- inside ----

    def _add_page(self, page: BacklogPage, now: float) -> None:
        """Put a new page's agendas where they wait, and publish which of them must wait."""
        self._backlog.add_page(page)
        self._backlog.reruns.add_page(page)
        for slot, options in [*page.options.items()]:
            if options.dedupe is not None:
                self.duplicates.resolve(ref_of(page.number, slot), now)
            agenda_id = page.ids[slot]
            if page.states[slot] == HELD:
                reason = options.held_reason
                self.outbox.held(agenda_id, options.attempt, now, reason=reason)
            elif page.states[slot] == WAITING and (until := options.not_before or 0.0) > now:
                self.outbox.waiting(
                    agenda_id, options.attempt, now, until=until, why="not_before"
                )


def _arrivals(page: BacklogPage) -> Iterator[tuple[int, float]]:
    """The attempt of each of a page's agendas, and when it came."""
    for slot, arrived_at in enumerate(page.arrivals):
        yield page.options_of(slot).attempt, arrived_at


_SAME_ARRIVAL_S: Final = 3600.0
"""An agenda that is accepted again after a crash of ingest is so within this time."""
