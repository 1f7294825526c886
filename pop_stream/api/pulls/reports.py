"""What workers report over HTTP, checked, as the shapes that events carry.

What a report says in any case: that its worker is alive, whatever can be looked up.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from aiohttp import web
from msgspec import UNSET

from pop_stream.api.http.errors import InvalidError
from pop_stream.api.pulls.leases import Lease, attempt_of
from pop_stream.api_models.pulls import AppendRequest, DiagnosticReport, OperationReport
from pop_stream.model.agenda import appended, encode_operation
from pop_stream.model.errors import Issue
from pop_stream.model.events.base import AppendedOperation, Diagnostic, OperationProgress
from pop_stream.model.identity import Principal, Role
from pop_stream.model.tenancy import candidate_ids
from pop_stream.policy.lifecycle.summary import appended_name
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.deliveries import Hearsay

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


class SignsOfLife:
    """Passes on signs of life while it cannot be looked up whose an attempt is.

    An outage of the database is no worker's silence. The scheduler knows which attempts are
    out, so it judges; and it hears only of who may pull from its insight, so nobody keeps
    alive what is another customer's.

    Args:
        hearsay: Takes them to the schedulers.
        definitions: Tell which insights are whose.
    """

    def __init__(self, hearsay: Hearsay, definitions: DefinitionSource) -> None:
        self._hearsay = hearsay
        self._definitions = definitions

    def pass_on(self, request: web.Request, principal: Principal) -> None:
        """Pass on that the caller says it is at the attempt that the path names."""
        attempt = attempt_of(request.match_info["attempt"])
        if attempt is None or not principal.has_role(Role.PULL):
            return
        insights = [
            insight.id
            for insight in self._definitions.current.insights.values()
            if principal.speaks_for(insight.ownership.owner)
        ]
        for agenda_id in candidate_ids(request.match_info["agenda_id"], principal):
            self._hearsay.pass_on(agenda_id, attempt, insights)
