"""What commands read from files and from their arguments."""

import json
import sys
import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pop_stream.operations.errors import UsageError


def read_bytes(file: Path) -> bytes:
    """All of a file; `-` is standard input.

    Raises:
        UsageError: If it cannot be read.
    """
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise UsageError(msg) from None


def read_content(file: Path) -> Any:  # noqa: ANN401  # any JSON
    """The JSON of a file, or the TOML of one whose name ends so.

    Raises:
        UsageError: If it cannot be read, or is neither.
    """
    raw = read_bytes(file)
    try:
        return tomllib.loads(raw.decode()) if file.suffix == ".toml" else json.loads(raw)
    except ValueError as error:
        msg = f"{file} is no JSON or TOML: {error}"
        raise UsageError(msg) from None


def instant(text: str) -> datetime:
    """An aware instant as in 2026-01-31T08:00:00Z.

    Raises:
        UsageError: If it is none, or says no zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        msg = f"{text!r} is no instant with a zone; give one as in 2026-01-31T08:00:00Z"
        raise UsageError(msg)
    return found


def nested(assignments: Sequence[str]) -> dict[str, Any]:
    """`a.b=1` as an object in an object.

    Raises:
        UsageError: If one is no assignment.
    """
    found: dict[str, Any] = {}
    for dotted, text in pairs(assignments):
        *outer, last = dotted.split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = value(text)
    return found


def pairs(assignments: Sequence[str]) -> list[tuple[str, str]]:
    """Name and value of each `NAME=VALUE`.

    Raises:
        UsageError: If one is no assignment.
    """
    found = []
    for one in assignments:
        name, equals, text = one.partition("=")
        if not equals or not name:
            msg = f"{one!r} must be of the form NAME=VALUE"
            raise UsageError(msg)
        found.append((name, text))
    return found


def value(text: str) -> Any:  # noqa: ANN401  # any JSON
    """A text as JSON, or as itself if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text
