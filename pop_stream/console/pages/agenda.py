"""One agenda: how far it is, why it waits, what was tried, and what may be done with it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Literal, get_args

import msgspec
from multidict import MultiMapping
from pydantic import ValidationError

from pop_stream.api_models.agendas import (
    AgendaProgress,
    AgendaSummary,
    CallbackView,
    OperationView,
)
from pop_stream.api_models.dead_letters import DeadLetterView, LetterSelection
from pop_stream.api_models.queues import WhyView
from pop_stream.client import ApiConflictError, ApiError, ApiNotFoundError
from pop_stream.console.numbers import whole_number
from pop_stream.console.pictures import MAX_NODES, GraphNode, Span, graph, time_line
from pop_stream.console.rendering import NOTHING, Page, duration, instant, pretty
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import Issue, NotFoundError, SubmissionError
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.dead_letters import LetterState
from pop_stream.policy.lifecycle.states import State

MAX_ROWS: Final = 500
"""Operations and attempts in a table; the API has all."""

ACTIONS: Final = ("cancel", "hold", "release", "reprioritise", "rerun")
"""What may be done with an agenda, each by a form of its own."""

MAX_CALLBACKS: Final = 20
"""Callbacks that are shown, newest first; the API has more."""

_COMMAND: Final = "command"
_ANY_STATE: Final[tuple[LetterState, ...]] = get_args(LetterState)
_NULL: Final = b"null"
_POSSIBLE: Final[dict[str, frozenset[State]]] = {
    "cancel": frozenset(one for one in State if not one.is_terminal),
    "hold": frozenset({State.ACCEPTED, State.READY, State.WAITING}),
    "release": frozenset({State.HELD}),
    "reprioritise": frozenset({State.ACCEPTED, State.READY, State.WAITING, State.HELD}),
    "rerun": frozenset(
        {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED, State.REFUSED}
    ),
}
_WAITS: Final = frozenset({State.READY, State.WAITING, State.HELD, State.EMITTED})


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt, be it an earlier one or the present one."""

    attempt: int
    state: str
    puller_id: str
    emitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    message: str


@dataclass(frozen=True, slots=True)
class TypeRow:
    """Operations of one type, counted by state."""

    type: str
    total: int
    states: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class CallbackRow:
    """A report of its end to its customer's server.

    Attributes:
        tries: None if that is not known any more.
        letter_id: Of the dead letter that it is; empty if it is none.
    """

    id: str
    state: str
    tries: int | None
    due_at: datetime | None
    ended_at: datetime | None
    reason: str
    letter_id: str
    url: str


async def agenda(view: PageView, *, too_late: str = "") -> Page:
    """Everything known of one agenda.

    Args:
        view: Its path names the agenda.
        too_late: Why a command was not taken, to be shown above the present state.
    """
    agenda_id = view.parts["agenda_id"]
    try:
        summary, progress = await asyncio.gather(
            view.client.agenda(agenda_id), view.client.progress(agenda_id)
        )
    except ApiNotFoundError:
        if view.query.get("did") != "submit":
            raise
        return Page("arriving.html", f"Agenda {agenda_id}", {"id": agenda_id}, is_live=True)
    return await _page(view, summary, progress, too_late)


async def _page(
    view: PageView, summary: AgendaSummary, progress: AgendaProgress, too_late: str
) -> Page:
    agenda_id, attempts = summary.id, _attempts(summary)
    why = await why_of(view, agenda_id) if summary.state in _WAITS else None
    operations = progress.operations[:MAX_ROWS]
    callback_url, callbacks = await _callbacks(view, summary)
    return Page(
        "agenda.html",
        f"Agenda {summary.title or summary.id}",
        {
            "summary": summary,
            "progress": progress,
            "why": why,
            "hints": hints(why),
            "actions": _actions(view, summary.state),
            "picture": _picture(summary, progress),
            "folded": _folded(progress),
            "max_nodes": MAX_NODES,
            "too_late": too_late,
            "may_choose": "rerun" in _actions(view, summary.state),
            "time_line": _time_line(view, attempts),
            "operations": [_operation(one) for one in operations],
            "more_operations": len(progress.operations) - len(operations),
            "attempts": attempts[-MAX_ROWS:],
            "body": pretty(summary.agenda) if _has_value(summary.agenda) else "",
            "callback_url": callback_url,
            "callbacks": callbacks,
        },
        status=HTTPStatus.CONFLICT if too_late else HTTPStatus.OK,
        # After a command it may still be shown as it was: the command is on its way.
        is_live=not summary.state.is_terminal
        or "did" in view.query
        or any(one.state == "waiting" for one in callbacks),
    )


