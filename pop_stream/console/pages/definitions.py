"""Definitions of every kind: what there is, and what each says.

A kind is a row of `KINDS`; the pages are the same for all of them, but for a schedule's
occurrences. What a definition leaves out is shown apart from what it says, with the meaning of
each field as its model has it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from pop_stream.client import Client, StoredDefinition
from pop_stream.client.definitions import DefinitionCalls
from pop_stream.console.pages.schedules import ScheduleView, schedule_states, schedule_view
from pop_stream.console.rendering import NOTHING, Page, duration
from pop_stream.console.viewing import PageView
from pop_stream.model.definition_lists import defaults_of
from pop_stream.model.definitions import CUSTOMERS_KINDS, Kind
from pop_stream.model.definitions import KINDS as MODELS
from pop_stream.model.errors import NotFoundError
from pop_stream.model.identity import Role
from pop_stream.model.revisions import READ_ONLY
from pop_stream.model.schedule import Schedule

PAGE: Final = 25
"""Definitions of one page."""

VERSIONS: Final = 20
"""Earlier versions that a page leads to."""

_MAX_TEXT: Final = 200
_KIND: Final = "kind of definition"

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DefinitionKind:
    """One kind of definition, as the console's addresses and texts have it.

    Attributes:
        path: In addresses, and what several of them are called.
        kind: What one of them is called, and what the model knows it by.
        about: What it is for, in a sentence.
        calls: The client's calls of this kind.
        columns: Fields that a list shows beside the id and title.
        sample: What a new one begins as, without its id.
    """

    path: str
    kind: Kind
    about: str
    calls: Callable[[Client], DefinitionCalls[Any]]
    columns: Sequence[str]
    sample: Content

    @property
    def title(self) -> str:
        """The heading of their list."""
        return self.path.capitalize()

    @property
    def writer(self) -> Role:
        """The role that may change them."""
        return Role.OPERATE if self.is_customers else Role.ADMIN

    @property
    def is_customers(self) -> bool:
        """Whether customers define some for themselves."""
        return self.kind in CUSTOMERS_KINDS

    def address(self, object_id: str) -> str:
        """Of the page of one of them, below the console's path."""
        return f"/definitions/{self.path}/{quote(object_id, safe='')}"


_OPERATION: Final = {"name": "first", "type": "http"}

KINDS: Final[Mapping[str, DefinitionKind]] = {
    one.path: one
    for one in (
        DefinitionKind(
            "schedules",
            "schedule",
            "Submit an agenda, or run a template, whenever a trigger fires.",
            lambda client: client.schedules,
            ("trigger", "timezone", "owner"),
            {
                "trigger": {"cron": "0 6 * * *"},
                "timezone": "Europe/Berlin",
                "submission": {"customer_id": "", "operations": [_OPERATION]},
            },
        ),
        DefinitionKind(
            "rules",
            "rule",
            "Do something whenever a record comes, an agenda ends or a definition changes.",
            lambda client: client.rules,
            ("topic", "on", "owner", "paused"),
            {
                "topic": "orders",
                "where": {"required": ["order_id"]},
                "submission": {"customer_id": "", "operations": [_OPERATION]},
            },
        ),
        DefinitionKind(
            "templates",
            "template",
            "Agendas that are run by name, with a payload and parameters.",
            lambda client: client.templates,
            ("owner", "visibility"),
            {"agenda": {"customer_id": "", "operations": [_OPERATION]}},
        ),
        DefinitionKind(
            "insights",
            "insight",
            "Classes of work, each with a topic of its own.",
            lambda client: client.insights,
            ("mappers", "algorithm", "pool", "max_in_flight", "paused"),
            {"mappers": {"operation_types": ["http"]}},
        ),
        DefinitionKind(
            "customers",
            "customer",
            "Whose work it is: weights and limits. One without a definition has the defaults.",
            lambda client: client.customers,
            ("weight", "max_in_flight", "rate_per_s", "max_ready", "paused"),
            {"weight": 1.0},
        ),
        DefinitionKind(
            "pools",
            "pool",
            "Capacity that several insights share.",
            lambda client: client.pools,
            ("max_in_flight", "divided_among"),
            {"max_in_flight": 100},
        ),
    )
}
"""Every kind, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of a definition."""

    name: str
    value: object
    meaning: str


@dataclass(frozen=True, slots=True)
class DefinitionRow:
    """One definition in a list.

    Attributes:
        state: Of a schedule, in a word; else empty.
        next_at: When a schedule fires next.
    """

    id: str
    title: str
    cells: Sequence[str]
    version: int
    updated_at: datetime
    state: str = ""
    next_at: datetime | None = None


def kind_of(view: PageView) -> DefinitionKind:
    """The kind that the address names.

    Raises:
        NotFoundError: If there is none of that name.
    """
    named = view.parts["kind"]
    if named not in KINDS:
        raise NotFoundError(_KIND, named[:_MAX_TEXT])
    return KINDS[named]


