"""The decisions about one schedule; see the package."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec.structs import replace

from pop_stream.model.events.occasions import (
    OccurrenceOutcome,
    OpenOccurrence,
    ScheduleCommanded,
    ScheduleState,
    SkipReason,
)
from pop_stream.model.schedule import (
    MAX_BUFFERED,
    Occurrence,
    Schedule,
    nominal_of,
    position_of,
)

LATE_AFTER: Final = timedelta(seconds=60)
"""What could not be submitted within this time was missed, and `misfire` decides."""

MAX_OPEN: Final = 1_000
"""Most occurrences of a schedule whose ends are waited for; the oldest are forgotten first."""

MAX_BACKFILL: Final = 1_000
"""Most occurrences of one backfill."""

MAX_COUNTED: Final = 1_000
"""Most occurrences before the catch-up window that are looked at, to count them."""

MAX_LOOKED_AT: Final = 10_000
"""About as many late occurrences are looked at, the last ones, of which `MAX_CATCH_UP` at most
are made up for; so one decision takes some milliseconds, however long the catch-up window."""

MAX_REPORTED: Final = 100
"""Most occurrences of one decision of which it is reported that they were passed over; the last
ones. Of earlier ones there is only the count."""

Status = Literal["scheduled", "paused", "paused_after_failures", "ended"]


@dataclass(frozen=True, slots=True)
class PassedOver:
    """An instant at which nothing is submitted.

    Attributes:
        reason: Why not; None if its occurrence waits for the end of one before.
    """

    nominal: datetime
    reason: SkipReason | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one decision comes to.

    Attributes:
        state: After it; to be written once all else is acknowledged.
        occurrences: To submit, in order.
        cancels: Occurrences to cancel.
        next_at: When to plan again; None if nothing is ever due by itself.
        passed_over: Instants that were due and of which nothing is submitted now, in order;
            of many the last `MAX_REPORTED`.
    """

    state: ScheduleState
    occurrences: Sequence[Occurrence] = ()
    cancels: Sequence[OpenOccurrence] = ()
    next_at: datetime | None = None
    passed_over: Sequence[PassedOver] = ()


def begin(schedule: Schedule, now: datetime) -> ScheduleState:
    """The state of a schedule that is met for the first time.

    With a `start` that has passed, what was due since is late; without one, nothing is.
    """
    position = position_of(now if schedule.start is None else schedule.start)
    if schedule.start is not None:
        position -= 1
    return ScheduleState(schedule_id=schedule.id, position=position)


def plan(schedule: Schedule, state: ScheduleState, now: datetime) -> Plan:
    """Decide on all that is due by now; a second call at the same instant decides nothing.

    Args:
        schedule: As it is defined now.
        state: After the decision before.
        now: The present instant. One before the last decision changes nothing.
    """
    gone, after = _pass_over(schedule, state, now)
    due = _Due(schedule, now)
    last, next_at, due_at = after, None, after
    for nominal in schedule.instants(after):
        due_at = max(due_at, schedule.due_at(nominal))  # none overtakes another by its jitter
        if due_at > now:
            next_at = due_at
            break
        last = nominal
        due.add(nominal, due_at)
    state = replace(state, position=max(state.position, position_of(last)))
    if schedule.paused or state.is_paused:
        reason: SkipReason = "paused" if schedule.paused else "paused_after_failures"
        reported = [*_reported(gone, "late"), *_reported(due.last, reason)]
        skipped, missed = state.skipped + due.total, state.missed + len(gone)
        state = replace(state, skipped=skipped, missed=missed)
        return Plan(state, next_at=next_at, passed_over=reported[-MAX_REPORTED:])
    chosen, passed = due.chosen()
    missed = len(gone) + due.total - len(chosen)
    state = replace(state, missed=state.missed + missed)
    made = _submit(schedule, state, chosen)
    reported = [*_reported((*gone, *passed), "late"), *made.passed_over]
    return Plan(made.state, made.occurrences, made.cancels, next_at, reported[-MAX_REPORTED:])


