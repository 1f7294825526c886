"""Filters of agendas, from queries and bodies, narrowed to what the caller may see."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final, Literal, get_args

import msgspec
from aiohttp import web
from pydantic import BeforeValidator, Field

from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.parameters import id_pattern, read_query
from pop_stream.api.http.route import QueryParameter, repeatable
from pop_stream.api_models.commands import (
    MAX_PAYLOAD_TEST,
    PAYLOAD_TEST,
    ListedAgenda,
    ListSelection,
    Selection,
)
from pop_stream.model.errors import Issue
from pop_stream.model.events.lifecycle import StopReason, WaitReason
from pop_stream.model.identity import Principal
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN, OWN_ID_LENGTH, OWN_ID_PATTERN
from pop_stream.model.json_types import check_instant
from pop_stream.model.tenancy import candidate_ids
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.agendas import AgendaCursor, AgendaFilter, PayloadMatch

MAX_PAGE_SIZE: Final = 500
"""Most agendas of one page."""

_ID: Final = {"type": "string", "pattern": ID_PATTERN, "maxLength": ID_LENGTH}
_OWN_ID: Final = {"type": "string", "pattern": OWN_ID_PATTERN, "maxLength": OWN_ID_LENGTH}
_TITLE: Final = {"type": "string", "maxLength": 500}
_INSTANT: Final = {"type": "string", "format": "date-time"}
_PAYLOAD: Final = {"type": "string", "pattern": PAYLOAD_TEST, "maxLength": MAX_PAYLOAD_TEST}


def _whole_number(*, most: int) -> Mapping[str, object]:
    return {"type": "integer", "minimum": 1, "maximum": most}


def _enum(*choices: str) -> Mapping[str, object]:
    return {"enum": [*choices]}


def _instants(*steps: str) -> Sequence[QueryParameter]:
    return [
        QueryParameter(f"{step}_{side}", f"{step.title()} {meaning}.", _INSTANT)
        for step in steps
        for side, meaning in (
            ("from", "at this instant or later"),
            ("before", "before this instant"),
        )
    ]


_FIELDS: Final = tuple(one.name for one in msgspec.structs.fields(ListedAgenda))


def _listed_fields(text: object) -> tuple[str, ...]:
    named = text.split(",") if isinstance(text, str) else ()
    unknown = next((one for one in named if one not in _FIELDS), None)
    if not named or unknown is not None:
        known = ", ".join(_FIELDS)
        msg = f"{unknown or text!r} is no field of a listed agenda; name some of {known}"
        raise ValueError(msg)
    return tuple(named)


class Listing(ListSelection):
    """A selection, and which page of it."""

    order: Literal["newest", "oldest"] = "newest"
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = 50
    cursor: str | None = None
    fields: Annotated[tuple[str, ...] | None, BeforeValidator(_listed_fields)] = None


_LISTS: Final[Sequence[tuple[str, str, Mapping[str, object]]]] = (
    ("ids", "One of these.", _OWN_ID),
    ("customer_id", "Of one of these customers.", _ID),
    ("insight_id", "In one of these insights.", _ID),
    ("link_id", "Of one of these links.", _ID),
    ("title", "With one of these titles, to the letter.", _TITLE),
    ("external_id", "That their submitters call one of these.", _TITLE),
    ("correlation_id", "That one of these requests led to.", _TITLE),
    ("state", "In one of these states.", _enum(*(one.value for one in State))),
    ("template_id", "Made from one of these templates.", _OWN_ID),
    ("priority", "With one of these priorities.", _whole_number(most=9)),
    (
        "attempt",
        "In one of these attempts, by number; or ended in it.",
        _whole_number(most=2**31 - 1),
    ),
    ("puller_id", "Whose latest attempt one of these pullers has.", _TITLE),
    ("waiting_for", "That wait for one of these.", _enum(*get_args(WaitReason))),
    ("stopping", "That are being stopped for one of these.", _enum(*get_args(StopReason))),
    (
        "payload",
        "`path=value`: an operation's payload has this value at this path, as in "
        "`customer.id=7`; of one path any value fits, of several paths all must. A page "
        "looks at the next 2,000 agendas that fit otherwise, and may be short.",
        _PAYLOAD,
    ),
)

QUERY: Final = (
    *(repeatable(Listing, *one) for one in _LISTS),
    *_instants("accepted", "emitted", "started", "ended"),
    QueryParameter(
        "order", "By acceptance.", {"enum": ["newest", "oldest"], "default": "newest"}
    ),
    QueryParameter(
        "limit",
        "Agendas of a page.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": 50},
    ),
    QueryParameter(
        "fields",
        "Only these, comma between; all if left out.",
        {"type": "string", "pattern": f"^({'|'.join(_FIELDS)})(,({'|'.join(_FIELDS)}))*$"},
    ),
    QueryParameter("cursor", "`next` of the page before.", {"type": "string"}),
)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page that was asked for; with these fields only, unless None."""

    wanted: AgendaFilter
    limit: int
    after: AgendaCursor | None
    newest_first: bool
    fields: tuple[str, ...] | None


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    accepted_at: datetime | None
    agenda_id: str


