"""What all events of an agenda add up to, and all agendas of a link."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import fsum
from typing import Final

import msgspec
from msgspec.structs import replace

from pop_stream.model.agenda import CallbackFormat, Operation, parse_agenda
from pop_stream.model.appended_operations import all_operations
from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    Instant,
    OperationProgress,
    RefusedIssue,
    Struct,
)
from pop_stream.model.events.lifecycle import StopReason, WaitReason
from pop_stream.model.events.scheduling import MAX_MESSAGE_LENGTH
from pop_stream.policy.lifecycle.states import State

DUPLICATE: Final = "duplicate"
"""Code of the diagnostic that names the agenda of which one was a duplicate."""


class PastAttempt(Struct, frozen=True):
    """An attempt that another one followed.

    Attributes:
        outcome: `failed`, `lost` if its puller fell silent, `deferred` if operations waited for
            something, or how the agenda had ended before it was run again. Of several in a row
            that were deferred, the last is kept.
        message: Why it failed, or what was waited for.
        diagnostics: What was reported of it; of its operations, `prior` has it.
    """

    attempt: int
    outcome: str
    puller_id: str = ""
    emitted_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    message: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()


class Summary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One agenda's roll-up. A struct, for the fold replaces it with every event.

    Attributes:
        body: The agenda as accepted, JSON; empty until `agenda.accepted` was folded.
        operation_names: All operations, in the agenda's order.
        operations: Furthest progress by operation name; absent ones are waiting.
        appended: Operations that handlers added, in the order in which they did.
        last_heartbeat_at: When the attempt's puller last gave a sign of life.
        lease_ms: The longest that a claim or renewal of the attempt asked for; 0 before any.
        waiting_until: While WAITING, when it is due.
        waiting_for: While WAITING, why.
        stopping: Why the attempt is to stop, once its puller was notified.
        history: Earlier attempts, oldest first, at most `MAX_HISTORY`.
        issues: Why it was refused.
        callback_url: Where its end is reported to.
        callback_format: As what.
    """

    agenda_id: str
    state: State
    attempt: int = 1
    insight_id: str = ""
    customer_id: str = ""
    title: str = ""
    link_id: str | None = None
    priority: int = 5
    body: bytes = b""
    operation_names: tuple[str, ...] = ()
    operations: Mapping[str, OperationProgress] = msgspec.field(default_factory=dict)
    appended: tuple[AppendedOperation, ...] = ()
    message: str = ""
    puller_id: str = ""
    last_heartbeat_at: datetime | None = None
    lease_ms: int = 0
    accepted_at: datetime | None = None
    emitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    waiting_until: datetime | None = None
    waiting_for: WaitReason | None = None
    stopping: StopReason | None = None
    history: tuple[PastAttempt, ...] = ()
    issues: tuple[RefusedIssue, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    callback_url: str | None = None
    callback_format: CallbackFormat = "json"

    @property
    def duplicate_of(self) -> str | None:
        """The agenda that stands in its place; None if it did not end as a duplicate."""
        if self.state is not State.CANCELLED:
            return None
        named = (one.detail for one in self.diagnostics if one.code == DUPLICATE)
        found = (one.get("agenda_id") for one in named if isinstance(one, Mapping))
        return next((one for one in found if isinstance(one, str)), None)

    @property
    def lease_until(self) -> datetime | None:
        """When the attempt is given up without a heartbeat; None unless it runs."""
        if (
            self.state is not State.RUNNING
            or self.last_heartbeat_at is None
            or not self.lease_ms
        ):
            return None
        return self.last_heartbeat_at + timedelta(milliseconds=self.lease_ms)

    @property
    def percent(self) -> float:
        """Mean over all operations; an ended one counts 100, whatever its outcome.

        What an agenda was accepted with has succeeded once it has, if nobody said otherwise:
        a foreign puller need not report on operations.
        """
        names = dict.fromkeys((*self.all_names, *self.operations))
        progress = [self.operations.get(name) for name in names]
        if not progress:
            return 100.0 if self.state is State.SUCCEEDED else 0.0
        unknown = 0.0
        if self.state is State.SUCCEEDED:
            unknown = 100.0 * progress[: len(self.operation_names)].count(None)
        return (fsum(map(percent_of, filter(None, progress))) + unknown) / len(progress)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of `all_operations`: of those accepted, then of those appended."""
        return (*self.operation_names, *map(appended_name, self.appended))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Of these, those that have not succeeded."""
        known = self.operations
        return tuple(
            name
            for name in self.all_names
            if name not in known or known[name].state != "succeeded"
        )


def operations_of(summary: Summary) -> tuple[Operation, ...]:
    """All operations of an accepted agenda, as `all_operations` has them.

    Raises:
        SubmissionError: If the agenda is not understood any more.
    """
    agenda = parse_agenda(summary.body, is_accepted=True)
    return all_operations(agenda.operations, summary.appended)


class _OperationName(msgspec.Struct):
    name: str


_NAMED: Final = msgspec.json.Decoder(_OperationName)


def appended_name(one: AppendedOperation) -> str:
    """The name of an appended operation."""
    return _NAMED.decode(one.operation).name


def percent_of(one: OperationProgress) -> float:
    """How far an operation is; an ended one counts 100, whatever its outcome."""
    return 100.0 if one.state in {"succeeded", "failed"} else reported_percent(one)


def reported_percent(one: OperationProgress) -> float:
    """What its puller says, brought between 0 and 100."""
    return min(100.0, max(0.0, one.percent))


def result_bytes(one: OperationProgress) -> int:
    """How many bytes its result has as JSON."""
    return 0 if one.result is msgspec.UNSET else len(one.result)


MAX_HISTORY: Final = 100
"""Attempts of an agenda whose history is kept; the oldest are forgotten first."""

MAX_HISTORY_BYTES: Final = 256 * 1024
"""Of that history, as JSON: it is part of a row that every event rewrites."""

_OUTCOMES: Final = {
    State.RETRYING: "failed",
    State.FAILED: "failed",
    State.SUCCEEDED: "succeeded",
    State.CANCELLED: "cancelled",
    State.EXPIRED: "expired",
}


def with_history(summary: Summary) -> tuple[PastAttempt, ...]:
    """The history with the attempt that another one follows now, as much as is kept."""
    is_deferred = summary.state is State.RETRYING and summary.waiting_for == "not_yet"
    outcome = "deferred" if is_deferred else _OUTCOMES.get(summary.state, "lost")
    past = PastAttempt(
        attempt=summary.attempt,
        outcome=outcome,
        puller_id=summary.puller_id,
        emitted_at=summary.emitted_at,
        started_at=summary.started_at,
        ended_at=summary.ended_at,
        message=summary.message,
        diagnostics=summary.diagnostics,
    )
    before = summary.history
    if before and before[-1].outcome == outcome == "deferred":
        before = before[:-1]
    history = (*before, past)[-MAX_HISTORY:]
    while history and len(msgspec.json.encode(history)) > MAX_HISTORY_BYTES:
        if len(history) == 1:
            brief = past.message[:MAX_MESSAGE_LENGTH]
            return (replace(past, message=brief, diagnostics=()),)
        history = history[1:]
    return history


@dataclass(frozen=True, slots=True)
class LinkSummary:
    """What all agendas of one link id add up to; exact, never a sample.

    Attributes:
        counts: Agendas by state, states without any left out.
        percent: Mean of the agendas' percents.
    """

    link_id: str
    counts: Mapping[State, int]
    percent: float

    @property
    def total(self) -> int:
        """Agendas of the link."""
        return sum(self.counts.values())

    @property
    def state(self) -> State:
        """Once all ended, the worst end; else the furthest that any is.

        An agenda that is still to be tried again is not ended, so it never reads as failed.
        """
        found = set(self.counts)
        if all(state.is_terminal for state in found):
            return next(state for state in _WORST_FIRST if state in found)
        if found & _MOVING or any(state.is_terminal for state in found):
            return State.RUNNING
        return next(state for state in _FURTHEST_FIRST if state in found)


_WORST_FIRST: Final = (
    State.FAILED,
    State.REFUSED,
    State.EXPIRED,
    State.CANCELLED,
    State.SUCCEEDED,
)
_MOVING: Final = frozenset({State.RUNNING, State.RETRYING})
_FURTHEST_FIRST: Final = (
    State.EMITTED,
    State.READY,
    State.ACCEPTED,
    State.WAITING,
    State.HELD,
)
