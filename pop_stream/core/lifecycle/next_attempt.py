"""What a summary keeps when another attempt begins: history, results, and what was left."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from pop_stream.core.agendas.agenda import parse_agenda
from pop_stream.core.errors import SubmissionError, TransitionError, UnreadableRecordError
from pop_stream.core.events import (
    AgendaRestarted,
    AppendedOperation,
    AttemptEvent,
    OperationProgress,
    PriorProgress,
    decode_routed,
)
from pop_stream.core.lifecycle.lifecycle import State
from pop_stream.core.lifecycle.summary import (
    PastAttempt,
    Summary,
    appended_name,
    reported_percent,
)

MAX_HISTORY: Final = 100
"""Attempts of an agenda whose history is kept; the oldest are forgotten first."""

_OUTCOMES: Final = {
    State.RETRYING: "failed",
    State.FAILED: "failed",
    State.SUCCEEDED: "succeeded",
    State.CANCELLED: "cancelled",
    State.EXPIRED: "expired",
}


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
        history=_with_history(summary),
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
    """Of an agenda that was removed while someone wanted it run again: what it was."""
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


def _with_history(summary: Summary) -> tuple[PastAttempt, ...]:
    past = PastAttempt(
        attempt=summary.attempt,
        outcome=_OUTCOMES.get(summary.state, "lost"),
        puller_id=summary.puller_id,
        emitted_at=summary.emitted_at,
        started_at=summary.started_at,
        ended_at=summary.ended_at,
        message=summary.message,
        diagnostics=summary.diagnostics,
    )
    return (*summary.history, past)[-MAX_HISTORY:]
