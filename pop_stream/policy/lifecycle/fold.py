"""The fold: what all events of an agenda, in any order and number, add up to.

Folding is idempotent and, within an attempt, independent of order, so at-least-once delivery
and several producers yield one and the same summary. When another attempt begins, the one
before goes into the history, and operations keep what the rerun says they keep.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.appended_operations import MAX_OPERATIONS_BYTES, all_operations
from pop_stream.model.errors import SubmissionError, TransitionError, UnreadableRecordError
from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    OperationProgress,
    OperationWait,
    PriorProgress,
)
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaCancelled,
    AgendaClaimed,
    AgendaCommanded,
    AgendaDeferred,
    AgendaEmitted,
    AgendaExhausted,
    AgendaExpired,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaHeld,
    AgendaProgressed,
    AgendaReady,
    AgendaRefused,
    AgendaReprioritised,
    AgendaResolved,
    AgendaRestarted,
    AgendaStopped,
    AgendaStopping,
    AgendaSucceeded,
    AgendaWaiting,
    AttemptEvent,
    LifecycleEvent,
)
from pop_stream.policy.lifecycle.states import BEFORE_EMISSION, State, step
from pop_stream.policy.lifecycle.summary import (
    DUPLICATE,
    Summary,
    appended_name,
    percent_of,
    reported_percent,
    result_bytes,
    with_history,
)

MAX_RESULTS_BYTES: Final = 16 * 1024 * 1024
"""Of all results of an agenda, which are read together."""

RESULT_NOT_KEPT: Final = (
    f"its result was not kept: those of an agenda have {MAX_RESULTS_BYTES:,} bytes at most; "
    "store results elsewhere, and report where they are"
)


def advance_to_attempt(summary: Summary, event: AttemptEvent) -> Summary:
    """The summary moved on to the event's attempt.

    Operations that succeeded are kept; of the others, how far they were.
    """
    if event.attempt < summary.attempt:
        msg = f"attempt {event.attempt} of {event.agenda_id} is outdated by {summary.attempt}"
        raise TransitionError(msg)
    if event.attempt == summary.attempt:
        return summary
    if isinstance(event, AgendaRestarted) and summary.accepted_at is None:
        summary = _from_placed(summary, event)
    left = {name: _carry_over(one, summary.attempt) for name, one in summary.operations.items()}
    kept = {name: one for name, one in left.items() if one is not None}
    appended = summary.appended
    if isinstance(event, AgendaRestarted):
        kept = {name: replace(one, wait=None) for name, one in kept.items()}
        appended, kept = _reset(appended, kept, event.reset)
    elif summary.state.is_terminal:
        msg = f"{event.agenda_id} ended before its attempt {event.attempt}"
        raise TransitionError(msg)
    return replace(
        summary,
        state=State.READY,
        attempt=event.attempt,
        operations=kept,
        appended=appended,
        history=with_history(summary),
        message="",
        puller_id="",
        stopping=None,
        last_heartbeat_at=None,
        lease_ms=0,
        emitted_at=None,
        started_at=None,
        ended_at=None,
        waiting_until=None,
        waiting_for=None,
        diagnostics=(),
    )


def _from_placed(summary: Summary, event: AgendaRestarted) -> Summary:
    """The summary of an agenda that was removed while it was restarted, from that event."""
    try:
        placed = decode_routed(event.routed)
        agenda = parse_agenda(bytes(placed.agenda), is_accepted=True)
    except (UnreadableRecordError, SubmissionError):
        return summary
    return replace(
        summary,
        insight_id=event.insight_id,
        customer_id=placed.customer_id,
        title=agenda.title,
        link_id=agenda.link_id,
        priority=placed.priority,
        operation_names=tuple(one.name for one in agenda.operations),
        body=bytes(placed.agenda),
        callback_url=agenda.callback_url,
        callback_format=agenda.callback_format or "json",
        accepted_at=placed.accepted_at,
    )


def _carry_over(one: OperationProgress, attempt: int) -> OperationProgress | None:
    """What an attempt leaves of an operation to the next, if anything."""
    if one.state == "succeeded":
        return one
    prior = one.prior
    if one.state != "waiting":
        prior = PriorProgress(
            attempt=attempt,
            state=one.state,
            percent=reported_percent(one),
            message=one.message,
            diagnostics=one.diagnostics,
        )
    if prior is None and one.wait is None:
        return None
    said = one.message if one.wait and one.state == "waiting" else ""
    return OperationProgress(
        name=one.name, state="waiting", message=said, prior=prior, wait=one.wait
    )


def _reset(
    appended: tuple[AppendedOperation, ...],
    left: dict[str, OperationProgress],
    names: Literal["all"] | tuple[str, ...],
) -> tuple[tuple[AppendedOperation, ...], dict[str, OperationProgress]]:
    """Without what these operations left, and without what they appended.

    They will append that again, or other operations. Whatever was appended since the names were
    chosen goes with its appender too.
    """
    if names == "all":
        return (), {}
    gone = {*names}
    while orphans := [one for one in appended if one.by in gone]:
        appended = tuple(one for one in appended if one.by not in gone)
        gone.update(map(appended_name, orphans))
    return appended, {name: one for name, one in left.items() if name not in gone}


_RANK: Final = {"waiting": 0, "running": 1, "failed": 3, "succeeded": 4}
_DEFERRED_RANK: Final = 2


def fold(summary: Summary | None, event: LifecycleEvent) -> Summary:
    """The summary after one more event.

    A repeated event changes nothing. An event of an older attempt, or one that the
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
    return _apply(advance_to_attempt(summary, event), event)


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
        return summary  # an id is one agenda for ever, so this is a repeat
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
        callback_format=event.callback_format,
        accepted_at=event.at,
    )


