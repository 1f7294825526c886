"""Pictures as SVG, drawn by the server: they need no script, print, and can be read as text.

Colours are classes of the style sheet, so that both themes suit. Whatever is written in a
picture is escaped here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout
from markupsafe import Markup, escape

from pop_stream.console.rendering import shape

MAX_NODES: Final = 200
"""Operations of a graph; a larger one is folded by type."""

_NODE_W: Final = 168
_NODE_H: Final = 40
_GAP_X: Final = 24
_GAP_Y: Final = 28
_MARGIN: Final = 8
_SHOWN: Final = 20
"""Characters of a name in a picture; the table has all of it."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An operation in a graph.

    Attributes:
        after: Names of those that it depends on.
        note: A second, smaller line.
    """

    name: str
    state: str
    after: Sequence[str] = ()
    note: str = ""


def sparkline(values: Sequence[float], *, label: str) -> Markup:
    """A small line of what was, the newest at the right; empty below two values."""
    width, height = 120, 28
    if len(values) < 2:  # noqa: PLR2004  # a line has two ends
        return Markup("")
    most = max(values) or 1
    step = width / (len(values) - 1)
    points = " ".join(
        f"{index * step:.1f},{height - 2 - (height - 4) * value / most:.1f}"
        for index, value in enumerate(values)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img"'
        ' aria-label="{label}"><polyline points="{points}"/></svg>'
    ).format(w=width, h=height, points=points, label=label)


def share_bar(entitled: float, actual: float, *, label: str) -> Markup:
    """What a customer has of an insight beside what it is entitled to, both parts of one."""
    width, height = 160, 18
    entitled, actual = (max(0.0, min(1.0, one)) for one in (entitled, actual))
    return Markup(
        '<svg class="share" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img"'
        ' aria-label="{label}"><rect class="track" width="{w}" height="{h}" rx="3"/>'
        '<rect class="actual" y="4" width="{actual:.1f}" height="10" rx="2"/>'
        '<line class="entitled" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{h}"/></svg>'
    ).format(w=width, h=height, actual=width * actual, x=width * entitled, label=label)


def graph(nodes: Sequence[GraphNode]) -> Markup:
    """The nodes in layers, each below all that it comes after.

    At most `MAX_NODES`; the layout is Sugiyama's, by the library grandalf.
    """
    places = _places(nodes)
    if not places:
        return Markup("")
    left = min(x for x, _ in places.values())
    top = min(y for _, y in places.values())
    at = {name: (x - left + _MARGIN, y - top + _MARGIN) for name, (x, y) in places.items()}
    width = max(x for x, _ in at.values()) + _NODE_W + _MARGIN
    height = max(y for _, y in at.values()) + _NODE_H + _MARGIN
    edges = Markup("").join(
        _edge(at[before], at[node.name])
        for node in nodes
        for before in node.after
        if before in at
    )
    drawn = Markup("").join(_node(node, *at[node.name]) for node in nodes)
    return Markup(
        '<svg class="graph" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}"'
        ' role="img" aria-label="Operations and what they wait for; the table says the same">'
        "{edges}{nodes}</svg>"
    ).format(w=width, h=height, edges=edges, nodes=drawn)


class _Box:
    """The size of a node, as grandalf wants it."""

    w, h = _NODE_W, _NODE_H

    def __init__(self) -> None:
        self.xy = (0.0, 0.0)


def _places(nodes: Sequence[GraphNode]) -> Mapping[str, tuple[float, float]]:
    """The upper left corner of each node, by name."""
    vertices = {node.name: Vertex(node.name) for node in nodes}
    for vertex in vertices.values():
        vertex.view = _Box()
    edges = [
        Edge(vertices[before], vertices[node.name])
        for node in nodes
        for before in node.after
        if before in vertices
    ]
    places: dict[str, tuple[float, float]] = {}
    offset = 0.0
    for part in Graph([*vertices.values()], edges).C:
        layout = SugiyamaLayout(part)
        layout.xspace, layout.yspace = _GAP_X, _GAP_Y
        layout.init_all()
        layout.draw()
        members = [*part.sV]
        left = min(one.view.xy[0] for one in members)
        for one in members:
            x, y = one.view.xy
            places[one.data] = (offset + x - left, y)
        offset += max(one.view.xy[0] for one in members) - left + _NODE_W + _GAP_X
    return places


def _edge(before: tuple[float, float], after: tuple[float, float]) -> Markup:
    x1, y1 = before[0] + _NODE_W / 2, before[1] + _NODE_H
    x2, y2 = after[0] + _NODE_W / 2, after[1]
    middle = (y1 + y2) / 2
    return Markup(
        '<path class="edge" d="M{x1:.0f} {y1:.0f} C{x1:.0f} {m:.0f} {x2:.0f} {m:.0f}'
        ' {x2:.0f} {y2:.0f}"/>'
    ).format(x1=x1, y1=y1, x2=x2, y2=y2, m=middle)


def _node(node: GraphNode, x: float, y: float) -> Markup:
    name = node.name if len(node.name) <= _SHOWN else f"{node.name[: _SHOWN - 1]}…"
    return Markup(
        '<g class="node state-{state}"><title>{full}: {state_word}</title>'
        '<rect x="{x:.0f}" y="{y:.0f}" width="{w}" height="{h}" rx="6"/>'
        '<text x="{tx:.0f}" y="{ty:.0f}">{glyph} {name}</text>'
        '<text class="note" x="{tx:.0f}" y="{ny:.0f}">{note}</text></g>'
    ).format(
        state=escape(node.state.lower()),
        state_word=node.state.lower(),
        full=node.name,
        x=x,
        y=y,
        w=_NODE_W,
        h=_NODE_H,
        tx=x + 10,
        ty=y + 17,
        ny=y + 32,
        glyph=shape(node.state),
        name=name,
        note=node.note[: _SHOWN + 6],
    )


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line in a chart: its name, and its points as x and y."""

    name: str
    points: Sequence[tuple[float, float]]


