"""The state of one insight's backlog, and the moves of an agenda from one state to another.

The index says what each agenda is, the queue has those that are ready, due heaps those that
wait for an instant or have a deadline, and leases those that are in flight. Every move goes
through `BacklogState`, so that these never disagree. It does what it is called for: `attempts`
and `commands` decide which moves are allowed.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from typing import Final

from msgspec.structs import replace

from pop_stream.model.definitions import Insight
from pop_stream.model.events.lifecycle import StopReason, WaitReason
from pop_stream.model.ids import CustomerId
from pop_stream.model.retry import MAX_LOST_PAUSE_S
from pop_stream.policy.backlog.agenda_index import (
    CLAIMED,
    EMITTED,
    HELD,
    IN_FLIGHT,
    NO_OVERRIDES,
    READY,
    WAITING,
    AgendaIndex,
    BacklogPage,
    live_slots,
    ref_of,
)
from pop_stream.policy.backlog.dedupe_keys import DedupeKeys
from pop_stream.policy.backlog.health import HealthTracker
from pop_stream.policy.backlog.leases import EmittedOffsets, Leases
from pop_stream.policy.backlog.outbox import BacklogOutbox
from pop_stream.policy.backlog.series import EndedReruns, PlacedSeries
from pop_stream.policy.delta import AgendaRecord, FairnessState, Overrides
from pop_stream.policy.fairness.algorithms import ALGORITHMS
from pop_stream.policy.fairness.cost_model import MAX_COST_S, CostModel, Estimate, clamp_cost
from pop_stream.policy.fairness.flow import Aging, Pick, Share
from pop_stream.policy.fairness.queue import FairQueue
from pop_stream.policy.fairness.turn_order import MICROSECONDS, Reservation


class BatchMembers:
    """By batch key, the places of agendas that were not emitted yet, oldest first."""

    def __init__(self) -> None:
        self._refs: dict[str, dict[int, None]] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._refs)

    def add(self, batch_key: str, ref: int) -> None:
        """The agenda in the place is of the batch; of none if the key is empty."""
        if batch_key:
            self._refs.setdefault(batch_key, {})[ref] = None

    def remove(self, batch_key: str, ref: int) -> None:
        """It was chosen, or has ended; a second call does nothing."""
        refs = self._refs.get(batch_key)
        if refs is not None:
            refs.pop(ref, None)
            if not refs:
                del self._refs[batch_key]

    def first(self, batch_key: str, most: int) -> list[int]:
        """Up to `most` places of the batch."""
        return [*islice(self._refs.get(batch_key, ()), most)]


_SLACK: Final = 64
"""Outdated entries that are tolerated before the heap is rebuilt."""


class DueHeap:
    """One instant per place, in seconds since the epoch; a heap with lazy deletion.

    In memory only: it is filled again from pages and records.
    """

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def set(self, ref: int, at: float) -> None:
        """Set or move the instant of a place."""
        self._at[ref] = at
        heappush(self._heap, (at, ref))
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = [(at, ref) for ref, at in self._at.items()]
            heapify(self._heap)

    def clear(self, ref: int) -> None:
        """The place has no instant any more; a second call does nothing."""
        self._at.pop(ref, None)

    @property
    def next_at(self) -> float | None:
        """The soonest instant; None for none."""
        while self._heap:
            at, ref = self._heap[0]
            if self._at.get(ref) == at:
                return at
            heappop(self._heap)
        return None

    def pop_due(self, now: float, most: int) -> list[int]:
        """Places that are due by `now`, soonest first and each once, at most so many."""
        due: list[int] = []
        while len(due) < most and (at := self.next_at) is not None and at <= now:
            due.append(heappop(self._heap)[1])
            del self._at[due[-1]]
        return due


_MAX_OUTGROWN: Final = 1_000

_MAX_MESSAGE: Final = 80
"""Most characters of a stop's message, so that a thousand fit a row of a snapshot."""


