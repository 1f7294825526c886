"""What workers report over HTTP, checked, and as events carry it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET

from pop_stream.api.http.errors import InvalidError
from pop_stream.api_models.pulls import (
    AppendRequest,
    Completion,
    DiagnosticReport,
    OperationReport,
)
from pop_stream.model.agenda import Operation, parse_agenda
from pop_stream.model.appended_operations import encode_operation, new_operations
from pop_stream.model.errors import Issue
from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    OperationProgress,
    OperationWait,
)
from pop_stream.model.events.lifecycle import AgendaDeferred, AgendaFailed
from pop_stream.policy.completion_token import CompletionTokens, hand_over, renewed
from pop_stream.policy.lease_token import LeaseClaims
from pop_stream.policy.lifecycle.summary import Summary, appended_name, operations_of
from pop_stream.policy.operation_waits import timed_out, wait_on

_SHOWN: Final = 40
_OF_COMPLETION: Final = "with the kind `completion`, the token made for this attempt of it"

RESULT_BYTES: Final = 256 * 1024
"""Largest result of one operation, as JSON."""


def appended_of(
    known: Sequence[Operation], wanted: AppendRequest, at: datetime
) -> tuple[AppendedOperation, ...]:
    """Operations that are new to the agenda.

    Args:
        known: All that the agenda has.
        wanted: What its worker appends.
        at: The present instant.

    Raises:
        InvalidError: If the operation that makes them is unknown.
        SubmissionError: If one of them is not sound.
    """
    if wanted.by not in {one.name for one in known}:
        raise InvalidError([Issue("append.by", wanted.by, "no operation of this agenda")])
    return tuple(
        AppendedOperation(by=wanted.by, at=at, operation=msgspec.Raw(encode_operation(one)))
        for one in new_operations(wanted.operations, to=known)
    )


def check(
    summary: Summary | None,
    reports: Sequence[OperationReport],
    new: Sequence[AppendedOperation] = (),
) -> None:
    """Check that reports are of operations of the agenda, and bounded.

    Args:
        summary: Has all operations; None while it cannot be read: then names are believed, as
            those that pullers on Kafka report are.
        reports: Of its worker.
        new: What is appended with them.

    Raises:
        InvalidError: With one issue per fault.
    """
    if not reports:
        return
    names = {*(summary.all_names if summary else ()), *map(appended_name, new)}
    issues: list[Issue] = []
    for index, one in enumerate(reports):
        if summary is not None and one.name not in names:
            issues.append(
                Issue(f"operations[{index}].name", one.name, "no operation of this agenda")
            )
        if (size := len(msgspec.json.encode(one.result))) > RESULT_BYTES:
            remedy = f"at most {RESULT_BYTES} bytes; store it elsewhere, report where it is"
            issues.append(Issue(f"operations[{index}].result", f"{size} bytes", remedy))
    if issues:
        raise InvalidError(issues[:10])


def may_have_succeeded(
    summary: Summary | None, reports: Sequence[OperationReport], *, unfinished: int
) -> bool:
    """Whether all operations of the agenda have succeeded, as far as is known here.

    Args:
        summary: Of the attempt; None while it cannot be read: then it is enough that as many
            are reported as had not succeeded when the attempt was delivered.
        reports: Of its worker, with the end.
        unfinished: So many had not.
    """
    if summary is None:
        return len({one.name for one in reports if one.state == "succeeded"}) >= unfinished
    return not _left(summary, reports)


def expect_all_succeeded(summary: Summary, reports: Sequence[OperationReport]) -> None:
    """Check that all operations of the agenda have succeeded.

    Raises:
        InvalidError: With one issue for each of those that have not, ten at most.
    """
    remedy = (
        "has not succeeded, as far as was reported; report it as succeeded, here or before, or "
        "complete the attempt as failed"
    )
    if left := _left(summary, reports):
        raise InvalidError([Issue("operations", name, remedy) for name in left[:10]])


def _left(summary: Summary, reports: Sequence[OperationReport]) -> Sequence[str]:
    states = {one.name: one.state for one in reports}
    unfinished = {*summary.unfinished}
    return [
        name
        for name in dict.fromkeys((*summary.all_names, *states))
        if states.get(name, "succeeded" if name not in unfinished else None) != "succeeded"
    ]


def progress_of(
    reports: Sequence[OperationReport], at: datetime
) -> tuple[OperationProgress, ...]:
    """The reports as events carry them."""
    return tuple(
        OperationProgress(
            name=one.name,
            state=one.state,
            percent=100.0 if one.state == "succeeded" else one.percent,
            message=one.message,
            started_at=one.started_at,
            ended_at=one.ended_at,
            result=UNSET if one.result is None else _raw(one.result),
            diagnostics=diagnostics_of(one.diagnostics, at),
            tries=one.tries,
        )
        for one in reports
    )


def check_waits(summary: Summary | None, end: Completion) -> None:
    """Check that an end says what waits if it says that something does, and only then.

    Raises:
        InvalidError: With one issue per fault.
    """
    is_deferred = end.outcome == "not_yet"
    if is_deferred is not bool(end.waits):
        remedy = "name the operations that wait with the outcome `not_yet`, and only with it"
        raise InvalidError([Issue("waits", f"{len(end.waits)} operations", remedy)])
    names = {one.name for one in operations_of(summary)} if summary is not None else set()
    issues = [
        Issue(f"waits[{index}].name", one.name, "no operation of this agenda")
        for index, one in enumerate(end.waits)
        if summary is not None and one.name not in names
    ]
    issues += [
        Issue(f"waits[{index}].signal", one.signal, "name a signal with this kind, and only so")
        for index, one in enumerate(end.waits)
        if bool(one.signal) is not (one.kind == "signal")
    ]
    issues += [
        Issue(f"waits[{index}].completion_token", one.completion_token[:_SHOWN], _OF_COMPLETION)
        for index, one in enumerate(end.waits)
        if one.completion_token and one.kind != "completion"
    ]
    if issues:
        raise InvalidError(issues[:10])


def hand_overs(
    summary: Summary | None,
    end: Completion,
    claims: LeaseClaims,
    tokens: CompletionTokens,
    now: datetime,
) -> Mapping[str, OperationWait]:
    """By operation, the waits of those that are completed by tokens.

    Raises:
        InvalidError: With one issue for each that names no token of this attempt of it, and
            was not handed over before.
    """
    waits: dict[str, OperationWait] = {}
    issues: list[Issue] = []
    for index, one in enumerate(end.waits):
        if one.kind != "completion":
            continue
        said = tokens.read(one.completion_token) if one.completion_token else None
        known = summary.operations.get(one.name) if summary is not None else None
        meant = (claims.agenda_id, claims.attempt, one.name)
        if said is not None and (said.agenda_id, said.attempt, said.operation) == meant:
            waits[one.name] = hand_over(one.completion_token, said, now)
        elif not one.completion_token and known and known.wait and known.wait.token:
            waits[one.name] = renewed(known.wait, now)
        else:
            field = f"waits[{index}].completion_token"
            issues.append(Issue(field, one.completion_token[:_SHOWN], _OF_COMPLETION))
    if issues:
        raise InvalidError(issues[:10])
    return waits


def deferred_event(
    summary: Summary | None,
    end: Completion,
    facts: Mapping[str, Any],
    now: datetime,
    handed_over: Mapping[str, OperationWait],
) -> AgendaDeferred | AgendaFailed:
    """The end of an attempt in which operations wait; a failure if one has for too long.

    Args:
        summary: Says since when they wait and for how long they may. While it cannot be read,
            they wait from now on, and a later look finds the time-out.
        end: As its worker reports it.
        facts: Fields that all ends have.
        now: The present instant.
        handed_over: The waits of those that are completed by tokens.
    """
    limits = _limits(summary) if summary is not None else {}
    waiting: list[OperationProgress] = []
    for one in end.waits:
        known = summary.operations.get(one.name) if summary is not None else None
        since = known.wait.since if known is not None and known.wait is not None else now
        wait = handed_over.get(one.name) or wait_on(
            since=since,
            now=now,
            recheck_s=one.recheck_s,
            within_s=limits.get(one.name),
            kind=one.kind,
            signal=one.signal,
        )
        if wait is None:
            why = f"operation {one.name!r} failed: {timed_out(since, now, one.message)}"
            return AgendaFailed(**facts, message=why, retryable=False)
        waiting.append(
            OperationProgress(
                name=one.name, state="waiting", message=one.message, ended_at=now, wait=wait
            )
        )
    first = min(waiting, key=lambda one: _until(one, now))
    said = f" waits: {first.message}" if first.message else " waits"
    operations = (*facts["operations"], *waiting)
    return AgendaDeferred(
        **{**facts, "operations": operations},
        until=_until(first, now),
        message=f"operation {first.name!r}{said}",
    )


def _until(one: OperationProgress, now: datetime) -> datetime:
    return one.wait.until if one.wait is not None else now


def _limits(summary: Summary) -> Mapping[str, float | None]:
    """By operation, for how long it may wait."""
    agenda = parse_agenda(summary.body, is_accepted=True)
    return {
        one.name: one.wait_within_s or agenda.wait_within_s for one in operations_of(summary)
    }


def diagnostics_of(reports: Sequence[DiagnosticReport], at: datetime) -> tuple[Diagnostic, ...]:
    """The diagnostics as events carry them."""
    return tuple(
        Diagnostic(message=one.message, at=at, code=one.code, detail=one.detail)
        for one in reports
    )


def _raw(result: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(result))