def apply_end(
    schedule: Schedule, state: ScheduleState, agenda_id: str, outcome: OccurrenceOutcome
) -> Plan:
    """What the end of an agenda leads to; nothing if it is no open occurrence."""
    left = tuple(one for one in state.open if one.agenda_id != agenda_id)
    if len(left) == len(state.open):
        return Plan(state)
    failures = state.failures
    if outcome == "succeeded":
        failures = 0
    elif outcome != "cancelled":
        failures += 1
    most = schedule.pause_after_failures
    state = replace(
        state,
        open=left,
        failures=failures,
        is_paused=state.is_paused or (most is not None and failures >= most),
    )
    if state.is_paused or schedule.paused or left or not state.waiting:
        return Plan(state)
    first, *rest = state.waiting
    state = replace(state, waiting=tuple(rest))
    return _submit(schedule, state, [nominal_of(first)])


def apply_command(
    schedule: Schedule, state: ScheduleState, command: ScheduleCommanded, offset: int
) -> Plan:
    """What a command leads to.

    Args:
        schedule: As it is defined now.
        state: Before it.
        command: What is wanted. Occurrences that it asks for are submitted whatever runs.
        offset: Its own in `pop.occasions`, by which a repeat submits nothing new.
    """
    match command.action:
        case "resume":
            state = replace(state, is_paused=False, failures=0)
            return Plan(state)
        case "trigger":
            nominal = nominal_of(position_of(command.at))
            previous = None if state.previous is None else nominal_of(state.previous)
            following = next(schedule.instants(nominal), None)
            one = Occurrence(
                schedule,
                nominal,
                previous,
                following,
                extra=f"t{offset}",
                extra_position=offset,
            )
            return Plan(replace(state, fired=state.fired + 1), [one])
        case "backfill":
            found = backfilled(schedule, command.first, command.last)[:MAX_BACKFILL]
            made = _occurrences(schedule, found, None, extra=f"b{offset}")
            return Plan(replace(state, fired=state.fired + len(made)), made)


def backfilled(
    schedule: Schedule, first: datetime | None, last: datetime | None
) -> Sequence[datetime]:
    """The instants of a range, both ends included, and one more than allowed if too many."""
    found: list[datetime] = []
    if first is None or last is None:
        return found
    for nominal in schedule.instants(first - timedelta(microseconds=1)):
        if nominal > last or len(found) > MAX_BACKFILL:
            break
        found.append(nominal)
    return found


def status(schedule: Schedule, state: ScheduleState | None, now: datetime) -> Status:
    """In a word, how a schedule stands; `ended` if nothing is due any more by itself."""
    if next(schedule.instants(now), None) is None:
        return "ended"
    if schedule.paused:
        return "paused"
    return "paused_after_failures" if state is not None and state.is_paused else "scheduled"


class _Due:
    """The instants that are due in one decision, those on time and the last of those late."""

    def __init__(self, schedule: Schedule, now: datetime) -> None:
        self._schedule = schedule
        self._now = now
        self._late: deque[datetime] = deque(maxlen=schedule.max_catch_up + MAX_REPORTED)
        self._on_time: list[datetime] = []
        self.last: deque[datetime] = deque(maxlen=MAX_REPORTED)
        self.total = 0

    def add(self, nominal: datetime, due_at: datetime) -> None:
        self.total += 1
        self.last.append(nominal)
        (self._late if self._now - due_at > LATE_AFTER else self._on_time).append(nominal)

    def chosen(self) -> tuple[Sequence[datetime], Sequence[datetime]]:
        """Those to submit, and the last of those that are not made up for."""
        late = [*self._late]
        most = {"fire_all": self._schedule.max_catch_up, "coalesce": 1, "skip": 0}
        passed = max(0, len(late) - most[self._schedule.misfire])
        return [*late[passed:], *self._on_time], late[:passed]


def _reported(nominals: Iterable[datetime], reason: SkipReason) -> Sequence[PassedOver]:
    return [PassedOver(one, reason) for one in nominals]


