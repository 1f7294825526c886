"""References between operations: the tokens `@<name>` and `@<name::/json/pointer?fallback>`.

A string that is one whole token becomes the node it points to, whatever its type. A token
inside a longer text is substituted as text, so it must point to a scalar. Text that came
out of a substitution is not read again. `?text` is used where the path is missing; a bare
trailing `?` stands for null. `/` alone, or no pointer, is the whole document.

Of several `@` before a `<`, each two stand for one: `@@<x>` is the text `@<x>`, and `@@@<x>` is
`@` and a token. `escaped` makes any text stand for itself.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_SCALARS: Final = (str, int, float, bool, type(None))

OUTPUT_SUFFIX: Final = ".out"
"""`<operation>.out` names the result of an operation."""

BUILT_IN_NAMES: Final = frozenset({"pop.agendaId", "pop.customerId", "pop.operationName"})
"""Names that every operation may refer to."""

_MARK: Final = re.compile(r"(@+)<")
_REST: Final = re.compile(r"([^<>]+)>")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


class UnresolvedReferenceError(ValueError):
    """A token names nothing, or a path that its document does not have."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One parsed token.

    Attributes:
        name: What is referred to, such as `fetch.out`.
        pointer: RFC 6901 pointer into it, empty for the whole document.
        fallback: Text for a missing path; None when there is none.
        null_fallback: Whether a missing path stands for null.
        token: As it is written.
    """

    name: str
    pointer: str
    fallback: str | None
    null_fallback: bool
    token: str = field(default="", compare=False)

    @property
    def is_run_time(self) -> bool:
        """Whether it is resolved while the agenda runs; any other name is a template's."""
        return self.operation is not None or self.name in BUILT_IN_NAMES

    @property
    def operation(self) -> str | None:
        """The operation whose output is meant, or None for any other name."""
        if self.name.endswith(OUTPUT_SUFFIX) and self.name not in BUILT_IN_NAMES:
            return self.name.removesuffix(OUTPUT_SUFFIX)
        return None


def parse(inner: str) -> Reference:
    """Parse what stands between `@<` and `>`; never fails: an odd name is an unknown name."""
    name, _, path = inner.partition("::")
    path, question, fallback = path.partition("?")
    pointer = "" if path in {"", "/"} else path if path.startswith("/") else f"/{path}"
    return Reference(
        name=name.strip(),
        pointer=pointer,
        fallback=fallback if question and fallback else None,
        null_fallback=bool(question) and not fallback,
        token=f"@<{inner}>",
    )


def pieces(text: str) -> Iterator[str | Reference]:
    """The references of a text, and what stands between them, none of it empty.

    What stands between them is what it stands for: without the marks that escape.
    """
    literal, at = "", 0
    while mark := _MARK.search(text, at):
        pairs, is_odd = divmod(len(mark[1]), 2)
        rest = _REST.match(text, mark.end()) if is_odd else None
        literal += text[at : mark.start()] + "@" * pairs
        if rest is None:
            literal, at = literal + ("@<" if is_odd else "<"), mark.end()
            continue
        if literal:
            yield literal
        yield parse(rest[1])
        literal, at = "", rest.end()
    if literal or at < len(text):
        yield literal + text[at:]


def escaped(value: object) -> object:
    """The JSON value as it must be written where references are read, to stand for itself.

    Keys of objects are not read, and stay as they are.
    """
    if isinstance(value, str):
        return escaped_text(value) if "@<" in value else value
    if isinstance(value, Mapping):
        return {key: escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [escaped(item) for item in value]
    return value


def escaped_text(text: str, *, before_token: bool = False) -> str:
    """The text as it must be written to stand for itself; `before_token`, if one follows it."""
    written = _MARK.sub(lambda mark: 2 * mark[1] + "<", text)
    if not before_token:
        return written
    ahead = len(written) - len(written.rstrip("@"))
    return written + "@" * ahead


def find(value: object) -> Sequence[Reference]:
    """Every reference in a JSON value, in order, keys of objects not included."""
    if value is None or (isinstance(value, str) and "@<" not in value):
        return ()
    found: list[Reference] = []
    _gather(value, found)
    return found


def _gather(value: object, found: list[Reference]) -> None:
    if isinstance(value, str):
        if "@<" in value:
            found += (one for one in pieces(value) if isinstance(one, Reference))
    elif isinstance(value, list | tuple):
        for item in value:
            _gather(item, found)
    elif isinstance(value, Mapping):
        for item in value.values():
            _gather(item, found)


def resolve(value: object, names: Mapping[str, object]) -> object:
    """Replace every token in a JSON value; the argument is left as it was.

    Args:
        value: Any JSON value.
        names: The document behind each name, such as `{"fetch.out": {...}}`.

    Raises:
        UnresolvedReferenceError: A name is unknown, a path is missing and has no fallback,
            or a token inside a text points to an object or a list.
    """
    if isinstance(value, str):
        return _resolve_text(value, names) if "@<" in value else value
    if isinstance(value, Mapping):
        return {key: resolve(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(item, names) for item in value]
    return value


def _resolve_text(text: str, names: Mapping[str, object]) -> object:
    parts = [*pieces(text)]
    if len(parts) == 1 and isinstance(parts[0], Reference):
        return _look_up(parts[0], names)
    return "".join(one if isinstance(one, str) else _as_text(one, names) for one in parts)


def _as_text(reference: Reference, names: Mapping[str, object]) -> str:
    node = _look_up(reference, names)
    if isinstance(node, str):
        return node
    if isinstance(node, _SCALARS):
        return json.dumps(node)
    msg = f"{reference.token} stands inside a text but points to an object or a list"
    raise UnresolvedReferenceError(msg)


def _look_up(reference: Reference, names: Mapping[str, object]) -> object:
    if reference.name not in names:
        known = ", ".join(sorted(names)) or "none"
        msg = f"@<{reference.name}> names nothing known here (known: {known})"
        raise UnresolvedReferenceError(msg)
    try:
        return walk(names[reference.name], reference.pointer)
    except LookupError as missing:
        if reference.fallback is not None:
            return reference.fallback
        if reference.null_fallback:
            return None
        msg = f"@<{reference.name}> has nothing at {reference.pointer!r}"
        raise UnresolvedReferenceError(msg) from missing


def walk(node: object, pointer: str) -> object:
    """The node that an RFC 6901 pointer leads to.

    Raises:
        LookupError: If there is none.
    """
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node[key]
        elif isinstance(node, list | tuple) and _INDEX.fullmatch(key):
            node = node[int(key)]
        else:
            raise LookupError(key)
    return node