async def act(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Command an agenda; returns where to go on, or its present state if that is too late."""
    try:
        return await _act(view, form)
    except ApiConflictError as error:
        return await agenda(view, too_late=str(error))


async def _act(view: PageView, form: MultiMapping[str]) -> str:
    agenda_id, action = view.parts["agenda_id"], view.parts["action"]
    reason = form.get("reason", "")
    match action:
        case "cancel":
            await view.client.cancel(agenda_id, reason=reason)
        case "hold":
            await view.client.hold(agenda_id, reason=reason)
        case "release":
            await view.client.release(agenda_id, reason=reason)
        case "reprioritise":
            wanted = whole_number(form.get("priority", ""))
            await view.client.reprioritise(agenda_id, priority=wanted, reason=reason)
        case "rerun":
            held = form.get("hold") == "yes"
            chosen = _chosen(form)
            await view.client.rerun(agenda_id, operations=chosen, hold=held, reason=reason)
        case _:
            raise NotFoundError(_COMMAND, action[:50])
    return f"?did={action}"


def _chosen(form: MultiMapping[str]) -> Literal["failed", "all"] | Sequence[str]:
    """Which operations a form has begin anew.

    Raises:
        SubmissionError: If it says those that are ticked, and none is.
    """
    match form.get("operations", "failed"):
        case "all":
            return "all"
        case "chosen":
            names = form.getall("operation", [])
            if not names:
                message = "tick at least one in the table of operations, or choose others"
                raise SubmissionError([Issue("operations", "chosen", message)])
            return names
        case _:
            return "failed"


def _attempts(summary: AgendaSummary) -> Sequence[AttemptRow]:
    """All of them, the present one last; none of one that was never emitted."""
    rows = [
        AttemptRow(
            one.attempt,
            one.outcome,
            one.puller_id,
            one.emitted_at,
            one.started_at,
            one.ended_at,
            one.message,
        )
        for one in summary.history
    ]
    if summary.emitted_at is not None or summary.started_at is not None:
        present = AttemptRow(
            summary.attempt,
            summary.state.value,
            summary.puller_id or "",
            summary.emitted_at,
            summary.started_at,
            summary.ended_at,
            summary.message,
        )
        rows.append(present)
    return rows


def _time_line(view: PageView, attempts: Sequence[AttemptRow]) -> object:
    now = view.now
    begun = [one for one in attempts if one.emitted_at or one.started_at]
    if not begun:
        return ""
    zero = min(at for one in begun for at in (one.emitted_at, one.started_at) if at)
    last = max(one.ended_at or now for one in begun)

    def seconds(at: datetime) -> float:
        return max(0.0, (at - zero).total_seconds())

    spans = [
        Span(
            name=f"attempt {one.attempt}",
            begin=seconds(one.started_at or one.ended_at or now),
            end=seconds(one.ended_at or now),
            state=one.state,
            waited_from=seconds(one.emitted_at) if one.emitted_at else None,
        )
        for one in begun
    ]
    label = "Attempts over time, thin until a puller started; the table says the same"
    return time_line(
        spans, label=label, x_axis=(instant(zero), f"{duration(seconds(last))} on")
    )


async def why_of(view: PageView, agenda_id: str) -> WhyView | None:
    """Why an agenda waits; None if that cannot be had just now."""
    try:
        return await view.client.why(agenda_id)
    except (ApiError, NotFoundError):
        return None  # it has ended meanwhile, or its scheduler does not answer


def hints(why: WhyView | None) -> list[str]:
    """What would let it go earlier, as far as its queue tells."""
    if why is None:
        return []
    hints: list[str] = []
    held_by = why.customer.held_by if why.customer else None
    if held_by == "paused":
        hints.append("An operator resumes its customer, which is paused.")
    elif held_by == "max_in_flight":
        hints.append("One of its customer's running agendas ends, or the customer's cap rises.")
    elif held_by == "rate":
        hints.append("Its customer's rate limit has a token again.")
    if why.own_ahead:
        hints.append("A more urgent priority: it goes before its customer's own agendas.")
    if why.queue and why.queue.limited_by:
        hints.append(f"More room: its insight is limited by {why.queue.limited_by}.")
    elif why.queue and why.position and not held_by:
        hints.append("More runners: its insight's topic is as full as is wanted.")
    return hints


async def _callbacks(
    view: PageView, summary: AgendaSummary
) -> tuple[str, Sequence[CallbackRow]]:
    """Where its end is reported, and what became of each report, newest first."""
    url = _body(summary).get("callback_url") or ""
    where = LetterSelection(kind=("webhook",), agenda_id=(summary.id,), state=_ANY_STATE)
    try:
        reports, found = await asyncio.gather(
            view.client.callbacks(summary.id),
            view.client.dead_letters.page(where, limit=MAX_CALLBACKS),
        )
    except (ApiError, NotFoundError, ValidationError):
        return url, ()  # the page of dead letters says what is wrong
    letters = {one.webhook_id: one for one in reversed(found.letters)}
    rows = [_reported(one, letters.pop(one.id, None)) for one in reports[:MAX_CALLBACKS]]
    rows += [_given_up(one) for one in reversed(letters.values())]
    return url or next((one.url for one in rows if one.url), ""), rows


def _reported(one: CallbackView, letter: DeadLetterView | None) -> CallbackRow:
    is_given_up = one.state == "exhausted"
    return CallbackRow(
        id=one.id,
        state="given_up" if is_given_up else one.state,
        tries=one.tries,
        due_at=one.due_at,
        ended_at=one.ended_at,
        reason=one.reason,
        letter_id=letter.id if letter and is_given_up else "",
        url=one.url,
    )


def _given_up(letter: DeadLetterView) -> CallbackRow:
    """A report of which the letter is all that is kept."""
    return CallbackRow(
        id=letter.webhook_id or letter.id,
        state="given_up" if letter.state == "open" else letter.state,
        tries=None,
        due_at=None,
        ended_at=letter.settled_at or letter.at,
        reason=letter.reason,
        letter_id=letter.id,
        url=letter.url or "",
    )


def _actions(view: PageView, state: State) -> list[str]:
    if not view.may(Role.OPERATE):
        return []
    return [one for one in ACTIONS if state in _POSSIBLE[one]]


def _operation(one: OperationView) -> dict[str, Any]:
    return {**msgspec.structs.asdict(one), "has_result": _has_value(one.result)}


def _has_value(raw: object) -> bool:
    if raw is None or raw is msgspec.UNSET:
        return False
    return bytes(raw) != _NULL if isinstance(raw, msgspec.Raw) else True


def _picture(summary: AgendaSummary, progress: AgendaProgress) -> object:
    """The graph; of more operations than are drawn, nothing."""
    if not progress.operations or len(progress.operations) > MAX_NODES:
        return ""
    after = _dependencies(summary, progress)
    return graph(
        [
            GraphNode(one.name, one.state, after.get(one.name, ()), one.type or "")
            for one in progress.operations
        ]
    )


def _dependencies(summary: AgendaSummary, progress: AgendaProgress) -> dict[str, list[str]]:
    """By operation, those that it comes after; as accepted, and as appended."""
    operations = _body(summary).get("operations", [])
    found = {one["name"]: list(one.get("depends_on", ())) for one in operations}
    for appended in progress.appended:
        one = msgspec.json.decode(appended.operation)
        found[one["name"]] = list(one.get("depends_on", ()))
    return found


def _body(summary: AgendaSummary) -> dict[str, Any]:
    """The agenda as accepted; empty where that is not kept."""
    if not _has_value(summary.agenda):
        return {}
    accepted: Any = summary.agenda
    if isinstance(accepted, msgspec.Raw):
        accepted = msgspec.json.decode(accepted)
    return accepted if isinstance(accepted, dict) else {}


def _folded(progress: AgendaProgress) -> Sequence[TypeRow]:
    """Operations by type and state, where there are too many to be drawn."""
    if len(progress.operations) <= MAX_NODES:
        return ()
    counts: dict[str, Counter[str]] = {}
    for one in progress.operations:
        counts.setdefault(one.type or NOTHING, Counter())[one.state] += 1
    return [
        TypeRow(kind, states.total(), sorted(states.items()))
        for kind, states in sorted(counts.items())
    ]
