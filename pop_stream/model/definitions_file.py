"""Definitions in a file: a table per kind, with a table for each id."""

from collections.abc import Mapping

from pydantic import ValidationError

from pop_stream.model.definitions import KINDS, Definition


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