_CHART_W: Final = 760
_CHART_H: Final = 240
_LEFT: Final = 56
_RIGHT: Final = 150
_TOP: Final = 10
_BOTTOM: Final = 24
_LABEL_H: Final = 15
MAX_LINES: Final = 8
"""Lines of a chart: more could not be kept apart."""


def chart(
    series: Sequence[ChartLine], *, label: str, x_axis: Sequence[str], unit: str
) -> Markup:
    """Lines over a common axis, each with its name at its end; empty without two points.

    Args:
        series: At most `MAX_LINES`; those after are left out.
        label: For those who do not see it.
        x_axis: What stands below the left and the right end.
        unit: Of the vertical axis.
    """
    shown = [one for one in series[:MAX_LINES] if len(one.points) > 1]
    if not shown:
        return Markup("")
    first = min(one.points[0][0] for one in shown)
    width = max(one.points[-1][0] for one in shown) - first or 1.0
    most = max(max(y for _, y in one.points) for one in shown) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - first) / width, y / most
        inner_w, inner_h = _CHART_W - _LEFT - _RIGHT, _CHART_H - _TOP - _BOTTOM
        return _LEFT + inner_w * across, _TOP + inner_h * (1 - up)

    ends = _apart([place(*one.points[-1])[1] for one in shown])
    lines = Markup("").join(
        _line(number, one.name, [place(*point) for point in one.points], end)
        for number, (one, end) in enumerate(zip(shown, ends, strict=True))
    )
    return Markup(
        '<svg class="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        "{axes}{lines}</svg>"
    ).format(w=_CHART_W, h=_CHART_H, label=label, axes=_axes(most, x_axis, unit), lines=lines)


def _axes(most: float, x_axis: Sequence[str], unit: str) -> Markup:
    right, low = _CHART_W - _RIGHT, _CHART_H - _BOTTOM
    grid = Markup("").join(
        Markup(
            '<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            '<text class="axis" x="{x}" y="{ty:.1f}" text-anchor="end">{value}</text>'
        ).format(
            left=_LEFT,
            right=right,
            x=_LEFT - 6,
            y=low - (low - _TOP) * part,
            ty=low - (low - _TOP) * part + 4,
            value=f"{most * part:.3g}" + (f" {unit}" if part == 1 else ""),
        )
        for part in (0.0, 0.5, 1.0)
    )
    ends = ((_LEFT, "start", x_axis[0]), (right, "end", x_axis[-1]))
    return grid + Markup("").join(
        Markup(
            '<text class="axis" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'
        ).format(x=x, y=_CHART_H - 6, anchor=anchor, text=text)
        for x, anchor, text in ends
    )