def _pass_over(
    schedule: Schedule, state: ScheduleState, now: datetime
) -> tuple[Sequence[datetime], datetime]:
    """Those that were due before the catch-up window, and after which instant to go on."""
    after = nominal_of(state.position)
    catch_up_s = min(schedule.catch_up_s, MAX_LOOKED_AT * schedule.trigger.gap_s)
    window = now - timedelta(seconds=catch_up_s + schedule.jitter_s)
    if after >= window:
        return (), after
    missed: list[datetime] = []
    for nominal in schedule.instants(after):
        if nominal >= window or len(missed) >= MAX_COUNTED:
            break
        missed.append(nominal)
    return missed, window - timedelta(microseconds=1)


def _submit(schedule: Schedule, state: ScheduleState, due: Sequence[datetime]) -> Plan:
    """Let the overlap policy decide on each of these instants, in order."""
    chosen: list[datetime] = []
    reported: list[PassedOver] = []
    cancels: dict[str, OpenOccurrence] = {}
    previous = state.previous
    for nominal in due:
        if state.open and schedule.overlap in {"cancel_other", "replace"}:
            cancels |= {one.agenda_id: one for one in state.open}
        if not state.open or schedule.overlap in {"allow", "replace"}:
            chosen.append(nominal)
            state = _opened(schedule, state, nominal)
        else:
            state, passed = _wait_or_skip(schedule, state, nominal)
            reported += passed
    made = _occurrences(schedule, chosen, previous)
    # What is submitted and replaced in one decision was never out.
    out = {one.agenda_id for one in made}
    superseded = [one for one in made if one.agenda_id in cancels]
    if superseded:
        made = [one for one in made if one.agenda_id not in cancels]
        reported += _reported((one.nominal for one in superseded), "superseded")
        state = replace(
            state,
            fired=state.fired - len(superseded),
            skipped=state.skipped + len(superseded),
        )
    left = [one for one in cancels.values() if one.agenda_id not in out]
    return Plan(state, made, left, passed_over=reported)


def _wait_or_skip(
    schedule: Schedule, state: ScheduleState, nominal: datetime
) -> tuple[ScheduleState, Sequence[PassedOver]]:
    """What becomes of an instant that comes while an occurrence is open."""
    waiting = _waiting(schedule, state, position_of(nominal))
    if waiting == state.waiting:
        skipped = replace(state, skipped=state.skipped + 1)
        return skipped, [PassedOver(nominal, "overlap")]
    dropped = [nominal_of(one) for one in state.waiting if one not in waiting]
    state = replace(state, waiting=waiting, skipped=state.skipped + len(dropped))
    return state, [*_reported(dropped, "superseded"), PassedOver(nominal)]


def _opened(schedule: Schedule, state: ScheduleState, nominal: datetime) -> ScheduleState:
    """With an occurrence that is submitted; its end matters to some policies only."""
    one = OpenOccurrence(
        agenda_id=Occurrence(schedule, nominal, None, None).agenda_id,
        position=position_of(nominal),
    )
    is_followed = schedule.overlap != "allow" or schedule.pause_after_failures is not None
    before = () if schedule.overlap == "replace" else state.open
    return replace(
        state,
        previous=one.position,
        fired=state.fired + 1,
        open=(*before, one)[-MAX_OPEN:] if is_followed else (),
    )


def _waiting(schedule: Schedule, state: ScheduleState, position: int) -> tuple[int, ...]:
    """The instants that wait once another has come while an occurrence is open."""
    match schedule.overlap:
        case "buffer_one":
            return state.waiting or (position,)
        case "buffer_all":
            return (*state.waiting, position)[:MAX_BUFFERED]
        case "cancel_other":
            return (position,)
        case "allow" | "skip" | "replace":
            return state.waiting


def _occurrences(
    schedule: Schedule, nominals: Sequence[datetime], previous: int | None, *, extra: str = ""
) -> list[Occurrence]:
    """Occurrences in order, each with those beside it."""
    made: list[Occurrence] = []
    before = None if previous is None else nominal_of(previous)
    for nominal in nominals:
        following = next(schedule.instants(nominal), None)
        made.append(Occurrence(schedule, nominal, before, following, extra=extra))
        before = nominal
    return made
