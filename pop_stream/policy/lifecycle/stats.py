"""What is counted of agendas by hour: ends, attempts, worker-seconds, waits and runs.

An end counts when a summary comes to it, in the hour in which it ended, with its wait and run
as far as its start is known then; running the agenda again counts its next end too. An attempt
counts once, with its first report that follows from the state: success, failure, stop or
deferral, and the worker-seconds by operation type that it brings. What was reported of an
attempt that another one followed before counts nowhere. Sums are whole microseconds, so they
are the same in whatever order they are added.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from pop_stream.model.errors import TransitionError
from pop_stream.model.events.lifecycle import (
    AgendaDeferred,
    AgendaFailed,
    AgendaStopped,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.policy.lifecycle.fold import fold
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary

BUCKETS: Final = 28
"""Buckets of waits and of runs: the first holds what took 2^-7 s at most, each next one twice
as much, the last all that is longer than 2^19 s, six days."""

_PARTS: Final = 2**7
"""Of a second: the first bucket ends with one of them."""

ALL_TYPES: Final = ""
"""The operation type of rows about whole agendas."""

OTHER: Final = "(other)"
"""Stands for templates and operation types of a customer beyond what is kept apart."""

MAX_TYPES: Final = 16
"""Operation types of one attempt that are kept apart, those with most worker-seconds."""

MAX_KEYS: Final = 500
"""Pairs of template and operation type of a customer in an hour that are kept apart."""

ENDS: Final = (
    State.SUCCEEDED,
    State.FAILED,
    State.CANCELLED,
    State.EXPIRED,
    State.REFUSED,
)
"""The states that are counted, in the order of their columns."""

_MAX_HOURS: Final = 10_000
_HOUR: Final = timedelta(hours=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_US_A_SECOND: Final = 1_000_000

Report = AgendaSucceeded | AgendaFailed | AgendaStopped | AgendaDeferred
_REPORTS: Final = (AgendaSucceeded, AgendaFailed, AgendaStopped, AgendaDeferred)


class StatsKey(NamedTuple):
    """What a row is about."""

    hour: datetime
    insight_id: str
    customer_id: str
    template_id: str
    operation_type: str


class Measures(msgspec.Struct):
    """What is counted; `ends` in the order of `ENDS`, times in microseconds."""

    ends: list[int] = msgspec.field(default_factory=lambda: [0] * len(ENDS))
    attempts: int = 0
    worker_us: int = 0
    wait_us: int = 0
    run_us: int = 0
    waits: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)
    runs: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)


class FoldedAgenda(NamedTuple):
    """A summary after some events.

    Attributes:
        skipped: Events that were not applied.
        reports: The first of each attempt that was not accounted before.
        accounted: The last attempt that was.
    """

    summary: Summary | None
    skipped: int
    reports: Sequence[Report]
    accounted: int


def fold_accounting(
    summary: Summary | None, accounted: int, lifecycle: Iterable[LifecycleEvent]
) -> FoldedAgenda:
    """Fold events as `fold_all` does, and tell which of them are to be counted."""
    skipped, reports = 0, list[Report]()
    for event in lifecycle:
        try:
            summary = fold(summary, event)
        except TransitionError:
            skipped += 1
            continue
        if isinstance(event, _REPORTS) and event.attempt > accounted:
            accounted = event.attempt
            reports.append(event)
    return FoldedAgenda(summary, skipped, reports, accounted)


def bucket_of(microseconds: int) -> int:
    """The bucket of a duration."""
    parts = -(-microseconds * _PARTS // _US_A_SECOND)
    return min(BUCKETS - 1, max(0, parts - 1).bit_length())


def upper_bound_s(bucket: int) -> float | None:
    """The longest duration of a bucket; None for the last, which has none."""
    return None if bucket == BUCKETS - 1 else 2.0**bucket / _PARTS


class KeyLimiter:
    """Bounds how many rows a customer can make in an hour, as far as this process remembers."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, datetime], set[tuple[str, str]]] = OrderedDict()

    def limited(self, key: StatsKey) -> StatsKey:
        """The key, or one that stands for all others of its customer and hour."""
        known = self._known.setdefault((key.customer_id, key.hour), set())
        pair = (key.template_id, key.operation_type)
        if pair in known:
            return key
        if len(known) >= MAX_KEYS:
            kind = OTHER if key.operation_type else ALL_TYPES
            return key._replace(template_id=OTHER, operation_type=kind)
        known.add(pair)
        while len(self._known) > _MAX_HOURS:
            self._known.popitem(last=False)
        return key


