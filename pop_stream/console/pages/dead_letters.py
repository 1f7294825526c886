"""What came to nothing: by reason, one by one, redriven and discarded.

The filter is the page's address, as that of agendas is.
"""

import base64
import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final, get_args
from urllib.parse import parse_qsl, urlencode

from multidict import MultiDict, MultiMapping
from pydantic import ValidationError

from pop_stream.api_models.dead_letters import (
    DeadLetterDetail,
    LetterAction,
    LetterCommand,
    LetterSelection,
)
from pop_stream.console.numbers import whole_number
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import NotFoundError, SubmissionError
from pop_stream.model.identity import Role
from pop_stream.model.validation import issues_of
from pop_stream.policy.lifecycle.dead_letters import LetterKind, LetterState

PAGE: Final = 50
"""Letters of one page."""

_FIELDS: Final = (
    ("code", "Code"),
    ("customer_id", "Customer"),
    ("insight_id", "Insight"),
    ("agenda_id", "Agenda"),
    ("from_at", "From"),
    ("before_at", "Before"),
)
"""Texts of the filter beside kind and state, with what the form calls them."""

_SINGLE: Final = frozenset({"from_at", "before_at"})
_ACTIONS: Final[tuple[LetterAction, ...]] = get_args(LetterAction)


async def dead_letters(view: PageView) -> Page:
    """How many fit by reason, and a page of them."""
    where = _selection(view.query)
    before = view.query.get("before", "")
    calls = view.client.dead_letters
    counts = await calls.reasons(where)
    listed = await calls.page(where, limit=PAGE, before=whole_number(before))
    filter_query = urlencode([*_pairs(view.query)])
    reasons = [
        (one, urlencode([*_narrowed(view.query, kind=one.kind, code=one.code)]))
        for one in counts.reasons
    ]
    following = [*_pairs(view.query), ("before", str(listed.next or ""))]
    return Page(
        "dead_letters.html",
        "Dead letters",
        {
            "fields": _FIELDS,
            "chosen": {name: view.query.get(name, "") for name, _ in _FIELDS},
            "kinds": get_args(LetterKind),
            "chosen_kinds": set(where.kind),
            "states": get_args(LetterState),
            "chosen_states": set(where.state),
            "counts": counts,
            "reasons": reasons,
            "letters": listed.letters,
            "next": f"?{urlencode(following)}" if listed.next else "",
            "may_operate": view.may(Role.OPERATE),
            "filter_query": filter_query,
            "actions": _ACTIONS,
        },
        is_live=True,
    )


async def dead_letter(view: PageView) -> Page:
    """One letter, with its value and what can be done about it."""
    return _letter_page(view, await view.client.dead_letters.get(view.parts["letter_id"]))


async def settle_letter(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Redrive or discard one letter; what could not be done is said on its page.

    Raises:
        NotFoundError: If the path names neither.
    """
    letter_id, action = view.parts["letter_id"], view.parts["action"]
    if action not in _ACTIONS:
        kind = "command"
        raise NotFoundError(kind, action)
    calls, reason = view.client.dead_letters, form.get("reason", "")
    send = calls.redrive if action == "redrive" else calls.discard
    result = await send(letter_id, reason=reason)
    if result.outcome == "done":
        return f"/dead-letters/{letter_id}?did={action}"
    return _letter_page(view, await calls.get(letter_id), fault=result.detail)


async def command_letters(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Redrive or discard all that fit: count first, and do it once that was confirmed."""
    filter_query = form.get("filter", "")
    is_confirmed = form.get("confirmed") == "yes"
    fields = {
        "action": form.get("action", ""),
        "filter": _selection(MultiDict(parse_qsl(filter_query))),
        "reason": form.get("reason", ""),
        "dry_run": not is_confirmed,
    }
    try:
        command = LetterCommand.model_validate(fields)
    except ValidationError as error:
        raise SubmissionError(issues_of(error, document="command")) from None
    result = await view.client.dead_letters.command(command)
    return Page(
        "letters_commanded.html",
        f"{command.action.capitalize()}: {'done' if is_confirmed else 'count'}",
        {
            "action": command.action,
            "reason": command.reason,
            "result": result,
            "done": result.outcomes.get("done", 0),
            "filter_query": filter_query,
        },
    )


def _letter_page(view: PageView, letter: DeadLetterDetail, *, fault: str = "") -> Page:
    may = view.may(Role.OPERATE) and letter.state == "open"
    actions = [one for one in _ACTIONS if one == "discard" or letter.is_redrivable]
    return Page(
        "dead_letter.html",
        f"Dead letter {letter.id}",
        {
            "letter": letter,
            "value": _value(letter),
            "actions": actions if may else (),
            "fault": fault,
        },
        status=HTTPStatus.CONFLICT if fault else HTTPStatus.OK,
    )


def _value(letter: DeadLetterDetail) -> object:
    """The value as JSON if it is some, else as text; what is no text has marks in it."""
    raw = base64.b64decode(letter.value_base64)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode(errors="replace")


def _selection(query: MultiMapping[str]) -> LetterSelection:
    """The filter that an address states; fields left empty are not set.

    Raises:
        SubmissionError: If a field cannot be what it is; says which, and what is allowed.
    """
    fields: dict[str, list[str] | str] = {}
    for name, value in _pairs(query):
        if name in _SINGLE:
            fields[name] = value
            continue
        values = fields.setdefault(name, [])
        assert isinstance(values, list)  # noqa: S101  # instants alone are not
        values.append(value)
    try:
        return LetterSelection.model_validate(fields)
    except ValidationError as error:
        raise SubmissionError(issues_of(error, document="filter")) from None


def _pairs(query: MultiMapping[str]) -> Iterator[tuple[str, str]]:
    for name in (*(one for one, _ in _FIELDS), "kind", "state", "ids"):
        for value in query.getall(name, []):
            if value.strip():
                yield name, value.strip()


def _narrowed(query: MultiMapping[str], **fields: str) -> Iterator[tuple[str, str]]:
    """The filter with other values for some fields."""
    yield from ((name, value) for name, value in _pairs(query) if name not in fields)
    yield from fields.items()