def may_define(view: PageView, kind: DefinitionKind) -> bool:
    """Whether the viewer may define one of this kind."""
    return view.may(kind.writer) and (view.is_operator or kind.is_customers)


def may_change(view: PageView, kind: DefinitionKind, content: Content) -> bool:
    """Whether the viewer may change this one."""
    is_own = view.is_operator or content.get("owner") == view.caller.customer_id
    return may_define(view, kind) and is_own


def said(stored: StoredDefinition[Any]) -> Content:
    """What a definition says, without what it leaves at the defaults."""
    found: dict[str, Any] = stored.definition.model_dump(mode="json", exclude_defaults=True)
    return found


async def kinds(view: PageView) -> Page:
    """The kinds there are."""
    rows = [(one, may_define(view, one)) for one in KINDS.values()]
    return Page("definition_kinds.html", "Definitions", {"kinds": rows})


async def definitions(view: PageView) -> Page:
    """A page of those of one kind that the viewer sees."""
    kind = kind_of(view)
    where = {name: view.query[name] for name in ("id", "owner") if view.query.get(name)}
    listed = await kind.calls(view.client).page(
        where, limit=PAGE, cursor=view.query.get("cursor") or None
    )
    ids = [str(one["id"]) for one in listed.items]
    states = await schedule_states(view, ids) if kind.kind == "schedule" else {}
    rows = [
        DefinitionRow(
            one["id"],
            one.get("title", ""),
            [_cell(name, one.get(name)) for name in kind.columns],
            one["version"],
            msgspec.convert(one["updated_at"], datetime),
            *states.get(one["id"], ()),
        )
        for one in listed.items
    ]
    return Page(
        "definitions.html",
        kind.title,
        {
            "kind": kind,
            "rows": rows,
            "total": listed.total,
            "next": f"?{urlencode({**where, 'cursor': listed.next})}" if listed.next else "",
            "where": where,
            "filters": _filters(kind),
            "is_filtered": bool(where),
            "may_define": may_define(view, kind),
        },
        is_live=kind.kind == "schedule",
    )


async def definition(view: PageView) -> Page:
    """What one says, and of a schedule when it fires and what has come of it."""
    kind, object_id = kind_of(view), view.parts["object_id"]
    stored = await kind.calls(view.client).get(object_id)
    extra: ScheduleView | None = None
    if isinstance(stored.definition, Schedule):
        extra = await schedule_view(view, stored.definition)
    return Page(
        "definition.html",
        f"{kind.kind.capitalize()} {stored.definition.title or object_id}",
        {
            "kind": kind,
            "stored": stored,
            "object_id": stored.definition.id,
            "said": said(stored),
            "rows": field_rows(kind.kind, said(stored)),
            "defaults": default_rows(kind.kind, said(stored)),
            "may_change": may_change(view, kind, stored.content),
            "may_command": view.may(Role.OPERATE) and may_change(view, kind, stored.content),
            "is_audited": view.is_operator and view.may(Role.ADMIN),
            "schedule": extra,
            "versions": [*range(max(1, stored.version - VERSIONS), stored.version)][::-1],
        },
        is_live=extra is not None,
    )


def field_rows(kind: Kind, content: Content) -> Sequence[FieldRow]:
    """The fields that a definition sets, in the model's order."""
    fields = MODELS[kind].model_fields
    return [
        FieldRow(name, content[name], one.description or "")
        for name, one in fields.items()
        if name in content
    ]


def default_rows(kind: Kind, content: Content) -> Sequence[FieldRow]:
    """The fields that it leaves at their defaults, with these."""
    fields = MODELS[kind].model_fields
    return [
        FieldRow(name, value, fields[name].description or "")
        for name, value in defaults_of(kind).items()
        if name not in content and name not in READ_ONLY
    ]


def _filters(kind: DefinitionKind) -> Sequence[tuple[str, str]]:
    return [("id", "Id"), *([("owner", "Belongs to")] if kind.is_customers else [])]


def _cell(name: str, value: object) -> str:
    """A field's value in a list, in a few words."""
    if name == "trigger" and isinstance(value, Mapping):
        return trigger_text(value)
    if name == "mappers" and isinstance(value, Mapping):
        return ", ".join(str(one) for values in value.values() for one in values) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, "", [], {}):
        return NOTHING
    return str(value)[:_MAX_TEXT]


def trigger_text(trigger: Content) -> str:
    """When a schedule fires, as its definition says it."""
    if trigger.get("every_s"):
        return f"every {duration(trigger['every_s'])}"
    if trigger.get("at"):
        count = len(trigger["at"])
        return f"at {count} instants" if count > 1 else f"at {trigger['at'][0]}"
    name = "cron" if trigger.get("cron") else "rrule"
    return f"{name} {trigger.get(name) or ''}"


def required_fields(kind: DefinitionKind) -> Sequence[FieldRow]:
    """The fields that every definition of the kind sets."""
    fields = MODELS[kind.kind].model_fields
    return [
        FieldRow(name, None, one.description or "")
        for name, one in fields.items()
        if one.is_required()
    ]
