"""Values as text and markup, the same on every page.

Jinja2 escapes whatever it is given. Nothing here returns markup but the pictures of
`pictures`, which escape what they are given themselves.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

import jinja2
import msgspec
from markupsafe import Markup

from pop_stream.clock import WallClock
from pop_stream.policy.lifecycle.states import State

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_MAX_TEXT: Final = 4_000
_CLOCK: Final = WallClock()

_TURNS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Embeddings, overrides and isolates of the bidirectional algorithm, and their ends."""

NOTHING: Final = "\N{EN DASH}"
"""Stands where there is no value."""

_SHAPES: Final[Mapping[str, str]] = {
    "accepted": "○",
    "ready": "●",
    "waiting": "◷",
    "held": "‖",
    "emitted": "◌",
    "running": "▶",
    "retrying": "↻",
    "succeeded": "✓",
    "failed": "✕",
    "cancelled": "⊘",
    "expired": "⧗",
    "refused": "⊗",
    "lost": "?",
    "deferred": "◷",
    "scheduled": "◷",
    "paused": "‖",
    "paused_after_failures": "‖",
    "ended": "■",
    "delivered": "✓",
    "given_up": "✕",
    "redriven": "↻",
    "discarded": "⊘",
}
"""A state has its word and a shape; its colour says nothing more."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page before it is text.

    Attributes:
        template: Its file in `templates`, with a block `main`.
        title: For the window, the page's first heading, and the history.
        values: For the template.
        is_live: Whether its main part is sent again when it has changed.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: HTTPStatus = HTTPStatus.OK
    is_live: bool = False


class Renderer:
    """Renders pages, whole or their main part alone.

    Args:
        base: The path that all addresses begin with, such as `/ui`.
    """

    def __init__(self, base: str) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("pop_stream.console", "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= _FILTERS
        self._environment.globals |= {"base": base, "shape": shape}

    def whole(self, page: Page, common: Mapping[str, Any]) -> str:
        """The page as HTML."""
        template = self._environment.get_template(page.template)
        return template.render(page=page, **common, **page.values)

    def main(self, page: Page, common: Mapping[str, Any]) -> str:
        """What stands in its element `main`."""
        template = self._environment.get_template(page.template)
        context = template.new_context({"page": page, **common, **page.values})
        return "".join(template.blocks["main"](context))


def shown(value: object) -> object:
    """A value as it stands on a page: what would turn the text around it is named instead."""
    if isinstance(value, str) and not isinstance(value, Markup) and _TURNS.search(value):
        return _TURNS.sub(lambda found: f"[U+{ord(found[0]):04X}]", value)
    return value


def word(state: State | str) -> str:
    """The word of a state, of an agenda, an operation or a schedule."""
    return state.value if isinstance(state, State) else state


def shape(state: State | str) -> str:
    """The shape that stands beside the word of a state."""
    return _SHAPES.get(word(state), "○")


def duration(seconds: float | None) -> str:
    """A length of time for people: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 5 min`, `4 d 3 h`."""
    if seconds is None:
        return NOTHING
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 10:  # noqa: PLR2004  # below, tenths matter
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, name, small, small_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{whole} s"


def age(at: datetime | None) -> str:
    """How long ago an instant was, or in how long it will be."""
    if at is None:
        return NOTHING
    seconds = (_CLOCK.now() - at).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def between(begin: datetime | None, end: datetime | None) -> str:
    """From one instant to another; to now if there is no end, nothing without a beginning."""
    if begin is None:
        return NOTHING
    until = end or _CLOCK.now()
    return duration(max(timedelta(0), until - begin).total_seconds())


def instant(at: datetime | None) -> str:
    """An instant in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at else NOTHING


def iso(at: datetime | None) -> str:
    """An instant as machines read it."""
    return at.isoformat() if at else ""


def number(value: float | None) -> str:
    """A count or a rate with thousands apart; a dash for none."""
    if value is None:
        return NOTHING
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:,.2f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def share(part: float | None) -> str:
    """A part of one as a percentage."""
    return NOTHING if part is None else f"{100 * part:.1f} %"


def pretty(value: object) -> str:
    """Any JSON, indented; what is longer than 4,000 characters is cut, and says so."""
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False, default=str)
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n… {len(text) - _MAX_TEXT} more characters; the API has all"


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "duration": duration,
    "age": age,
    "between": between,
    "instant": instant,
    "iso": iso,
    "number": number,
    "share": share,
    "pretty": pretty,
    "word": word,
}
