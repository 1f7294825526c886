"""One agenda: how far it is, why it waits, what was tried, and what may be done with it."""

import asyncio
from collections import Counter
from typing import Any, Final

import msgspec
from multidict import MultiMapping

from pop_stream.api_models.agendas import AgendaProgress, AgendaSummary, OperationView
from pop_stream.api_models.queues import WhyView
from pop_stream.client import ApiError
from pop_stream.console.pictures import MAX_NODES, GraphNode, graph
from pop_stream.console.rendering import NOTHING, Page, pretty
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import NotFoundError
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State

MAX_ROWS: Final = 500
"""Operations and attempts in a table; the API has all."""

ACTIONS: Final = ("cancel", "hold", "release", "reprioritise", "rerun")
"""What may be done with an agenda, each by a form of its own."""

_COMMAND: Final = "command"
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


async def agenda(view: PageView) -> Page:
    """Everything known of one agenda."""
    agenda_id = view.parts["agenda_id"]
    summary, progress = await asyncio.gather(
        view.client.agenda(agenda_id), view.client.progress(agenda_id)
    )
    why = await why_of(view, agenda_id) if summary.state in _WAITS else None
    operations = progress.operations[:MAX_ROWS]
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
            "operations": [_operation(one) for one in operations],
            "more_operations": len(progress.operations) - len(operations),
            "attempts": summary.history[-MAX_ROWS:],
            "body": pretty(summary.agenda) if _has_value(summary.agenda) else "",
        },
        # After a command it may still be shown as it was: the command is on its way.
        is_live=not summary.state.is_terminal or "did" in view.query,
    )


async def act(view: PageView, form: MultiMapping[str]) -> str:
    """Command an agenda; returns where to go on.

    Raises:
        ApiConflictError: If it has come too late; the text says in which state it is.
    """
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
            priority = form.get("priority", "")
            chosen = int(priority) if priority.isdecimal() else None
            await view.client.reprioritise(agenda_id, priority=chosen, reason=reason)
        case "rerun":
            operations = "all" if form.get("operations") == "all" else "failed"
            await view.client.rerun(agenda_id, operations=operations, reason=reason)
        case _:
            raise NotFoundError(_COMMAND, action[:50])
    return f"?did={action}"


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
    if not _has_value(summary.agenda):
        return {}
    accepted: Any = summary.agenda
    if isinstance(accepted, msgspec.Raw):
        accepted = msgspec.json.decode(accepted)
    operations = accepted.get("operations", []) if isinstance(accepted, dict) else []
    found = {one["name"]: list(one.get("depends_on", ())) for one in operations}
    for appended in progress.appended:
        one = msgspec.json.decode(appended.operation)
        found[one["name"]] = list(one.get("depends_on", ()))
    return found


def _folded(progress: AgendaProgress) -> str:
    """Operations by type and state, where there are too many to be drawn."""
    if len(progress.operations) <= MAX_NODES:
        return ""
    counts = Counter((one.type or NOTHING, one.state) for one in progress.operations)
    return "; ".join(f"{kind}: {count} {state}" for (kind, state), count in counts.items())
