"""How a summary lies in rows: the columns of `agendas` and `operations`, both ways."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec
from msgspec import UNSET

from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    OperationProgress,
    OperationWait,
    PriorProgress,
    RefusedIssue,
)
from pop_stream.model.ids import alternate_ids
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.stats import Measures, StatsKey
from pop_stream.policy.lifecycle.summary import PastAttempt, Summary

Row: TypeAlias = tuple[object, ...]

_JSON: Final = msgspec.json.Encoder()
_NAMES: Final = msgspec.json.Decoder(tuple[str, ...])
_ISSUES: Final = msgspec.json.Decoder(tuple[RefusedIssue, ...])
_DIAGNOSTICS: Final = msgspec.json.Decoder(tuple[Diagnostic, ...])
_HISTORY: Final = msgspec.json.Decoder(tuple[PastAttempt, ...])
_APPENDED: Final = msgspec.json.Decoder(tuple[AppendedOperation, ...])
_PRIOR: Final = msgspec.json.Decoder(PriorProgress)
_WAIT: Final = msgspec.json.Decoder(OperationWait)
_STATES: Final[Mapping[str, State]] = {state.value: state for state in State}
_STATE_VALUES: Final[Mapping[State, str]] = {state: state.value for state in State}
"""An enumeration's `value` is looked up in Python, several times for each agenda."""


def agenda_row(summary: Summary, *, version: int, percent: float, accounted: int = 0) -> Row:
    """The row of type `described_agenda_row` for `upsert_agendas`, in column order."""
    return (
        summary.agenda_id,
        version,
        _STATE_VALUES[summary.state],
        summary.attempt,
        _text(summary.insight_id),
        _text(summary.customer_id),
        _text(summary.title),
        _text(summary.link_id) if summary.link_id is not None else None,
        summary.priority,
        _json(summary.body),
        _JSON.encode(summary.operation_names),
        percent,
        _text(summary.message),
        _text(summary.puller_id),
        summary.last_heartbeat_at,
        summary.lease_ms,
        summary.accepted_at,
        summary.emitted_at,
        summary.started_at,
        summary.ended_at,
        _list(summary.issues),
        _list(summary.diagnostics),
        summary.waiting_until,
        summary.waiting_for,
        summary.stopping,
        _list(summary.history),
        summary.callback_url,
        summary.callback_format,
        _list(summary.appended),
        *map(_name, alternate_ids(summary.body)),
        accounted,
    )


def is_description_changed(before: Summary, after: Summary) -> bool:
    """Whether anything changed but how far the agenda is, which is all that most events do."""
    return (
        before.accepted_at != after.accepted_at
        or before.insight_id != after.insight_id
        or before.customer_id != after.customer_id
        or before.title != after.title
        or before.link_id != after.link_id
        or before.operation_names != after.operation_names
        or before.issues != after.issues
        or before.callback_url != after.callback_url
        or before.callback_format != after.callback_format
        or before.body != after.body
    )


def progress_row(summary: Summary, *, version: int, percent: float, accounted: int = 0) -> Row:
    """The row of type `agenda_progress_row` for `update_agenda_progress`, in column order."""
    return (
        summary.agenda_id,
        version,
        _STATE_VALUES[summary.state],
        summary.attempt,
        summary.priority,
        percent,
        _text(summary.message),
        _text(summary.puller_id),
        summary.last_heartbeat_at,
        summary.lease_ms,
        summary.emitted_at,
        summary.started_at,
        summary.ended_at,
        _list(summary.diagnostics),
        summary.waiting_until,
        summary.waiting_for,
        summary.stopping,
        _list(summary.history),
        _list(summary.appended),
        accounted,
    )


def operation_row(agenda_id: str, operation: OperationProgress) -> Row:
    """The row of type `operation_row` for `upsert_operations`, in column order."""
    return (
        agenda_id,
        operation.name,
        operation.state,
        operation.percent,
        _text(operation.message),
        operation.started_at,
        operation.ended_at,
        None if operation.result is UNSET else _json(bytes(operation.result)),
        _list(operation.diagnostics),
        operation.reported_at,
        operation.tries,
        None if operation.prior is None else _JSON.encode(operation.prior),
        None if operation.wait is None else _JSON.encode(operation.wait),
    )


def stats_row(partition: int, key: StatsKey, measures: Measures) -> Row:
    """The row of type `stats_row` for `add`, in column order."""
    names = (key.insight_id, key.customer_id, key.template_id, key.operation_type)
    times = (measures.worker_us, measures.wait_us, measures.run_us)
    counts = (*measures.ends, measures.attempts, *times, measures.waits, measures.runs)
    return (key.hour, partition, *map(_text, names), *counts)


def summary_of(
    row: asyncpg.Record, operations: Mapping[str, OperationProgress], body: bytes = b""
) -> Summary:
    """The summary in a row of `agendas` and those of its operations."""
    return Summary(
        agenda_id=row["agenda_id"],
        state=_STATES[row["state"]],
        attempt=row["attempt"],
        insight_id=row["insight_id"],
        customer_id=row["customer_id"],
        title=row["title"],
        link_id=row["link_id"],
        priority=row["priority"],
        body=body,
        operation_names=_NAMES.decode(row["operation_names"]),
        operations=operations,
        message=row["message"],
        puller_id=row["puller_id"],
        last_heartbeat_at=row["last_heartbeat_at"],
        lease_ms=row["lease_ms"],
        accepted_at=row["accepted_at"],
        emitted_at=row["emitted_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        issues=_ISSUES.decode(row["issues"]) if row["issues"] else (),
        diagnostics=_DIAGNOSTICS.decode(row["diagnostics"]) if row["diagnostics"] else (),
        waiting_until=row["waiting_until"],
        waiting_for=row["waiting_for"],
        stopping=row["stopping"],
        history=_HISTORY.decode(row["history"]) if row["history"] else (),
        callback_url=row["callback_url"],
        callback_format=row["callback_format"],
        appended=_APPENDED.decode(row["appended"]) if row["appended"] else (),
    )


def operation_of(row: asyncpg.Record) -> OperationProgress:
    """The operation in a row of `operations`."""
    diagnostics = row["diagnostics"]
    return OperationProgress(
        name=row["name"],
        state=row["state"],
        percent=row["percent"],
        message=row["message"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        result=UNSET if row["result"] is None else msgspec.Raw(row["result"]),
        diagnostics=_DIAGNOSTICS.decode(diagnostics) if diagnostics else (),
        reported_at=row["reported_at"],
        tries=row["tries"],
        prior=_PRIOR.decode(row["prior"]) if row["prior"] else None,
        wait=_WAIT.decode(row["wait"]) if row["wait"] else None,
    )


def _text(text: str) -> str:
    """What a text column can hold: no NUL, no half of a surrogate pair."""
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _name(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _json(encoded: bytes) -> bytes | None:
    """JSON as the database can hold it, or None where there is none."""
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return encoded.decode(errors="replace").encode()
    return encoded or None


def _list(values: tuple[Any, ...]) -> bytes | None:
    return _JSON.encode(values) if values else None