def _line(
    number: int, name: str, points: Sequence[tuple[float, float]], label_y: float
) -> Markup:
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    shown = name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
    return Markup(
        '<g class="line line-{number}"><title>{name}</title><polyline points="{drawn}"/>'
        '<line class="lead" x1="{x:.1f}" y1="{y:.1f}" x2="{lx}" y2="{ly:.1f}"/>'
        '<text x="{tx}" y="{ty:.1f}">{shown}</text></g>'
    ).format(
        number=number, name=name, drawn=drawn, x=x, y=y, lx=_CHART_W - _RIGHT + 14,
        ly=label_y, tx=_CHART_W - _RIGHT + 18, ty=label_y + 4, shown=shown,
    )  # fmt: skip


def _apart(wanted: Sequence[float]) -> Sequence[float]:
    """Heights near those wanted, far enough apart to be read."""
    order = sorted(range(len(wanted)), key=lambda one: wanted[one])
    places, free_from = [0.0] * len(wanted), 0.0
    for one in order:
        places[one] = max(wanted[one], free_from)
        free_from = places[one] + _LABEL_H
    too_low = max(0.0, free_from - _LABEL_H - (_CHART_H - _BOTTOM))
    return [max(_TOP, one - too_low) for one in places]


@dataclass(frozen=True, slots=True)
class Span:
    """A bar on a time line, in seconds from its left end.

    Attributes:
        waited_from: When it was emitted, drawn thin up to `begin`; None for not.
        state: Whose colour it has; the word stands in the table.
    """

    name: str
    begin: float
    end: float
    state: str
    waited_from: float | None = None


_SPAN_H: Final = 22
_SPAN_LEFT: Final = 90
_SPAN_W: Final = 620
MAX_SPANS: Final = 20
"""Bars of a time line; the table has all."""


def time_line(spans: Sequence[Span], *, label: str, x_axis: Sequence[str]) -> Markup:
    """Bars below each other on one axis; empty without any.

    Args:
        spans: In order; the last `MAX_SPANS` are drawn.
        label: For those who do not see it.
        x_axis: What stands below the left and the right end.
    """
    drawn = spans[-MAX_SPANS:]
    if not drawn:
        return Markup("")
    first = min(one.begin if one.waited_from is None else one.waited_from for one in drawn)
    width = max(one.end for one in drawn) - first or 1.0
    scale = _SPAN_W / width
    bars = Markup("").join(_bar(number, one, first, scale) for number, one in enumerate(drawn))
    height = _SPAN_H * len(drawn) + 22
    ends = ((_SPAN_LEFT, "start", x_axis[0]), (_SPAN_LEFT + _SPAN_W, "end", x_axis[-1]))
    axis = Markup("").join(
        Markup('<text class="axis" x="{x}" y="{y}" text-anchor="{a}">{text}</text>').format(
            x=x, y=height - 5, a=anchor, text=text
        )
        for x, anchor, text in ends
    )
    return Markup(
        '<svg class="time-line" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        "{bars}{axis}</svg>"
    ).format(w=_SPAN_LEFT + _SPAN_W + 10, h=height, label=label, bars=bars, axis=axis)


def _bar(number: int, one: Span, first: float, scale: float) -> Markup:
    top = _SPAN_H * number + 4
    left, right = ((at - first) * scale + _SPAN_LEFT for at in (one.begin, one.end))
    waited = Markup("")
    if one.waited_from is not None:
        x = (one.waited_from - first) * scale + _SPAN_LEFT
        waited = Markup('<line class="waited" x1="{x:.1f}" x2="{left:.1f}" y1="{y}" y2="{y}"/>')
        waited = waited.format(x=x, left=left, y=top + 7)
    return Markup(
        '<g class="span state-{state}"><title>{name}: {state}</title>'
        '<text x="0" y="{ty}">{glyph} {name}</text>{waited}'
        '<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="14" rx="3"/></g>'
    ).format(
        state=one.state, name=one.name, glyph=shape(one.state), ty=top + 11, waited=waited,
        left=left, top=top, width=max(2.0, right - left),
    )  # fmt: skip
