"""A submission whose id is known already: the same once more, or something else."""

from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from pop_stream.core.errors import Issue
from pop_stream.core.values.faults import shorten

MAX_DIFFERENCES = 5
"""Differences that are listed; the rest would tell nobody more."""


def differences(accepted: bytes, sent: bytes) -> tuple[Issue, ...]:
    """In what an agenda that was sent differs from the one accepted under its id.

    Args:
        accepted: JSON as accepted.
        sent: JSON as sent; the order of fields makes no difference.

    Returns:
        At most `MAX_DIFFERENCES` issues, in the order of the fields' names; none if both are one.
    """
    if accepted == sent:
        return ()
    known, again = msgspec.json.decode(accepted), msgspec.json.decode(sent)
    for one in (known, again):
        one.pop("trace", None)  # the same once more is another request
    found = _differences(known, again, "")
    return tuple(islice(found, MAX_DIFFERENCES))


def _differences(before: object, after: object, path: str) -> Iterator[Issue]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            inner = f"{path}.{name}" if path else str(name)
            yield from _differences(before.get(name), after.get(name), inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif before != after or type(before) is not type(after):
        message = (
            f"differs from what was accepted under this id, {shorten(before)}; "
            "send the same, or choose another id"
        )
        yield Issue(shorten(path), shorten(after), message)