class StatsBatch:
    """Adds up what one batch of events changes.

    Most of a batch belongs to one hour and to few rows, so each is looked up by what is at
    hand, and the limiter is asked only for a row that is new in the hour.

    Attributes:
        rows: To add to what is stored.
    """

    def __init__(self, limiter: KeyLimiter) -> None:
        self._limiter = limiter
        self.rows: dict[StatsKey, Measures] = defaultdict(Measures)
        self._hour = self._next_hour = _LONG_AGO
        self._of_hour: dict[tuple[str, str, str, str], Measures] = {}

    def add(
        self,
        before: Summary | None,
        after: Summary,
        reports: Iterable[Report],
        template_id: str | None,
    ) -> None:
        """Count what changed of one agenda."""
        for report in reports:
            self._add_report(after, report, template_id or "")
        if not after.state.is_terminal or after.ended_at is None or _ended_so(before, after):
            return
        measures = self._of(after, after.ended_at, template_id or "", ALL_TYPES)
        measures.ends[_END_INDEX[after.state]] += 1
        if after.started_at is not None:
            run_us = _us_between(after.started_at, after.ended_at)
            measures.run_us += run_us
            measures.runs[bucket_of(run_us)] += 1
        wait_us = _wait_us(after)
        if wait_us is not None:
            measures.wait_us += wait_us
            measures.waits[bucket_of(wait_us)] += 1

    def _add_report(self, after: Summary, report: Report, template_id: str) -> None:
        spent = [(kind, round(s * 1e6)) for kind, s in report.spent_s.items()]
        whole = self._of(after, report.at, template_id, ALL_TYPES)
        whole.attempts += 1
        if len(spent) > 1:
            spent.sort(key=lambda one: (-one[1], one[0]))
        for place, (kind, micros) in enumerate(spent):
            named = (kind or OTHER) if place < MAX_TYPES else OTHER
            measures = self._of(after, report.at, template_id, named)
            measures.attempts += 1
            measures.worker_us += micros
            whole.worker_us += micros

    def _of(self, after: Summary, at: datetime, template_id: str, kind: str) -> Measures:
        if not self._hour <= at < self._next_hour:
            self._hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            self._next_hour = self._hour + _HOUR
            self._of_hour = {}
        near = (after.customer_id, kind, template_id, after.insight_id)
        measures = self._of_hour.get(near)
        if measures is None:
            key = StatsKey(self._hour, after.insight_id, after.customer_id, template_id, kind)
            measures = self._of_hour[near] = self.rows[self._limiter.limited(key)]
        return measures


_END_INDEX: Final = {state: place for place, state in enumerate(ENDS)}


def _ended_so(before: Summary | None, after: Summary) -> bool:
    """Whether that end was counted before."""
    if before is None or before.state is not after.state:
        return False
    if after.state is State.REFUSED:
        return before.ended_at == after.ended_at
    return before.attempt == after.attempt


def _wait_us(after: Summary) -> int | None:
    """From acceptance to the first start; None if it never started, or was run again."""
    past, start = after.history, after.started_at
    if after.accepted_at is None or any(one.outcome in _RERUN for one in past):
        return None
    for one in past:
        if one.started_at is not None and (start is None or one.started_at < start):
            start = one.started_at
    return None if start is None else _us_between(after.accepted_at, start)


def _us_between(first: datetime, last: datetime) -> int:
    """Microseconds from one instant to another; none if that is earlier."""
    return max(0, (last - first) // _MICROSECOND)


_RERUN: Final = frozenset({"succeeded", "cancelled", "expired"})