def _command(summary: Summary | None, event: AgendaCommanded) -> Summary:
    """A command changes nothing by itself; the scheduler reports what comes of it."""
    if summary is None:
        msg = f"nothing is known of {event.agenda_id}, so nothing can be wanted of it"
        raise TransitionError(msg)
    return summary


def _apply(summary: Summary, event: AttemptEvent) -> Summary:
    state = step(summary.state, event)
    insight_id = summary.insight_id or event.insight_id
    if state is not summary.state or insight_id != summary.insight_id:
        summary = replace(summary, state=state, insight_id=insight_id)
    apply = _APPLIED.get(type(event))
    return apply(summary, event) if apply else summary


def _emit(summary: Summary, event: AgendaEmitted) -> Summary:
    return replace(summary, emitted_at=_earliest(summary.emitted_at, event.at))


def _heartbeat(summary: Summary, event: AgendaHeartbeat) -> Summary:
    return _touch(summary, event.at, lease_ms=event.lease_ms, puller=event.puller_id)


def _progress_on(summary: Summary, event: AgendaProgressed | AgendaStopped) -> Summary:
    if isinstance(event, AgendaProgressed) and event.appended:
        summary = _append(summary, event.appended)
    return _merge(_touch(summary, event.at), event)


def _append(summary: Summary, appended: tuple[AppendedOperation, ...]) -> Summary:
    """With what is new by name, ignoring case; of one name with different contents, the first.

    Raises:
        TransitionError: If one is no operation, as a foreign puller may write it: nobody could
            ever run it.
    """
    known = {bytes(one.operation) for one in summary.appended}
    try:
        all_operations((), [one for one in appended if bytes(one.operation) not in known])
    except SubmissionError as error:
        msg = f"an appended operation of {summary.agenda_id} is none: {error}"
        raise TransitionError(msg) from error
    names = {name.casefold() for name in summary.operation_names}
    by_name: dict[str, AppendedOperation] = {}
    for one in sorted((*summary.appended, *appended), key=_appending_order):
        by_name.setdefault(appended_name(one).casefold(), one)
    appended = tuple(one for name, one in by_name.items() if name not in names)
    if (size := sum(len(one.operation) for one in appended)) > MAX_OPERATIONS_BYTES:
        msg = f"{summary.agenda_id} has {size} bytes of appended operations with this event"
        raise TransitionError(msg)
    return summary if appended == summary.appended else replace(summary, appended=appended)


def _appending_order(one: AppendedOperation) -> tuple[datetime, bytes]:
    return one.at, bytes(one.operation)


def _stop(summary: Summary, event: AgendaStopping) -> Summary:
    return summary if summary.state.is_terminal else replace(summary, stopping=event.reason)


def _resolve(summary: Summary, event: AgendaResolved) -> Summary:
    noted = Diagnostic(message=event.reason, at=event.at, code=event.code)
    diagnostics = (noted,) if event.code else ()
    one = OperationProgress(
        name=event.operation,
        state=event.outcome,
        percent=100.0 if event.outcome == "succeeded" else 0.0,
        message=event.reason,
        ended_at=event.at,
        result=event.result,
        diagnostics=diagnostics,
    )
    return _merge_operations(summary, (one,), event.at)


def _reprioritise(summary: Summary, event: AgendaReprioritised) -> Summary:
    return replace(summary, priority=event.priority)


def _set_waiting(summary: Summary, event: AgendaWaiting | AgendaReady | AgendaHeld) -> Summary:
    if summary.state not in BEFORE_EMISSION:
        return summary
    if not isinstance(event, AgendaWaiting):
        return replace(summary, waiting_until=None, waiting_for=None)
    message = event.message or summary.message
    return replace(
        summary, waiting_until=event.until, waiting_for=event.reason, message=message
    )


def _close(
    summary: Summary, event: AgendaExhausted | AgendaCancelled | AgendaExpired
) -> Summary:
    if isinstance(event, AgendaCancelled) and event.duplicate_of:
        named = Diagnostic(
            message=event.message,
            at=event.at,
            code=DUPLICATE,
            detail={"agenda_id": event.duplicate_of},
        )
        if summary.duplicate_of is None:
            summary = replace(summary, diagnostics=(named,))
    return replace(
        summary,
        ended_at=summary.ended_at or event.at,
        message=event.message or summary.message,
        stopping=None,
    )


