"""Keeps the schedules of one owner: their states, when each is due, and what becomes of events.

The keeper decides and remembers; whoever calls it publishes what it returns. It is pure but for
its own state, which is that of the rows it returns, so a crash before they are written makes
the next owner decide the same again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

from msgspec.structs import replace

from pop_stream.model.events.occasions import (
    NOTHING_APPLIED,
    OccasionEvent,
    OccurrenceEnded,
    OpenOccurrence,
    ScheduleState,
)
from pop_stream.model.schedule import Occurrence, Schedule, position_of
from pop_stream.policy.schedules.plan import (
    PassedOver,
    Plan,
    apply_command,
    apply_end,
    begin,
    plan,
)

SLICE: Final = 100
"""Most schedules that are decided on at a time, in a few milliseconds."""

_TIMING: Final = ("trigger", "timezone", "start", "end", "exceptions")


@dataclass(slots=True)
class Firing:
    """What decisions lead to; to be published in this order.

    Attributes:
        occurrences: To submit, in order within a schedule.
        cancels: Occurrences to cancel, each with its schedule.
        passed_over: Instants of which nothing is submitted now, each with its schedule.
        rows: By schedule id, the state after that; None for one that is defined no more. To be
            written once all else is acknowledged.
    """

    occurrences: list[Occurrence] = field(default_factory=list)
    cancels: list[tuple[Schedule, OpenOccurrence]] = field(default_factory=list)
    passed_over: list[tuple[Schedule, PassedOver]] = field(default_factory=list)
    rows: dict[str, ScheduleState | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.occurrences or self.cancels or self.passed_over or self.rows)


class ScheduleKeeper:
    """The schedules that one process owns. `define` is called before anything else.

    The cost of each call is that of the schedules that it is about; `define` looks at all.
    """

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._states: dict[str, ScheduleState] = {}
        self._due_at: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def load(self, states: Iterable[ScheduleState]) -> None:
        """Take over what an owner before has written; its schedules are met by `define`."""
        self._states.update((one.schedule_id, one) for one in states)

    def resume_after(self) -> int | None:
        """The least offset up to which a state that waits for an end has events; None if none.

        Events after it may be missing in that state, though offsets beyond are committed: its
        row may be older than the commit.
        """
        waiting = [one.applied for one in self._states.values() if one.open or one.waiting]
        return min(waiting, default=None)

    def define(self, schedules: Mapping[str, Schedule], now: datetime) -> Iterator[Firing]:
        """Take up the definitions in force: those that are new, changed or gone.

        One that is met for the first time begins now, or at its `start`. One whose timing has
        changed goes on from now: what it was due before, it is due as it was.

        Args:
            schedules: All that are owned, by id.
            now: The present instant.

        Yields:
            What follows, a slice of the schedules at a time; to be exhausted before any other
            call.
        """
        firing = Firing()
        for schedule_id in self._schedules.keys() - schedules.keys():
            self._forget(schedule_id)
            firing.rows[schedule_id] = None
        for schedule_id in self._states.keys() - schedules.keys():
            del self._states[schedule_id]
            firing.rows[schedule_id] = None
        changed = [one for one in schedules.values() if one is not self._schedules.get(one.id)]
        for number, schedule in enumerate(changed, 1):
            self._redefine(firing, schedule, now)
            if number % SLICE == 0:
                yield firing
                firing = Firing()
        yield firing

    def apply(self, event: OccasionEvent, offset: int) -> Firing:
        """Apply an event; of one that is applied already, or of an unknown schedule, nothing.

        Args:
            event: Of `pop.occasions`.
            offset: Its own; those of a schedule grow.
        """
        firing = Firing()
        schedule = self._schedules.get(event.schedule_id)
        state = self._states.get(event.schedule_id)
        if schedule is None or state is None or offset <= state.applied:
            return firing
        if isinstance(event, OccurrenceEnded):
            made = apply_end(schedule, state, event.agenda_id, event.outcome)
            if made.state is state:
                return firing
        else:
            made = apply_command(schedule, state, event, offset)
        self._settle(firing, schedule, made, applied=offset)
        return firing

    def fire(self, now: datetime) -> Firing:
        """Decide on those that are due by now, `SLICE` at most, soonest first."""
        firing = Firing()
        for _ in range(SLICE):
            due_at = self.next_at
            if due_at is None or due_at > now:
                break
            schedule_id = heappop(self._heap)[1]
            del self._due_at[schedule_id]
            self._decide(firing, self._schedules[schedule_id], now)
        return firing

    @property
    def next_at(self) -> datetime | None:
        """When the next one is due; None if none ever is."""
        while self._heap:
            at, schedule_id = self._heap[0]
            if self._due_at.get(schedule_id) == at:
                return at
            heappop(self._heap)
        return None

    def __len__(self) -> int:
        return len(self._schedules)

    def _redefine(self, firing: Firing, schedule: Schedule, now: datetime) -> None:
        before = self._schedules.get(schedule.id)
        if before is not None:
            self._decide(firing, before, now)
        self._schedules[schedule.id] = schedule
        state = self._states.get(schedule.id)
        if state is None:
            state = begin(schedule, now)
        elif before is not None and _timing(before) != _timing(schedule):
            state = replace(state, position=max(state.position, position_of(now)))
        self._states[schedule.id] = state
        self._decide(firing, schedule, now)
        firing.rows[schedule.id] = self._states[schedule.id]

    def _decide(self, firing: Firing, schedule: Schedule, now: datetime) -> None:
        before = self._states[schedule.id]
        made = plan(schedule, before, now)
        if made.state != before:
            self._settle(firing, schedule, made)
        self._due_at.pop(schedule.id, None)
        if made.next_at is not None:
            self._due_at[schedule.id] = made.next_at
            heappush(self._heap, (made.next_at, schedule.id))

    def _settle(
        self, firing: Firing, schedule: Schedule, made: Plan, *, applied: int = NOTHING_APPLIED
    ) -> None:
        state = made.state
        if applied > state.applied:
            state = replace(state, applied=applied)
        self._states[schedule.id] = state
        firing.occurrences += made.occurrences
        firing.cancels += ((schedule, one) for one in made.cancels)
        firing.passed_over += ((schedule, one) for one in made.passed_over)
        firing.rows[schedule.id] = state

    def _forget(self, schedule_id: str) -> None:
        del self._schedules[schedule_id]
        self._states.pop(schedule_id, None)
        self._due_at.pop(schedule_id, None)


def _timing(schedule: Schedule) -> tuple[object, ...]:
    return tuple(getattr(schedule, name) for name in _TIMING)


def merged(firings: Iterable[Firing]) -> Firing:
    """Several decisions, in their order, as one."""
    whole = Firing()
    for one in firings:
        whole.occurrences += one.occurrences
        whole.cancels += one.cancels
        whole.passed_over += one.passed_over
        whole.rows |= one.rows
    return whole
