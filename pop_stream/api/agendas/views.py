"""Summaries as clients see them."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from pop_stream.api_models.agendas import AgendaProgress, AgendaSummary, LinkView, OperationView
from pop_stream.api_models.base import NULL
from pop_stream.api_models.submissions import Links
from pop_stream.model.errors import Issue
from pop_stream.model.events.base import AppendedOperation, OperationProgress
from pop_stream.model.ids import alternate_ids
from pop_stream.model.tenancy import display_id
from pop_stream.policy.lifecycle.summary import LinkSummary, Summary, appended_name


class _AgendaOperation(msgspec.Struct):
    name: str
    type: str


_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ID: Final = msgspec.json.Decoder(str)
_OPERATION: Final = msgspec.json.Decoder(_AgendaOperation)


class _AgendaOperations(msgspec.Struct):
    operations: list[_AgendaOperation]


_OPERATIONS: Final = msgspec.json.Decoder(_AgendaOperations)


def links_of(agenda_id: str) -> Links:
    """Where an agenda is read."""
    path = f"/v1/agendas/{agenda_id}"
    return Links(agenda=path, progress=f"{path}/progress", events=f"{path}/events")


def agenda_view(summary: Summary, *, seen_by: str | None) -> AgendaSummary:
    """The agenda with all that is known of it but its operations' progress.

    Args:
        summary: Of the agenda.
        seen_by: The customer it is shown to; None is an operator.
    """
    return AgendaSummary(
        id=display_id(summary.agenda_id, seen_by),
        state=summary.state,
        attempt=summary.attempt,
        insight_id=summary.insight_id or None,
        customer_id=summary.customer_id or None,
        title=summary.title,
        link_id=summary.link_id,
        priority=summary.priority,
        percent=rounded(summary.percent),
        message=summary.message,
        puller_id=summary.puller_id or None,
        accepted_at=summary.accepted_at,
        emitted_at=summary.emitted_at,
        started_at=summary.started_at,
        ended_at=summary.ended_at,
        lease_until=summary.lease_until,
        waiting_until=summary.waiting_until,
        waiting_for=summary.waiting_for,
        stopping=summary.stopping,
        duplicate_of=display_id(summary.duplicate_of, seen_by)
        if summary.duplicate_of
        else None,
        history=summary.history,
        issues=tuple(Issue(one.field, one.value, one.message) for one in summary.issues),
        diagnostics=summary.diagnostics,
        agenda=submitted(summary.body, seen_by) if summary.body else NULL,
    )


def submitted(body: bytes, seen_by: str | None) -> msgspec.Raw:
    """An agenda as it was accepted; its own, parent's and template's ids as its reader's.

    Args:
        body: The agenda, JSON.
        seen_by: The customer it is shown to; None is an operator.
    """
    if seen_by is None or f'@{seen_by}"'.encode() not in body:
        return msgspec.Raw(body)
    parts = _PARTS.decode(body)
    if "template" in parts:
        parts["template"] = _renamed(_PARTS.decode(parts["template"]), seen_by)
    return _renamed(parts, seen_by)


def _renamed(parts: Mapping[str, msgspec.Raw], seen_by: str) -> msgspec.Raw:
    """The object with its ids as the customer calls them."""
    shown = {
        name: display_id(_ID.decode(parts[name]), seen_by)
        for name in ("id", "parent_id")
        if name in parts
    }
    return msgspec.Raw(msgspec.json.encode({**parts, **shown}))


def progress_view(summary: Summary, *, seen_by: str | None) -> AgendaProgress:
    """The agenda's operations in its own order, then those that came while it ran.

    Args:
        summary: Of the agenda.
        seen_by: The customer it is shown to; None is an operator.
    """
    return AgendaProgress(
        id=display_id(summary.agenda_id, seen_by),
        state=summary.state,
        attempt=summary.attempt,
        percent=rounded(summary.percent),
        message=summary.message,
        link_id=summary.link_id,
        external_id=alternate_ids(summary.body).external_id,
        started_at=summary.started_at,
        ended_at=summary.ended_at,
        operations=operation_views(summary),
        diagnostics=summary.diagnostics,
        appended=summary.appended,
    )


def operation_views(summary: Summary) -> tuple[OperationView, ...]:
    """All operations: the agenda's, those appended, and those that only a puller reported."""
    types = {**operation_types(summary.body), **_types_of_appended(summary.appended)}
    appended_by = {appended_name(one): one.by for one in summary.appended}
    names = dict.fromkeys((*summary.all_names, *summary.operations))
    return tuple(
        _operation(
            summary.operations.get(name) or OperationProgress(name=name, state="waiting"),
            types.get(name),
            appended_by.get(name),
        )
        for name in names
    )


def link_view(link: LinkSummary) -> LinkView:
    """The roll-up of a link's agendas."""
    return LinkView(
        link_id=link.link_id,
        state=link.state,
        percent=rounded(link.percent),
        total=link.total,
        counts=link.counts,
    )


def _operation(
    one: OperationProgress, kind: str | None, appended_by: str | None
) -> OperationView:
    result = b"" if one.result is UNSET else bytes(one.result)
    return OperationView(
        name=one.name,
        type=kind,
        state=one.state,
        percent=rounded(min(100.0, max(0.0, one.percent))),
        message=one.message,
        started_at=one.started_at,
        ended_at=one.ended_at,
        result=msgspec.Raw(result) if result else NULL,
        diagnostics=one.diagnostics,
        tries=one.tries,
        appended_by=appended_by,
        prior=one.prior,
        wait=one.wait,
    )


def operation_types(body: bytes) -> Mapping[str, str]:
    """Types of the operations that an agenda came with, by name, in its order."""
    if not body:
        return {}
    return {one.name: one.type for one in _OPERATIONS.decode(body).operations}


def _types_of_appended(appended: Sequence[AppendedOperation]) -> Mapping[str, str]:
    known = (_OPERATION.decode(one.operation) for one in appended)
    return {one.name: one.type for one in known}


def rounded(percent: float) -> float:
    """A percent as it is shown."""
    return round(percent, 2)
