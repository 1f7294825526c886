"""How a command of the lab measures, prints what it found, and ends."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from pop_stream.cli.output import console, emit

_SECOND_MS: Final = 1000
_EXACT: Final = 10
_UNITS: Final = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))


def duration(milliseconds: float | None) -> str:
    """A time for a person, exact to a tenth: `85 ms`, `3.2 s`, `2 h 5 min`, `12 d`."""
    if milliseconds is None:
        return "-"
    if round(milliseconds) < _SECOND_MS:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / _SECOND_MS
    for unit, length_s, part, part_s in _UNITS:
        parts, per_unit = round(seconds / part_s), length_s // part_s
        if parts >= _EXACT * per_unit:
            return f"{seconds / length_s:,.0f} {unit}"
        if parts >= per_unit:
            return f"{parts // per_unit} {unit} {parts % per_unit} {part}"
    return f"{seconds:.1f} s"


def shortened(text: str, most: int) -> str:
    """As much of a name as fits, in characters: both ends, as names differ in either."""
    if len(text) <= most:
        return text
    end = max(0, most - 1) // 3
    return f"{text[: max(0, most - 1 - end)]}…{text[len(text) - end :]}"


Measure = Callable[[Callable[[str], None]], Awaitable[Mapping[str, Any]]]
"""Measures, given what prints a line of progress; returns the report."""


def measure_and_report(
    measure: Measure,
    view: Callable[[Mapping[str, Any]], Iterable[Any]],
    *,
    as_json: bool,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Mapping[str, Any]:
    """Measure until that is done or a signal comes; print the report.

    Logging must be configured before. Standard output has the JSON alone, if it was asked for.

    Args:
        measure: Called once.
        view: What a person reads of the report: text and tables, in order.
        as_json: Print the report as one line of JSON, last.
        loop_factory: Of the event loop; None is asyncio's own.

    Raises:
        CommandError: If a signal ended it; everything was stopped by then.
    """
    from pop_stream.operations.errors import CommandError
    from pop_stream.operations.lifetime import run_until_interrupted

    shown = console(as_json=as_json)
    found: dict[str, Any] = {}

    async def run() -> None:
        found.update(await measure(lambda line: shown.print(f"[dim]{line}[/]", soft_wrap=True)))
        for one in view(found):
            shown.print(one, soft_wrap=isinstance(one, str))
        if as_json:
            emit(found)

    if run_until_interrupted(run(), loop_factory=loop_factory):
        msg = "interrupted; everything was stopped"
        raise CommandError(msg)
    return found
