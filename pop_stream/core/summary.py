"""The fold: what all events of an agenda, in any order and number, add up to.

Folding is idempotent and, within an attempt, independent of order, so at-least-once
delivery and several producers yield one and the same summary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from pop_stream.core.errors import TransitionError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaFailed,
    AgendaProgressed,
    AgendaRefused,
    AgendaRenewed,
    AgendaSucceeded,
    Diagnostic,
    LifecycleEvent,
    OperationProgress,
    RefusedIssue,
)
from pop_stream.core.lifecycle import State, step

_AttemptEvent = (
    AgendaEmitted
    | AgendaClaimed
    | AgendaRenewed
    | AgendaProgressed
    | AgendaSucceeded
    | AgendaFailed
)

_RANK: Final = {"waiting": 0, "running": 1, "failed": 2, "succeeded": 2}


@dataclass(frozen=True, slots=True)
class Summary:
    """One agenda's roll-up.

    Attributes:
        body: The agenda as accepted, JSON; empty until `agenda.accepted` was folded.
        operation_names: All operations, in the agenda's order.
        operations: Newest progress by operation name; absent ones are waiting.
        lease_until: When the running attempt's lease ends; None unless running.
        issues: Why it was refused.
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
    operations: Mapping[str, OperationProgress] = field(default_factory=dict)
    message: str = ""
    puller_id: str = ""
    lease_until: datetime | None = None
    accepted_at: datetime | None = None
    emitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    issues: tuple[RefusedIssue, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def percent(self) -> float:
        """Mean over all operations; an ended one counts 100, whatever its outcome."""
        if self.state is State.SUCCEEDED:
            return 100.0
        total = max(len(self.operation_names), len(self.operations))
        if not total:
            return 0.0
        return sum(_percent(one) for one in self.operations.values()) / total


def fold(summary: Summary | None, event: LifecycleEvent) -> Summary:
    """The summary after one more event.

    An event told before changes nothing. An event of an older attempt, or one that the
    state does not allow, is not applied.

    Raises:
        TransitionError: If the event was not applied; the caller counts it and goes on.
    """
    if isinstance(event, AgendaAccepted):
        return _accept(summary, event)
    if isinstance(event, AgendaRefused):
        state = step(summary.state if summary else None, event)
        return Summary(
            agenda_id=event.agenda_id,
            state=state,
            customer_id=event.customer_id or "",
            issues=event.issues,
            ended_at=event.at,
        )
    known = summary or Summary(agenda_id=event.agenda_id, state=State.READY)
    return _apply(_in_attempt(known, event), event)


def _accept(summary: Summary | None, event: AgendaAccepted) -> Summary:
    if summary is not None and summary.body:
        msg = f"agenda {event.agenda_id} was accepted before"
        raise TransitionError(msg)
    if summary is not None and summary.state is State.REFUSED:
        step(summary.state, event)
    known = summary or Summary(agenda_id=event.agenda_id, state=step(None, event))
    return replace(
        known,
        insight_id=event.insight_id,
        customer_id=event.customer_id,
        title=event.title,
        link_id=event.link_id,
        priority=event.priority,
        operation_names=event.operations,
        body=bytes(event.agenda),
        accepted_at=event.at,
    )


def _in_attempt(summary: Summary, event: _AttemptEvent) -> Summary:
    """The summary moved on to the event's attempt; only a retry starts one, from 1 on."""
    if event.attempt < summary.attempt:
        msg = f"attempt {event.attempt} of {event.agenda_id} is outdated by {summary.attempt}"
        raise TransitionError(msg)
    if event.attempt == summary.attempt or summary.state.is_terminal:
        return summary
    kept = {name: one for name, one in summary.operations.items() if one.state == "succeeded"}
    return replace(
        summary,
        state=State.READY,
        attempt=event.attempt,
        operations=kept,
        message="",
        puller_id="",
        lease_until=None,
        emitted_at=None,
        started_at=None,
        ended_at=None,
    )


def _apply(summary: Summary, event: _AttemptEvent) -> Summary:
    summary = replace(
        summary,
        state=step(summary.state, event),
        insight_id=summary.insight_id or event.insight_id,
    )
    match event:
        case AgendaEmitted():
            return replace(summary, emitted_at=summary.emitted_at or event.at)
        case AgendaClaimed() | AgendaRenewed():
            return _lease(summary, event)
        case AgendaProgressed():
            return replace(summary, operations=_merge(summary.operations, event.operations))
        case AgendaSucceeded():
            return _end(summary, event)
        case AgendaFailed():
            return replace(
                _end(summary, event), message=event.message, diagnostics=event.diagnostics
            )


def _lease(summary: Summary, event: AgendaClaimed | AgendaRenewed) -> Summary:
    until = event.at + timedelta(milliseconds=event.lease_ms)
    if summary.lease_until is not None and until <= summary.lease_until:
        until = summary.lease_until
    started = summary.started_at
    if isinstance(event, AgendaClaimed):
        started = min(started or event.at, event.at)
    return replace(summary, lease_until=until, puller_id=event.puller_id, started_at=started)


def _end(summary: Summary, event: AgendaSucceeded | AgendaFailed) -> Summary:
    return replace(
        summary,
        ended_at=event.at,
        lease_until=None,
        operations=_merge(summary.operations, event.operations),
    )


def _merge(
    known: Mapping[str, OperationProgress], news: tuple[OperationProgress, ...]
) -> Mapping[str, OperationProgress]:
    merged = dict(known)
    for one in news:
        before = merged.get(one.name)
        if before is None or _progress(one) >= _progress(before):
            merged[one.name] = one
    return merged


def _progress(one: OperationProgress) -> tuple[int, float]:
    return _RANK[one.state], one.percent


def _percent(one: OperationProgress) -> float:
    if one.state in {"succeeded", "failed"}:
        return 100.0
    return min(100.0, max(0.0, one.percent))


def encode_operations(operations: Mapping[str, OperationProgress]) -> bytes:
    """Progress of all operations as one JSON list, in the order they were first heard of."""
    return msgspec.json.encode(list(operations.values()))


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
        """Failed once all ended and any failed, succeeded once all did; else the furthest.

        An agenda that is still to be tried again is not ended, so it never reads as failed.
        """
        ended = [state for state in self.counts if state.is_terminal]
        if len(ended) == len(self.counts):
            return State.SUCCEEDED if set(ended) == {State.SUCCEEDED} else State.FAILED
        if ended or State.RUNNING in self.counts:
            return State.RUNNING
        return State.EMITTED if State.EMITTED in self.counts else State.READY
