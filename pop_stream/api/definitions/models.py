"""Definitions as clients read and change them, for answers and for the document."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema, create_model

from pop_stream.model.definitions import KINDS, Kind, Mappers
from pop_stream.model.insight_options import HealthScaling
from pop_stream.model.retry import Backoff
from pop_stream.model.revisions import VersionedDefinition
from pop_stream.model.split import Split
from pop_stream.model.template import ParamName, TemplateParam
from pop_stream.model.trigger import Trigger

Name = Literal["Customer", "Pool", "Insight", "Template", "Schedule", "Rule"]

NAMES: Final[dict[Kind, Name]] = {
    "customer": "Customer",
    "pool": "Pool",
    "insight": "Insight",
    "template": "Template",
    "schedule": "Schedule",
    "rule": "Rule",
}

_STORED_FIELDS: Final[dict[str, Any]] = {
    "version": (int, Field(ge=1, description="Grows with every change; also the ETag.")),
    "created_at": (datetime, Field(description="RFC 3339, in UTC.")),
    "updated_at": (datetime, Field(description="RFC 3339, in UTC.")),
}
_INSIGHT_IDS: Final[Any] = (
    list[str],
    Field(description="Of the insights that share it; derived."),
)


def definition_view(
    stored: VersionedDefinition, *, insight_ids: list[str] | None = None
) -> dict[str, Any]:
    """A definition with what the store knows of it, every field present."""
    content = stored.definition.model_dump(mode="json")
    if insight_ids is not None:
        content["insight_ids"] = insight_ids
    return {
        **content,
        "version": stored.version,
        "created_at": stored.created_at,
        "updated_at": stored.updated_at,
    }


def _all_optional(schema: dict[str, Any]) -> None:
    """Every field may be missing, for a list may be asked for some of them."""
    schema.pop("required", None)


def _as_patch(schema: dict[str, Any]) -> None:
    """Every field may be missing, or null to take it back to its default, if it has one."""
    required = schema.pop("required", ())
    properties = schema["properties"]
    for name, one in properties.items():
        if name not in required:
            one.pop("default", None)
            properties[name] = {"anyOf": [one, {"type": "null"}]}


def _stored_model(kind: Kind) -> type[BaseModel]:
    fields = {**_STORED_FIELDS, **({"insight_ids": _INSIGHT_IDS} if kind == "pool" else {})}
    made: type[BaseModel] = create_model(
        f"Defined{NAMES[kind]}", __base__=KINDS[kind], __doc__=KINDS[kind].__doc__, **fields
    )
    return made


def _page(kind: Kind) -> type[BaseModel]:
    name = NAMES[kind]
    item = type(
        f"{name}Item",
        (DEFINED[kind],),
        {
            "__doc__": "One of a list: all fields, or those that were asked for.",
            "__module__": __name__,
            "model_config": ConfigDict(json_schema_extra=_all_optional),
        },
    )
    fields: dict[str, Any] = {
        "items": (list[item], Field(description="In the order that was asked for.")),  # type: ignore[valid-type]  # made here
        "total": (int, Field(ge=0, description="Of all pages, exact.")),
        "next": (str | None, Field(description="Cursor of the next page; null on the last.")),
    }
    made: type[BaseModel] = create_model(f"{name}Page", __doc__="One page of a list.", **fields)
    return made


def _patch(kind: Kind) -> type[BaseModel]:
    name = f"{NAMES[kind]}Patch"
    base: type[BaseModel] = type(
        name,
        (KINDS[kind],),
        {
            "__doc__": "Fields to change; null takes one back to its default (RFC 7396).",
            "__module__": __name__,
            "model_config": ConfigDict(json_schema_extra=_as_patch),
        },
    )
    known = KINDS[kind].model_fields
    inner: dict[str, Any] = {
        one: (shape, known[one]) for one, shape in _INNER_PATCHES.items() if one in known
    }
    if kind == "template":
        param = _patch_of(TemplateParam)
        inner["params"] = (dict[ParamName, param | None], known["params"])  # type: ignore[valid-type]  # made here
    made: type[BaseModel] = create_model(name, __base__=base, __doc__=base.__doc__, **inner)
    return made


def _patch_of(part: type) -> Any:  # noqa: ANN401  # a type made here
    """A patch reaches into objects too."""
    schema = TypeAdapter(part).json_schema()
    if schema.pop("$defs", None):  # JsonValue, which is any JSON
        _drop_references(schema)
    _as_patch(schema)
    return Annotated[Any, WithJsonSchema(schema)]


def _drop_references(schema: Any) -> None:  # noqa: ANN401  # any part of a schema
    """Let whatever is referred to be anything."""
    if isinstance(schema, dict):
        schema.pop("$ref", None)
        for one in schema.values():
            _drop_references(one)
    elif isinstance(schema, list):
        for one in schema:
            _drop_references(one)


_INNER_PATCHES: Final[dict[str, Any]] = {
    "mappers": _patch_of(Mappers),
    "backoff": _patch_of(Backoff),
    "health": _patch_of(HealthScaling),
    "split": _patch_of(Split),
    "trigger": _patch_of(Trigger),
}

DEFINED: Final = {kind: _stored_model(kind) for kind in KINDS}
"""A definition as it is read."""

PAGES: Final = {kind: _page(kind) for kind in KINDS}
"""A page of a list."""

PATCHES: Final = {kind: _patch(kind) for kind in KINDS}
"""A merge patch."""
