"""Agendas and links on a terminal."""

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pop_stream.shapes.agendas import AgendaProgress, LinkView

_COLOURS: Final[Mapping[str, str]] = {
    "succeeded": "green",
    "failed": "red",
    "refused": "red",
    "running": "cyan",
}
_BAR: Final = 30


def view(found: AgendaProgress | LinkView) -> RenderableType:
    """A link's roll-up or an agenda's progress, whichever it is."""
    return link_view(found) if isinstance(found, LinkView) else progress_view(found)


def progress_view(found: AgendaProgress) -> RenderableType:
    """An agenda with one bar per operation."""
    rows = Table.grid(padding=(0, 2))
    for one in found.operations:
        text = one.message or "; ".join(told.message for told in one.diagnostics)
        rows.add_row(
            one.name, _state(one.state), _bar(one.state, one.percent), Text(text, "dim")
        )
    attempt = f", attempt {found.attempt}" if found.attempt > 1 else ""
    head = Text.assemble(
        (found.id, "bold"),
        "  ",
        _state(found.state.value),
        f"  {found.percent:.0f}%{attempt}",
    )
    parts: list[RenderableType] = [head, rows]
    if found.message:
        parts.append(Text(found.message, "red"))
    return Group(*parts)


def link_view(found: LinkView) -> RenderableType:
    """A link: how many of its agendas are in which state."""
    rows = Table.grid(padding=(0, 2))
    for state, count in found.counts.items():
        share = 100 * count / found.total
        rows.add_row(_state(state.value), str(count), _bar(state.value, share))
    head = Text.assemble(
        (found.link_id, "bold"),
        "  ",
        _state(found.state.value),
        f"  {found.percent:.0f}% of {found.total} agendas",
    )
    return Group(head, rows)


def _state(state: str) -> Text:
    return Text(state, _COLOURS.get(state, "yellow"))


def _bar(state: str, percent: float) -> ProgressBar:
    colour = _COLOURS.get(state, "yellow")
    return ProgressBar(
        total=100,
        completed=percent,
        width=_BAR,
        complete_style=colour,
        finished_style=colour,
    )
