"""Definitions as records of `pop.definitions` and as tables of a file."""

from collections.abc import Mapping
from typing import Final, cast

from pydantic import ValidationError

from pop_stream.core.definitions.definitions import KINDS, Definition, Kind
from pop_stream.core.definitions.keys import ApiKey
from pop_stream.core.errors import UnreadableRecordError

_API_KEY: Final = "key/"


def kind_of(definition: Definition) -> Kind:
    """The word for what kind of definition this is."""
    return next(kind for kind, model in KINDS.items() if isinstance(definition, model))


def definition_key(definition: Definition) -> str:
    """The record key of a definition: `kind/id`."""
    return f"{kind_of(definition)}/{definition.id}"


def decode_definition(key: str, value: bytes | None) -> Definition | None:
    """The definition in one record of `pop.definitions`; None for a tombstone.

    Fields that a newer version has added are passed over: without the rest there would be
    no definition at all.

    Raises:
        UnreadableRecordError: If the kind is unknown or the value does not fit it.
    """
    if value is None:
        return None
    kind, _, name = key.partition("/")
    model = KINDS.get(cast("Kind", kind))
    if model is None:
        msg = f"no kind of definition is called {kind!r}; use one of {', '.join(KINDS)}"
        raise UnreadableRecordError(msg)
    try:
        definition = model.model_validate_json(value, extra="ignore")
    except ValidationError as error:
        raise UnreadableRecordError(str(error)) from None
    if definition.id != name:
        msg = f"the record's key says {name!r} but its value says {definition.id!r}"
        raise UnreadableRecordError(msg)
    return definition


def encode_definition(definition: Definition) -> bytes:
    """The definition as JSON, without fields left at their defaults."""
    return definition.model_dump_json(exclude_defaults=True).encode()


def is_api_key(key: str) -> bool:
    """Whether a record of `pop.definitions` with this key tells of an API key."""
    return key.startswith(_API_KEY)


def api_key_record(key: ApiKey) -> bytes:
    """An API key as the value of a record: all of it, which is never its secret."""
    return key.model_dump_json(exclude_none=True).encode()


def decode_api_key(key: str, value: bytes | None) -> ApiKey | None:
    """The API key that a record tells of; None for a tombstone.

    Raises:
        UnreadableRecordError: If it is none, or not the one that the record's key names.
    """
    if value is None:
        return None
    try:
        known = ApiKey.model_validate_json(value, extra="ignore")
    except ValidationError as error:
        raise UnreadableRecordError(str(error)) from None
    if known.id != key.removeprefix(_API_KEY):
        msg = f"the record's key is {key!r} but its value is key {known.id!r}"
        raise UnreadableRecordError(msg)
    return known


def parse_definitions_file(document: Mapping[str, object]) -> tuple[Definition, ...]:
    """Definitions from a file's tables, such as `[customers.ID]`; one table per kind.

    Raises:
        ValueError: With the table's name and what is wrong in it.
    """
    sections = {f"{kind}s": model for kind, model in KINDS.items()}
    if unknown := sorted(set(document) - set(sections)):
        msg = f"unknown table {unknown[0]!r}; a definitions file has {', '.join(sections)}"
        raise ValueError(msg)
    return tuple(
        _definition(section, model, name, content)
        for section, model in sections.items()
        for name, content in _table(document, section).items()
    )


def _table(document: Mapping[str, object], section: str) -> Mapping[str, object]:
    table = document.get(section, {})
    if not isinstance(table, Mapping):
        msg = f"{section} must be a table of tables, such as [{section}.example]"
        raise TypeError(msg)
    return table


def _definition(
    section: str, model: type[Definition], name: str, content: object
) -> Definition:
    if not isinstance(content, Mapping):
        msg = f"[{section}.{name}] must be a table"
        raise TypeError(msg)
    try:
        return model.model_validate({"id": name, **content})
    except ValidationError as error:
        msg = f"[{section}.{name}]: {error}"
        raise ValueError(msg) from None