_CURSOR: Final = msgspec.json.Decoder(_Cursor)


def page_of(request: web.Request, principal: Principal) -> PageRequest:
    """The page that a request's query asks for.

    Raises:
        InvalidError: With one issue per parameter that is not what it must be.
    """
    listing = read_query(request, Listing)
    wanted = replace(filter_of(listing, principal), payload=_payload(listing.payload))
    return PageRequest(
        wanted=wanted,
        limit=listing.limit,
        after=_decode(listing.cursor) if listing.cursor else None,
        newest_first=listing.order == "newest",
        fields=listing.fields,
    )


def _payload(tests: Sequence[str]) -> tuple[PayloadMatch, ...]:
    values: dict[str, list[str]] = {}
    for one in tests:
        path, _, value = one.partition("=")
        values.setdefault(path, []).append(value)
    return tuple(
        PayloadMatch(tuple(path.split(".")), tuple(some)) for path, some in values.items()
    )


def filter_of(selection: Selection, principal: Principal) -> AgendaFilter:
    """The selection, narrowed to the caller's own agendas if the caller is a customer.

    A customer who names others gets what it would if they did not exist: nothing.
    """
    wanted = AgendaFilter(
        ids=_meant(selection.ids, principal),
        customer_ids=selection.customer_id,
        insight_ids=selection.insight_id,
        link_ids=selection.link_id,
        titles=selection.title,
        external_ids=selection.external_id,
        correlation_ids=selection.correlation_id,
        template_ids=_meant(selection.template_id, principal),
        states=selection.state,
        priorities=selection.priority,
        attempts=selection.attempt,
        puller_ids=selection.puller_id,
        waiting_for=selection.waiting_for,
        stopping=selection.stopping,
        accepted_from=selection.accepted_from,
        accepted_before=selection.accepted_before,
        emitted_from=selection.emitted_from,
        emitted_before=selection.emitted_before,
        started_from=selection.started_from,
        started_before=selection.started_before,
        ended_from=selection.ended_from,
        ended_before=selection.ended_before,
    )
    if principal.customer_id is None:
        return wanted
    named = selection.customer_id
    if named and principal.customer_id not in named:
        return replace(wanted, customer_ids=(principal.customer_id,), ids=("\0",))
    return replace(wanted, customer_ids=(principal.customer_id,))


def _meant(named: Sequence[str], principal: Principal) -> tuple[str, ...]:
    """The ids that the caller may mean by these."""
    return tuple(
        dict.fromkeys(meant for one in named for meant in candidate_ids(one, principal))
    )


def position_of(summary: Summary) -> AgendaCursor:
    """Where an agenda stands in lists."""
    return AgendaCursor(summary.accepted_at, summary.agenda_id)


def cursor_of(place: AgendaCursor) -> str:
    """The cursor of the page that begins after this place."""
    raw = msgspec.json.encode(_Cursor(place.accepted_at, place.agenda_id))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(cursor: str) -> AgendaCursor:
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        known = _CURSOR.decode(raw)
        if known.accepted_at is not None:
            check_instant(known.accepted_at)
        if not id_pattern("agenda_id").fits(known.agenda_id):
            raise ValueError(known.agenda_id)  # noqa: TRY301  # as all that is no cursor
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        remedy = "is no cursor of this API; send `next` of the page before as it was"
        raise InvalidError([Issue("cursor", cursor[:200], remedy)]) from error
    return AgendaCursor(known.accepted_at, known.agenda_id)


def is_set(selection: Selection) -> bool:
    """Whether any field narrows it."""
    fields: Mapping[str, object] = selection.model_dump(exclude_defaults=True)
    return any(isinstance(value, datetime) or value for value in fields.values())
