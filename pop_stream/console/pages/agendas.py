"""Agendas that fit a filter, page by page, and one command for all of them.

The filter is the page's address, so that a view can be kept and passed on.
"""

from collections.abc import Iterator, Mapping
from typing import Final, get_args
from urllib.parse import parse_qsl, urlencode

from multidict import MultiDict, MultiMapping
from pydantic import ValidationError

from pop_stream.api_models.commands import BulkAction, BulkCommand, Selection
from pop_stream.console.numbers import whole_number
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.events.lifecycle import StopReason, WaitReason
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State

PAGE: Final = 50
"""Agendas of one page."""

_TEXTS: Final = (
    ("ids", "Id"),
    ("customer_id", "Customer"),
    ("insight_id", "Insight"),
    ("link_id", "Link"),
    ("template_id", "Template"),
    ("title", "Title"),
    ("puller_id", "Puller"),
)
_RARE_TEXTS: Final = (
    ("external_id", "External id"),
    ("correlation_id", "Correlation id"),
    ("priority", "Priority"),
    ("attempt", "Attempt"),
    ("waiting_for", "Waiting for"),
    ("stopping", "Stopping"),
)
_INSTANTS: Final = (
    ("accepted_from", "Accepted from"),
    ("accepted_before", "Accepted before"),
)
_RARE_INSTANTS: Final = tuple(
    (f"{step}_{side}", f"{step.capitalize()} {side}")
    for step in ("emitted", "started", "ended")
    for side in ("from", "before")
)
_RARE: Final = (*_RARE_TEXTS, *_RARE_INSTANTS)
FIELDS: Final = (*_TEXTS, *_INSTANTS, *_RARE)
"""Fields of the filter beside the state, with what the form calls them."""

_BULK: Final[tuple[BulkAction, ...]] = get_args(BulkAction)


async def agendas(view: PageView) -> Page:
    """A page of those that fit, with their number."""
    where = selection(view.query)
    order = "oldest" if view.query.get("order") == "oldest" else "newest"
    listed = await view.client.page(
        where,
        newest_first=order == "newest",
        limit=PAGE,
        cursor=view.query.get("cursor") or None,
    )
    following = [*_pairs(view.query), ("order", order), ("cursor", listed.next or "")]
    return Page(
        "agendas.html",
        "Agendas",
        {
            "fields": (*_TEXTS, *_INSTANTS),
            "more_fields": _RARE,
            "has_more": any(view.query.get(name) for name, _ in _RARE),
            "chosen": {name: view.query.get(name, "") for name, _ in FIELDS},
            "states": [one.value for one in State],
            "chosen_states": set(view.query.getall("state", [])),
            "order": order,
            "total": listed.total,
            "total_is_capped": listed.total_is_capped,
            "agendas": listed.agendas,
            "next": f"?{urlencode(following)}" if listed.next else "",
            "may_operate": view.may(Role.OPERATE),
            "filter_query": urlencode([*_pairs(view.query)]),
            "actions": _BULK,
        },
        is_live=True,
    )


async def command_all(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Command all that fit: count first, and do it once that was confirmed.

    Returns:
        The page with the counts, or where to go on when it was done.
    """
    filter_query = form.get("filter", "")
    is_confirmed = form.get("confirmed") == "yes"
    priority = form.get("priority", "").strip()
    fields = {
        "action": form.get("action", ""),
        "filter": selection(MultiDict(parse_qsl(filter_query))),
        "reason": form.get("reason", ""),
        "priority": whole_number(priority) or priority or None,
        "dry_run": not is_confirmed,
    }
    try:
        command = BulkCommand.model_validate(fields)
    except ValidationError as error:
        raise SubmissionError(_issues(error)) from None
    result = await view.client.command(command)
    if is_confirmed:
        return f"/agendas?{filter_query}&did={command.action}&count={result.commanded}"
    return Page(
        "bulk.html",
        f"{command.action.capitalize()}: count",
        {
            "action": command.action,
            "reason": command.reason,
            "priority": priority,
            "result": result,
            "filter_query": filter_query,
        },
    )


def selection(query: MultiMapping[str]) -> Selection:
    """The filter that an address states; fields left empty are not set.

    Raises:
        SubmissionError: If a field cannot be what it is; says which, and what is allowed.
    """
    fields: dict[str, list[str] | str] = {}
    for name, value in _pairs(query):
        if name.endswith(("_from", "_before")):
            fields[name] = value
        else:
            values = fields.setdefault(name, [])
            assert isinstance(values, list)  # noqa: S101  # for the type checker
            values.append(value)
    try:
        return Selection.model_validate(fields)
    except ValidationError as error:
        raise SubmissionError(_issues(error)) from None


def _pairs(query: MultiMapping[str]) -> Iterator[tuple[str, str]]:
    for name in (*(one for one, _ in FIELDS), "state"):
        for value in query.getall(name, []):
            if value.strip():
                yield name, value.strip()


def _issues(error: ValidationError) -> list[Issue]:
    return [
        Issue(
            ".".join(str(part) for part in one["loc"]),
            str(one["input"])[:200],
            _remedy(one["loc"], one["msg"]),
        )
        for one in error.errors()
    ]


def _remedy(where: tuple[int | str, ...], message: str) -> str:
    allowed: Mapping[str, str] = {
        "state": f"one of {', '.join(one.value for one in State)}",
        "priority": "a whole number from 1 to 9",
        "attempt": "a whole number from 1",
        "waiting_for": f"one of {', '.join(get_args(WaitReason))}",
        "stopping": f"one of {', '.join(get_args(StopReason))}",
        **dict.fromkeys(
            (name for name, _ in (*_INSTANTS, *_RARE_INSTANTS)),
            "an instant with an offset, such as 2026-01-31T12:00:00Z",
        ),
    }
    known = allowed.get(str(where[0])) if where else None
    return f"must be {known}" if known else message
