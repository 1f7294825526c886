"""The fold: what all events of an agenda, in any order and number, add up to.

Folding is idempotent and, within an attempt, independent of order, so at-least-once
delivery and several producers yield one and the same summary.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import fsum
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pop_stream.core.errors import TransitionError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaCancelled,
    AgendaClaimed,
    AgendaCommanded,
    AgendaEmitted,
    AgendaExpired,
    AgendaFailed,
    AgendaGivenUp,
    AgendaHeld,
    AgendaProgressed,
    AgendaReadied,
    AgendaRefused,
    AgendaRenewed,
    AgendaReprioritised,
    AgendaRestarted,
    AgendaStopped,
    AgendaStopping,
    AgendaSucceeded,
    AgendaWaiting,
    AppendedOperation,
    AttemptEvent,
    Diagnostic,
    Instant,
    LifecycleEvent,
    OperationProgress,
    PriorProgress,
    RefusedIssue,
    StopReason,
    Struct,
    WaitReason,
)
from pop_stream.core.lifecycle import BEFORE_EMISSION, State, step

_RANK: Final = {"waiting": 0, "running": 1, "failed": 2, "succeeded": 3}


MOST_REMEMBERED: Final = 100
"""Attempts of an agenda whose history is kept; the oldest are forgotten first."""

_OUTCOMES: Final = {
    State.RETRYING: "failed",
    State.FAILED: "failed",
    State.SUCCEEDED: "succeeded",
    State.CANCELLED: "cancelled",
    State.EXPIRED: "expired",
}


class PastAttempt(Struct, frozen=True):
    """An attempt that another one followed.

    Attributes:
        outcome: `failed`, `lost` if its puller fell silent, or how the agenda had ended
            before it was run again.
        message: Why it failed.
    """

    attempt: int
    outcome: str
    puller_id: str = ""
    emitted_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    message: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One agenda's roll-up. A struct, for the fold replaces it with every event.

    Attributes:
        body: The agenda as accepted, JSON; empty until `agenda.accepted` was folded.
        operation_names: All operations, in the agenda's order.
        operations: Furthest progress by operation name; absent ones are waiting.
        appended: Operations that handlers added, in the order in which they did.
        heard_at: When the attempt's puller last gave a sign of life.
        lease_ms: The longest that a claim or renewal of the attempt asked for; 0 before any.
        waiting_until: While WAITING, when it is due.
        waiting_for: While WAITING, why.
        stopping: Why the attempt is to stop, once its puller was told.
        history: Earlier attempts, oldest first, at most `MOST_REMEMBERED`.
        issues: Why it was refused.
        callback_url: Who is told how it ends.
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
    heard_at: datetime | None = None
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

    @property
    def lease_until(self) -> datetime | None:
        """When the attempt is given up unless it is heard of; None unless it runs."""
        if self.state is not State.RUNNING or self.heard_at is None or not self.lease_ms:
            return None
        return self.heard_at + timedelta(milliseconds=self.lease_ms)

    @property
    def percent(self) -> float:
        """Mean over all operations; an ended one counts 100, whatever its outcome."""
        if self.state is State.SUCCEEDED:
            return 100.0
        known = len(self.operation_names) + len(self.appended)
        total = max(known, len(self.operations))
        if not total:
            return 0.0
        return fsum(map(_percent, self.operations.values())) / total


def fold(summary: Summary | None, event: LifecycleEvent) -> Summary:
    """The summary after one more event.

    An event told before changes nothing. An event of an older attempt, or one that the
    state does not allow, is not applied.

    Raises:
        TransitionError: If the event was not applied; the caller counts it and goes on.
    """
    if isinstance(event, AgendaRefused):
        return _refuse(summary, event)
    if isinstance(event, AgendaCommanded):
        return _command(summary, event)
    if summary is None or summary.state is State.REFUSED:
        summary = Summary(agenda_id=event.agenda_id, state=State.READY)
    if isinstance(event, AgendaAccepted):
        return _accept(summary, event)
    return _apply(_in_attempt(summary, event), event)


def fold_all(
    summary: Summary | None, lifecycle: Iterable[LifecycleEvent]
) -> tuple[Summary | None, int]:
    """The summary after several events of one agenda, and how many were not applied."""
    skipped = 0
    for event in lifecycle:
        try:
            summary = fold(summary, event)
        except TransitionError:
            skipped += 1
    return summary, skipped


def _refuse(summary: Summary | None, event: AgendaRefused) -> Summary:
    state = step(summary.state if summary else None, event)
    if summary and summary.ended_at and event.at <= summary.ended_at:
        return summary
    return Summary(
        agenda_id=event.agenda_id,
        state=state,
        customer_id=event.customer_id or "",
        issues=event.issues,
        body=b"" if event.agenda is UNSET else bytes(event.agenda),
        ended_at=event.at,
    )


def _accept(summary: Summary, event: AgendaAccepted) -> Summary:
    if summary.accepted_at is not None:
        return summary  # an id is one agenda for ever, so this is told again
    return replace(
        summary,
        insight_id=event.insight_id,
        customer_id=event.customer_id,
        title=event.title,
        link_id=event.link_id,
        priority=event.priority,
        operation_names=event.operations,
        body=bytes(event.agenda),
        callback_url=event.callback_url,
        accepted_at=event.at,
    )


def _command(summary: Summary | None, event: AgendaCommanded) -> Summary:
    """What is wanted changes nothing; the scheduler tells what comes of it."""
    if summary is None:
        msg = f"nothing is known of {event.agenda_id}, so nothing can be wanted of it"
        raise TransitionError(msg)
    return summary


def _in_attempt(summary: Summary, event: AttemptEvent) -> Summary:
    """The summary moved on to the event's attempt.

    Operations that succeeded are kept; of the others, how far they were.
    """
    if event.attempt < summary.attempt:
        msg = f"attempt {event.attempt} of {event.agenda_id} is outdated by {summary.attempt}"
        raise TransitionError(msg)
    if event.attempt == summary.attempt:
        return summary
    left = {name: _left(one, summary.attempt) for name, one in summary.operations.items()}
    kept = {name: one for name, one in left.items() if one is not None}
    appended = summary.appended
    if isinstance(event, AgendaRestarted):
        kept = {
            name: kept[name]
            for name in event.keep
            if name in kept and kept[name].state == "succeeded"
        }
        appended, kept = _without_orphans(appended, kept)
    elif summary.state.is_terminal:
        msg = f"{event.agenda_id} ended before its attempt {event.attempt}"
        raise TransitionError(msg)
    return replace(
        summary,
        state=State.READY,
        attempt=event.attempt,
        operations=kept,
        appended=appended,
        history=_remembered(summary),
        message="",
        puller_id="",
        stopping=None,
        heard_at=None,
        lease_ms=0,
        emitted_at=None,
        started_at=None,
        ended_at=None,
        waiting_until=None,
        waiting_for=None,
        diagnostics=(),
    )


def _left(one: OperationProgress, attempt: int) -> OperationProgress | None:
    """What an attempt leaves of an operation to the next, if anything."""
    if one.state == "succeeded":
        return one
    prior = one.prior
    if one.state != "waiting":
        prior = PriorProgress(
            attempt=attempt, state=one.state, percent=_percent_told(one), message=one.message
        )
    if prior is None:
        return None
    return OperationProgress(name=one.name, state="waiting", prior=prior)


def _without_orphans(
    appended: tuple[AppendedOperation, ...], kept: Mapping[str, OperationProgress]
) -> tuple[tuple[AppendedOperation, ...], dict[str, OperationProgress]]:
    """Without those whose appender begins anew: it will append them again, or others."""
    remaining = dict(kept)
    while orphans := [one for one in appended if one.by not in remaining]:
        appended = tuple(one for one in appended if one.by in remaining)
        for one in orphans:
            remaining.pop(appended_name(one), None)
    return appended, remaining


def _remembered(summary: Summary) -> tuple[PastAttempt, ...]:
    past = PastAttempt(
        attempt=summary.attempt,
        outcome=_OUTCOMES.get(summary.state, "lost"),
        puller_id=summary.puller_id,
        emitted_at=summary.emitted_at,
        started_at=summary.started_at,
        ended_at=summary.ended_at,
        message=summary.message,
    )
    return (*summary.history, past)[-MOST_REMEMBERED:]


def _apply(summary: Summary, event: AttemptEvent) -> Summary:
    state = step(summary.state, event)
    insight_id = summary.insight_id or event.insight_id
    if state is not summary.state or insight_id != summary.insight_id:
        summary = replace(summary, state=state, insight_id=insight_id)
    apply = _APPLIED.get(type(event))
    return apply(summary, event) if apply else summary


def _emit(summary: Summary, event: AgendaEmitted) -> Summary:
    return replace(summary, emitted_at=_earliest(summary.emitted_at, event.at))


def _renew(summary: Summary, event: AgendaRenewed) -> Summary:
    return _hear(summary, event.at, lease_ms=event.lease_ms, puller=event.puller_id)


def _progress_on(summary: Summary, event: AgendaProgressed | AgendaStopped) -> Summary:
    if isinstance(event, AgendaProgressed) and event.appended:
        summary = _append(summary, event.appended)
    return _merge(_hear(summary, event.at), event)


def _append(summary: Summary, told: tuple[AppendedOperation, ...]) -> Summary:
    """With what is new by name; of one name told twice with other content, the first."""
    names = {*summary.operation_names}
    by_name: dict[str, AppendedOperation] = {}
    for one in sorted((*summary.appended, *told), key=_appending_order):
        by_name.setdefault(appended_name(one), one)
    appended = tuple(one for name, one in by_name.items() if name not in names)
    return summary if appended == summary.appended else replace(summary, appended=appended)


def _appending_order(one: AppendedOperation) -> tuple[datetime, bytes]:
    return one.at, bytes(one.operation)


class _Named(msgspec.Struct):
    name: str = ""


_NAMED: Final = msgspec.json.Decoder(_Named)


def appended_name(one: AppendedOperation) -> str:
    """The name of an appended operation; empty if a foreign puller told of none."""
    try:
        return _NAMED.decode(one.operation).name
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _stop(summary: Summary, event: AgendaStopping) -> Summary:
    return summary if summary.state.is_terminal else replace(summary, stopping=event.reason)


def _reprioritise(summary: Summary, event: AgendaReprioritised) -> Summary:
    return replace(summary, priority=event.priority)


def _await(summary: Summary, event: AgendaWaiting | AgendaReadied | AgendaHeld) -> Summary:
    if summary.state not in BEFORE_EMISSION:
        return summary
    if not isinstance(event, AgendaWaiting):
        return replace(summary, waiting_until=None, waiting_for=None)
    message = event.message or summary.message
    return replace(
        summary, waiting_until=event.until, waiting_for=event.reason, message=message
    )


def _close(summary: Summary, event: AgendaGivenUp | AgendaCancelled | AgendaExpired) -> Summary:
    return replace(
        summary,
        ended_at=summary.ended_at or event.at,
        message=event.message or summary.message,
        stopping=None,
    )


def _claim(summary: Summary, event: AgendaClaimed) -> Summary:
    heard = _hear(summary, event.at, lease_ms=event.lease_ms, puller=event.puller_id)
    return replace(heard, started_at=_earliest(summary.started_at, event.at))


def _hear(summary: Summary, at: datetime, *, lease_ms: int = 0, puller: str = "") -> Summary:
    return replace(
        summary,
        heard_at=max(at, summary.heard_at or at),
        lease_ms=max(lease_ms, summary.lease_ms),
        puller_id=max(puller, summary.puller_id),
    )


def _end(summary: Summary, event: AgendaSucceeded | AgendaFailed) -> Summary:
    summary = _merge(summary, event)
    if summary.ended_at is not None and summary.ended_at <= event.at:
        return summary
    if isinstance(event, AgendaFailed) and summary.state in _FAILED:
        summary = replace(summary, message=event.message, diagnostics=event.diagnostics)
    return replace(summary, ended_at=event.at)


_FAILED: Final = frozenset({State.RETRYING, State.FAILED})


def _earliest(known: datetime | None, told: datetime) -> datetime:
    return told if known is None or told < known else known


def _merge(
    summary: Summary,
    event: AgendaProgressed | AgendaStopped | AgendaSucceeded | AgendaFailed,
) -> Summary:
    news: dict[str, OperationProgress] = {}
    for told in event.operations:
        one = told if told.reported_at else replace(told, reported_at=event.at)
        known = news.get(one.name) or summary.operations.get(one.name)
        if known is None or _is_further(one, known):
            prior = known.prior if known else None
            news[one.name] = replace(one, prior=prior) if prior else one
    return replace(summary, operations={**summary.operations, **news}) if news else summary


def _is_further(one: OperationProgress, known: OperationProgress) -> bool:
    mine, theirs = _progress(one), _progress(known)
    if mine == theirs:  # any order of the two will do, if it is not that of telling
        return msgspec.json.encode(one) > msgspec.json.encode(known)
    return mine > theirs


def _progress(one: OperationProgress) -> tuple[int, int, float, datetime | None]:
    # What an attempt left has no instant, and is never as far as what the next one tells.
    rank = -1 if one.reported_at is None else _RANK[one.state]
    return rank, one.tries, _percent(one), one.reported_at


def _percent(one: OperationProgress) -> float:
    return 100.0 if one.state in {"succeeded", "failed"} else _percent_told(one)


def _percent_told(one: OperationProgress) -> float:
    return min(100.0, max(0.0, one.percent))


_APPLIED: Final[Mapping[type[AttemptEvent], Callable[[Summary, Any], Summary]]] = {
    AgendaWaiting: _await,
    AgendaReadied: _await,
    AgendaHeld: _await,
    AgendaReprioritised: _reprioritise,
    AgendaEmitted: _emit,
    AgendaClaimed: _claim,
    AgendaRenewed: _renew,
    AgendaProgressed: _progress_on,
    AgendaStopping: _stop,
    AgendaStopped: _progress_on,
    AgendaSucceeded: _end,
    AgendaFailed: _end,
    AgendaGivenUp: _close,
    AgendaCancelled: _close,
    AgendaExpired: _close,
}


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
