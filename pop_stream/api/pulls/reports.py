"""What workers report over HTTP, checked, as the shapes that events carry."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET

from pop_stream.api.http.errors import InvalidError
from pop_stream.api.pulls.leases import Lease
from pop_stream.core.agendas.appended import appended, encode_operation
from pop_stream.core.errors import Issue
from pop_stream.core.events import AppendedOperation, Diagnostic, OperationProgress
from pop_stream.core.lifecycle.summary import appended_name
from pop_stream.shapes.pulls import AppendRequest, DiagnosticReport, OperationReport

RESULT_BYTES: Final = 256 * 1024
"""Largest result of one operation, as JSON."""


def appended_of(
    lease: Lease, wanted: AppendRequest | None, at: datetime
) -> tuple[AppendedOperation, ...]:
    """Operations that are new to the agenda.

    Raises:
        InvalidError: If the operation that makes them is unknown.
        SubmissionError: If one of them is not sound.
    """
    if wanted is None:
        return ()
    known = lease.operations()
    if wanted.by not in {one.name for one in known}:
        raise InvalidError([Issue("append.by", wanted.by, "no operation of this agenda")])
    return tuple(
        AppendedOperation(by=wanted.by, at=at, operation=msgspec.Raw(encode_operation(one)))
        for one in appended(wanted.operations, to=known)
    )


def check(
    lease: Lease, reports: Sequence[OperationReport], new: Sequence[AppendedOperation] = ()
) -> None:
    """Check that reports are of operations of the agenda, and bounded.

    Raises:
        InvalidError: With one issue per fault.
    """
    if not reports:
        return
    known = {one.name for one in lease.operations()} | set(map(appended_name, new))
    issues: list[Issue] = []
    for index, one in enumerate(reports):
        if one.name not in known:
            issues.append(
                Issue(f"operations[{index}].name", one.name, "no operation of this agenda")
            )
        if (size := len(msgspec.json.encode(one.result))) > RESULT_BYTES:
            remedy = f"at most {RESULT_BYTES} bytes; store it elsewhere, report where it is"
            issues.append(Issue(f"operations[{index}].result", f"{size} bytes", remedy))
    if issues:
        raise InvalidError(issues[:10])


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


def diagnostics_of(reports: Sequence[DiagnosticReport], at: datetime) -> tuple[Diagnostic, ...]:
    """The diagnostics as events carry them."""
    return tuple(
        Diagnostic(message=one.message, at=at, code=one.code, detail=one.detail)
        for one in reports
    )


def _raw(result: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(result))
