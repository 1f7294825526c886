"""Two versions of a definition, line by line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Final, Literal

import msgspec

MAX_COMPARED: Final = 1_000
"""Lines of either side that are compared; of more, one side stands after the other."""

MAX_SHOWN: Final = 2_000
"""Lines of a difference that are shown."""

CONTEXT: Final = 3
"""Lines that are the same and stand around each change."""

Change = Literal["same", "removed", "added", "gap"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference.

    Attributes:
        change: `gap` stands for lines that are the same, as many as `text` says.
    """

    change: Change
    text: str


def as_text(content: Mapping[str, Any]) -> str:
    """A definition as JSON, a value a line, its fields in the order they have."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Sequence[DiffLine]:
    """What changes from one to the other; empty if nothing does.

    Takes time in proportion to the lines, but for `MAX_COMPARED` of them, of which each may be
    compared with each.
    """
    before, after = as_text(old).split("\n"), as_text(new).split("\n")
    if before == after:
        return ()
    return [*islice(_folded([*_lines(before, after)]), MAX_SHOWN)]


def _lines(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    """All lines; what is the same at both ends is not compared."""
    first = _common(before, after)
    last = _common(before[first:][::-1], after[first:][::-1])
    yield from (DiffLine("same", one) for one in before[:first])
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(old), len(new)) > MAX_COMPARED:
        yield from (DiffLine("removed", one) for one in old)
        yield from (DiffLine("added", one) for one in new)
    else:
        for tag, *span in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            old_from, old_to, new_from, new_to = span
            if tag == "equal":
                yield from (DiffLine("same", one) for one in old[old_from:old_to])
            else:
                yield from (DiffLine("removed", one) for one in old[old_from:old_to])
                yield from (DiffLine("added", one) for one in new[new_from:new_to])
    yield from (DiffLine("same", one) for one in before[len(before) - last :])


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _folded(lines: Sequence[DiffLine]) -> Iterator[DiffLine]:
    """The lines near a change; a gap for the others."""
    near = set[int]()
    for at, line in enumerate(lines):
        if line.change != "same":
            near.update(range(at - CONTEXT, at + CONTEXT + 1))
    left_out = 0
    for at, line in enumerate(lines):
        if at not in near:
            left_out += 1
            continue
        if left_out:
            yield DiffLine("gap", str(left_out))
        left_out = 0
        yield line
    if left_out:
        yield DiffLine("gap", str(left_out))