class BacklogState:
    """One insight's agendas, each in one state; see the module.

    Attributes:
        emitted: Agendas ever emitted.
        claimed: Agendas ever claimed.
        rounds: That chose any.
        reruns: What ended after it was run again.
        series: Up to where each series was placed.
        health: How attempts ended lately, and what is reported from outside.
        keys: What stands for each deduplication key.
        batches: By batch key, the places of agendas that were not emitted, oldest first.
        dues: When those that wait go on.
        deadlines: When those with a deadline expire.
        outgrown: When what runs has taken more than is reserved for it.
    """

    def __init__(self, insight: Insight, share_of: Callable[[CustomerId], Share]) -> None:
        self.insight = insight
        self.emitted = 0
        self.claimed = 0
        self.rounds = 0
        self.costs = CostModel()
        self.index = AgendaIndex()
        self.dues = DueHeap()
        self.deadlines = DueHeap()
        self.outgrown = DueHeap()
        self.leases = Leases()
        self.emitted_offsets = EmittedOffsets()
        self.outbox = BacklogOutbox(insight.id)
        self._share_of = share_of
        self.reruns = EndedReruns()
        self.series = PlacedSeries()
        self.health = HealthTracker()
        self.keys = DedupeKeys()
        self.batches = BatchMembers()
        self.queue = self._new_queue()

    # ---- moves ----

    def add_page(self, page: BacklogPage) -> None:
        """A page that was just added: what is ready joins the queue."""
        for ref, slot in live_slots(page):
            if page.states[slot] == READY:
                entry = self._entry(page, slot, ref)
                self.queue.push(page.customers[slot], entry, page.keys[slot])
        for slot, options in page.options.items():
            ref = ref_of(page.number, slot)
            if page.states[slot] == WAITING and options.not_before is not None:
                self.dues.set(ref, options.not_before)
            if options.expires_at is not None:
                self.deadlines.set(ref, options.expires_at)
            self.batches.add(options.batch_key, ref)

    def ready(self, ref: int, attempt: int, overrides: Overrides) -> None:
        """The agenda waits for its turn; only for one that is dequeued or released."""
        self._record(ref, READY, attempt, _lasting_overrides(overrides))
        self._enqueue(ref)

    def wait(self, ref: int, attempt: int, overrides: Overrides) -> None:
        """The agenda waits until `overrides.due`; only for one that is dequeued or released."""
        self._record(ref, WAITING, attempt, overrides)
        self.dues.set(ref, overrides.due)

    def hold(self, ref: int, attempt: int, overrides: Overrides) -> None:
        """The agenda waits for its release; only for one that is dequeued or released."""
        self._record(ref, HELD, attempt, overrides)

    def dequeue(self, ref: int) -> None:
        """Take an agenda that is not in flight from where it waits; another move follows."""
        page, slot = self.index.at(ref)
        if page.states[slot] == READY:
            self.queue.withdraw(page.customers[slot], self.entry(ref), page.keys[slot])
        self.dues.clear(ref)

    def emit(self, pick: Pick) -> AgendaRecord:
        """The queue has picked the agenda: from now on it is in flight."""
        known = self.index.record_of(pick.ref)
        record = AgendaRecord(
            ref=pick.ref,
            state=EMITTED,
            attempt=known.attempt if known else self.index.attempt(pick.ref),
            charged=pick.reservation.charged,
            sure=pick.reservation.sure,
            overrides=known.overrides if known else None,
        )
        self.index.record(record)
        self.emitted += 1
        return record

    def claim(self, record: AgendaRecord, now: float, relayed_at: float) -> None:
        """A puller has claimed it: its lease begins, and it is counted as running."""
        self.claimed += 1
        self.emitted_offsets.remove(record.ref)
        claimed = replace(record, state=CLAIMED, claimed_at=relayed_at)
        self.index.record(claimed)
        self._watch_running(claimed)
        self.leases.begin(record.ref, now)

    def count_running(self, relayed_at: float) -> None:
        """Attempts that still run count as what they have taken up to then, at least."""
        while due := self.outgrown.pop_due(relayed_at, _MAX_OUTGROWN):
            for ref in due:
                record = self.index.in_flight_record(ref)
                if record is not None and record.state == CLAIMED:
                    self._raise(record, relayed_at)

    def _raise(self, record: AgendaRecord, relayed_at: float) -> None:
        page, slot = self.index.at(record.ref)
        elapsed_s = min(relayed_at - record.claimed_at, MAX_COST_S)
        after = self.queue.replace(
            page.customers[slot],
            page.keys[slot],
            Reservation(record.charged, record.sure),
            elapsed_s,
        )
        raised = replace(record, charged=after.charged, sure=after.sure)
        if raised != record:
            self.index.record(raised)
            self._watch_running(raised)

    def _watch_running(self, record: AgendaRecord) -> None:
        reserved = Reservation(record.charged, record.sure)
        if record.claimed_at and record.sure < MAX_COST_S * MICROSECONDS:
            self.outgrown.set(record.ref, record.claimed_at + reserved.outgrown_after_s)

    def stop(self, record: AgendaRecord, reason: StopReason, message: str) -> None:
        """The attempt in flight is to stop."""
        overrides = replace(
            record.overrides or NO_OVERRIDES, stopping=reason, message=message[:_MAX_MESSAGE]
        )
        self.index.record(replace(record, overrides=overrides))

    def set_overrides(self, ref: int, overrides: Overrides) -> None:
        """Change what is wanted of the agenda, which stays in its state."""
        record = self.index.in_flight_record(ref)
        if record is not None:
            self.index.record(replace(record, overrides=_or_none(overrides)))
        else:
            self._record(ref, self.index.state(ref), self.index.attempt(ref), overrides)

    def release_slot(
        self,
        record: AgendaRecord,
        spent_s: Mapping[str, float],
        relayed_at: float,
        *,
        learn: bool,
    ) -> None:
        """An attempt in flight has ended: free its slot, and count what was delivered.

        That is what it took, however it ended. Of an attempt that nobody reported on it is
        the time since its claim. The cost of an operation is learned from those that succeed.
        """
        if record.state == EMITTED:
            self.claimed += 1
        self.emitted_offsets.remove(record.ref)
        self.leases.end(record.ref)
        self.outgrown.clear(record.ref)
        page, slot = self.index.at(record.ref)
        customer_id = page.customers[slot]
        delivered_s = 0.0
        if spent_s:
            delivered_s = clamp_cost(sum(spent_s.values()))
        elif record.claimed_at:
            delivered_s = clamp_cost(relayed_at - record.claimed_at)
        if delivered_s:
            self.costs.learn_usual(customer_id, delivered_s, succeeded=learn)
        if spent_s and learn:
            self.costs.learn(page.types[slot], spent_s)
        declared = page.declared_cost(slot)
        if declared is not None and delivered_s:
            self.costs.learn_ratio(
                customer_id, declared=declared, spent=delivered_s, succeeded=learn
            )
        reservation = Reservation(record.charged, record.sure)
        self.queue.settle(customer_id, page.keys[slot], reservation, delivered_s)

    def forget(self, ref: int) -> None:
        """The agenda has ended; only for one that is dequeued or released."""
        options = self.index.options(ref)
        if options.dedupe is not None:
            self.keys.remove(options.dedupe.key, ref)
        self.batches.remove(options.batch_key, ref)
        if options.attempt > 1:
            self.reruns.remember(self.agenda_id(ref), self.index.attempt(ref))
        self.deadlines.clear(ref)
        self.index.forget(ref)

    # ---- reads ----

    def entry(self, ref: int) -> int:
        """The entry by which an agenda is ordered among its customer's own."""
        return self._entry(*self.index.at(ref), ref)

    def cost(self, ref: int) -> Estimate:
        """Worker-seconds it is taken to cost."""
        page, slot = self.index.at(ref)
        declared = page.declared_cost(slot)
        return self.costs.estimate(page.types[slot], declared, page.customers[slot])

    def agenda_id(self, ref: int) -> str:
        """The agenda in the place."""
        page, slot = self.index.at(ref)
        return page.ids[slot]

    def customer_id(self, ref: int) -> CustomerId:
        """The customer of the agenda in the place."""
        page, slot = self.index.at(ref)
        return page.customers[slot]

    def pause_s(self, ref: int, attempt: int, why: WaitReason) -> float:
        """How long this attempt waits after the one before it was lost, or failed."""
        options = self.index.options(ref)
        backoff = options.backoff or self.insight.backoff
        most_s = MAX_LOST_PAUSE_S if why == "lost" else inf
        failures = attempt - options.attempt - self.index.overrides(ref).deferrals
        return min(most_s, backoff.pause_s(max(1, failures), seed=self.agenda_id(ref)))

    def due(self, ref: int, now: float) -> float:
        """When an agenda goes on that waits or is held: after one pause from now at most.

        The instant was set on the clock of the scheduler that had the insight then, which may
        have been ahead.
        """
        overrides = self.index.overrides(ref)
        if overrides.why in {"not_before", "not_yet"}:
            return overrides.due
        return min(
            overrides.due, now + self.pause_s(ref, self.index.attempt(ref), overrides.why)
        )

    # ---- the queue as a whole ----

    def reorder(self, insight: Insight) -> None:
        """Another algorithm, or another aging, for all that is ready."""
        self.insight = insight
        # A lead under one order is no debt under another, so all customers go on from one
        # present. A customer's keys keep their turns, as they would after a restart.
        positions = (flow.sure_position for flow in self.queue.flows())
        present = max([*self.queue.presents, *positions])
        saved = {
            CustomerId(one): replace(known, tag=0.0, last=0, level=0, weight=0.0)
            for one, known in self.queue.all_fairness_states().items()
        }
        depth = self.queue.depth
        self.queue = self._new_queue(self.queue.now)
        self._reserve_again()
        self.rebuild_queue((present,), depth, saved, before=self.index.next_number)
        self.queue.note_moved(saved)

    def _reserve_again(self) -> None:
        """What is out counts as under the order that is new."""
        for page in self.index.pages():
            for ref, slot in live_slots(page):
                record = self.index.in_flight_record(ref)
                if page.states[slot] in IN_FLIGHT and record is not None:
                    charged, sure = self.queue.reservation(self.cost(ref))
                    self.index.record(replace(record, charged=charged, sure=sure))

    def rebuild_queue(
        self,
        presents: Sequence[float],
        depth: int,
        saved: Mapping[CustomerId, FairnessState],
        *,
        before: int,
    ) -> None:
        """Fill a new queue from the pages with numbers below `before`."""
        entries: dict[CustomerId, dict[str, list[int]]] = {}
        out: dict[CustomerId, dict[str, list[Reservation]]] = {}
        for page in (page for page in self.index.pages() if page.number < before):
            for ref, slot in live_slots(page):
                customer_id = page.customers[slot]
                key = "" if self.queue.algorithm.by_age else page.keys[slot]
                if page.states[slot] == READY:
                    by_key = entries.setdefault(customer_id, {})
                    by_key.setdefault(key, []).append(self._entry(page, slot, ref))
                elif page.states[slot] in IN_FLIGHT:
                    known = self.index.in_flight_record(ref)
                    if known is not None:
                        one = Reservation(known.charged, known.sure)
                        out.setdefault(customer_id, {}).setdefault(key, []).append(one)
        self.queue.restore(
            presents=presents, depth=depth, saved=saved, entries=entries, out=out
        )

    def resume(self, now: float, *, before: int) -> None:
        """After a restart, set dues, deadlines and leases, in pages below `before`."""
        for page in (page for page in self.index.pages() if page.number < before):
            for ref, slot in live_slots(page):
                self._resume(ref, page.states[slot], now)
            for slot, options in page.options.items():
                ref = ref_of(page.number, slot)
                if self.index.find(page.ids[slot]) != ref:
                    continue
                if options.expires_at is not None:
                    self.deadlines.set(ref, options.expires_at)
                if options.dedupe is not None:
                    self.keys.add(options.dedupe.key, ref)
                self.batches.add(options.batch_key, ref)

    def _resume(self, ref: int, state: int, now: float) -> None:
        if state == WAITING:
            self.dues.set(ref, self.due(ref, now))
        elif state == CLAIMED:
            self.leases.begin(ref, now)
            record = self.index.in_flight_record(ref)
            if record is not None:
                self._watch_running(record)
        elif state == EMITTED:
            self.emitted_offsets.recover(ref)
            if self.index.overrides(ref).stopping:
                self.leases.begin(ref, now)

    def _entry(self, page: BacklogPage, slot: int, ref: int) -> int:
        known = self.index.record_of(ref)
        return self.queue.algorithm.entry(
            priority=page.priorities[slot],
            resumed=known is not None and known.attempt > page.options_of(slot).attempt,
            rank=page.ranks[slot],
            ref=ref,
        )

    def _enqueue(self, ref: int) -> None:
        page, slot = self.index.at(ref)
        self.queue.push(page.customers[slot], self.entry(ref), page.keys[slot])

    def _record(self, ref: int, state: int, attempt: int, overrides: Overrides) -> None:
        stored = _or_none(overrides)
        self.index.record(AgendaRecord(ref=ref, state=state, attempt=attempt, overrides=stored))

    def _new_queue(self, now: float = 0.0) -> FairQueue:
        aging_s = self.insight.aging_s
        aging = Aging(aging_s, self._arrived_at) if aging_s is not None else None
        return FairQueue(ALGORITHMS[self.insight.algorithm], self._share_of, aging, now)

    def _arrived_at(self, ref: int) -> float:
        page, slot = self.index.at(ref)
        return page.arrivals[slot]


def _lasting_overrides(overrides: Overrides) -> Overrides:
    """What remains when the wait is over."""
    if overrides is NO_OVERRIDES:
        return overrides
    return replace(overrides, due=0.0, why="not_before", stopping="", message="")


def _or_none(overrides: Overrides) -> Overrides | None:
    return None if overrides is NO_OVERRIDES or overrides == NO_OVERRIDES else overrides