def _claim(summary: Summary, event: AgendaClaimed) -> Summary:
    touched = _touch(summary, event.at, lease_ms=event.lease_ms, puller=event.puller_id)
    return replace(touched, started_at=_earliest(summary.started_at, event.at))


def _touch(summary: Summary, at: datetime, *, lease_ms: int = 0, puller: str = "") -> Summary:
    return replace(
        summary,
        last_heartbeat_at=max(at, summary.last_heartbeat_at or at),
        lease_ms=max(lease_ms, summary.lease_ms),
        puller_id=max(puller, summary.puller_id),
    )


def _end(summary: Summary, event: AgendaSucceeded | AgendaFailed | AgendaDeferred) -> Summary:
    summary = _merge(summary, event)
    if summary.ended_at is not None and summary.ended_at <= event.at:
        return summary
    if isinstance(event, AgendaFailed) and summary.state in _FAILED:
        summary = replace(
            summary, message=event.message, diagnostics=event.diagnostics, waiting_for=None
        )
    elif isinstance(event, AgendaDeferred) and summary.state in _FAILED:
        summary = replace(summary, message=event.message, waiting_for="not_yet")
    return replace(summary, ended_at=event.at)


_FAILED: Final = frozenset({State.RETRYING, State.FAILED})


def _earliest(known: datetime | None, reported: datetime) -> datetime:
    return reported if known is None or reported < known else known


def _merge(
    summary: Summary,
    event: AgendaProgressed | AgendaStopped | AgendaSucceeded | AgendaFailed | AgendaDeferred,
) -> Summary:
    return _merge_operations(summary, event.operations, event.at)


def _merge_operations(
    summary: Summary, reports: Iterable[OperationProgress], at: datetime
) -> Summary:
    changed: dict[str, OperationProgress] = {}
    for reported in reports:
        one = reported if reported.reported_at else replace(reported, reported_at=at)
        known = changed.get(one.name) or summary.operations.get(one.name)
        if known is None:
            changed[one.name] = one
            continue
        further = one if _is_further(one, known) else known
        wait = _wait_of(further, one, known)
        if further is one or wait != known.wait:
            changed[one.name] = replace(further, prior=known.prior, wait=wait)
    if not changed:
        return summary
    return replace(summary, operations=_bounded_results(summary.operations, changed))


def _bounded_results(
    known: Mapping[str, OperationProgress], changed: dict[str, OperationProgress]
) -> Mapping[str, OperationProgress]:
    """All operations, without the results of those that changed if all have too many bytes."""
    operations = {**known, **changed}
    if not any(map(result_bytes, changed.values())):
        return operations
    left = MAX_RESULTS_BYTES - sum(map(result_bytes, operations.values()))
    for name in reversed(changed):
        if left >= 0:
            break
        left += result_bytes(operations[name])
        operations[name] = replace(changed[name], result=UNSET, message=RESULT_NOT_KEPT)
    return operations


def _is_further(one: OperationProgress, known: OperationProgress) -> bool:
    mine, theirs = _progress(one), _progress(known)
    if mine == theirs:  # any order of the two will do, if it is not the order of arrival
        return msgspec.json.encode(one) > msgspec.json.encode(known)
    return mine > theirs


def _progress(one: OperationProgress) -> tuple[int, int, float, datetime | None]:
    # What an attempt left has no instant, and is never as far as what the next one reports.
    rank = -1 if one.reported_at is None else _RANK[one.state]
    if one.state == "waiting" and one.ended_at is not None:
        rank = _DEFERRED_RANK
    return rank, one.tries, percent_of(one), one.reported_at


def _wait_of(
    further: OperationProgress, one: OperationProgress, other: OperationProgress
) -> OperationWait | None:
    """What an operation waits for, or did before it began again; since the first wait."""
    waits = [each.wait for each in (one, other) if each.wait is not None]
    if not waits or further.state in _ENDED:
        return None
    newest = further.wait or max(waits, key=lambda each: each.until)
    return replace(newest, since=min(each.since for each in waits))


_ENDED: Final = frozenset({"failed", "succeeded"})


_APPLIED: Final[Mapping[type[AttemptEvent], Callable[[Summary, Any], Summary]]] = {
    AgendaWaiting: _set_waiting,
    AgendaReady: _set_waiting,
    AgendaHeld: _set_waiting,
    AgendaReprioritised: _reprioritise,
    AgendaEmitted: _emit,
    AgendaClaimed: _claim,
    AgendaHeartbeat: _heartbeat,
    AgendaProgressed: _progress_on,
    AgendaStopping: _stop,
    AgendaStopped: _progress_on,
    AgendaSucceeded: _end,
    AgendaFailed: _end,
    AgendaDeferred: _end,
    AgendaResolved: _resolve,
    AgendaExhausted: _close,
    AgendaCancelled: _close,
    AgendaExpired: _close,
}
