"""Draws a chart as an SVG that suits light and dark pages, and any kind of colour vision."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Final

from pop_stream.cli.simulate.canvas import COLOURS, STYLE, line_between, text_at, ticks
from pop_stream.cli.simulate.chart import ServiceChart, ServiceCurve, chart_of
from pop_stream.cli.simulate.trial import ScenarioComparison

_WIDTH, _HEIGHT = 960, 640
_LEFT, _END = 68, 768
_TOP, _BASE = 96, 412
_SHARES_TOP, _SHARES_BASE = 474, 578
_LABEL_GAP: Final = 19.0
_DASH: Final = 9
_SAME: Final = 2.0
_REST: Final = "#8b949e"


def write_picture(
    path: Path, title: str, comparisons: Mapping[str, ScenarioComparison]
) -> None:
    """Draw the insight with the most agendas."""
    insight = max(comparisons, key=lambda name: comparisons[name].audit.times.started)
    heading = title if len(comparisons) == 1 else f"{title}: {insight}"
    path.write_text(draw(chart_of(heading, comparisons[insight].log)), encoding="utf-8")


def draw(chart: ServiceChart) -> str:
    """The chart as SVG: service so far above, everybody's part of the moment below."""
    courses = [*chart.named, *chart.faint]
    plot = _ChartScale(
        across=max(chart.instants[-1], 1e-9),
        up=max((course.heights[-1] for course in courses), default=0.0) or 1.0,
    )
    said = "Worker-seconds per weight given so far; equal slopes are equal shares"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{escape(chart.title)}: {said}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
        text_at(28, 36, chart.title, "title ink"),
        text_at(28, 66, said),
        *_heights(plot),
        *_marks(plot, chart),
        *_lines(plot, chart),
        *_labels(plot, chart),
        text_at(28, _SHARES_TOP - 14, "Part of all worker-seconds, moment by moment"),
        *_shares(chart),
        *_instants(plot),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _ChartScale:
    """From seconds and worker-seconds to places on the page."""

    across: float
    up: float

    def x(self, seconds: float) -> float:
        return round(_LEFT + (_END - _LEFT) * seconds / self.across, 1)

    def y(self, height: float) -> float:
        return round(_BASE - (_BASE - _TOP) * height / self.up, 1)


def _heights(plot: _ChartScale) -> Iterator[str]:
    for value, text in ticks(plot.up):
        y = plot.y(value)
        yield line_between("grid" if value else "axis", (_LEFT, y), (_END, y))
        yield text_at(_LEFT - 10, y + 4, text, "number soft", "end")


def _instants(plot: _ChartScale) -> Iterator[str]:
    yield line_between("axis", (_LEFT, _SHARES_BASE), (_END, _SHARES_BASE))
    for value, text in ticks(plot.across):
        x = plot.x(value)
        yield line_between("axis", (x, _SHARES_BASE), (x, _SHARES_BASE + 5))
        yield text_at(x, _SHARES_BASE + 21, text, "number soft", "middle")
    middle = (_LEFT + _END) / 2
    yield text_at(middle, _SHARES_BASE + 43, "seconds since the first agenda", anchor="middle")
    for y, text in ((_SHARES_TOP, "100 %"), (_SHARES_BASE, "0")):
        yield text_at(_LEFT - 10, y + 4, text, "number soft", "end")


def _marks(plot: _ChartScale, chart: ServiceChart) -> Iterator[str]:
    for number, (at, text) in enumerate(chart.marks):
        x = plot.x(at)
        yield line_between("mark", (x, _TOP), (x, _SHARES_BASE))
        yield text_at(x + 6, _TOP + 10 + 16 * number, text)


def _lines(plot: _ChartScale, chart: ServiceChart) -> Iterator[str]:
    for course in chart.faint:
        yield f'<path class="rest" d="{_path(plot, chart.instants, course)}"/>'
    paths = [_path(plot, chart.instants, course) for course in chart.named]
    for path, colour in reversed([*zip(paths, COLOURS, strict=False)]):
        yield f'<path class="line" stroke="{colour}" d="{path}"/>'
    together = _together(plot, chart.named)
    for number, path in enumerate(paths):
        mates = together[number]
        if len(mates) > 1:  # lines that run over each other take turns to be seen
            gap, offset = _DASH * (len(mates) - 1), -_DASH * mates.index(number)
            dash = f'stroke-dasharray="{_DASH} {gap}" stroke-dashoffset="{offset}"'
            yield f'<path class="line" stroke="{COLOURS[number]}" {dash} d="{path}"/>'


def _together(plot: _ChartScale, named: Sequence[ServiceCurve]) -> Mapping[int, Sequence[int]]:
    """By number of each course, those that run over it for a good part, and itself."""
    groups = {number: [number] for number in range(len(named))}
    for one in range(len(named)):
        for other in range(one):
            if groups[one] is not groups[other] and _is_same(plot, named[one], named[other]):
                apply_merge_patch = sorted([*groups[one], *groups[other]])
                groups |= dict.fromkeys(apply_merge_patch, apply_merge_patch)
    return groups


def _is_same(plot: _ChartScale, one: ServiceCurve, other: ServiceCurve) -> bool:
    near = sum(
        abs(plot.y(height) - plot.y(height_of_other)) < _SAME
        for height, height_of_other in zip(one.heights, other.heights, strict=True)
    )
    return near > len(one.heights) / 4


def _path(plot: _ChartScale, instants: Sequence[float], course: ServiceCurve) -> str:
    points: list[tuple[float, float]] = []
    for at, height in zip(instants, course.heights, strict=True):
        point = (plot.x(at), plot.y(height))
        if len(points) > 1 and points[-1][1] == points[-2][1] == point[1]:
            points.pop()  # of a level stretch only the ends
        points.append(point)
    return "M" + " L".join(f"{x:g},{y:g}" for x, y in points)


def _labels(plot: _ChartScale, chart: ServiceChart) -> Iterator[str]:
    wanted = [plot.y(course.heights[-1]) for course in chart.named]
    for number, place in enumerate(_apart(wanted)):
        colour = COLOURS[number]
        stroke = f' stroke="{colour}"'
        yield line_between("lead", (_END + 3, wanted[number]), (_END + 17, place), stroke)
        yield f'<circle fill="{colour}" cx="{_END + 22}" cy="{place:.1f}" r="4.5"/>'
        yield text_at(_END + 33, round(place + 4.5, 1), chart.named[number].name, "ink")
    if chart.others:
        yield f'<circle fill="{_REST}" cx="{_END + 22}" cy="{_SHARES_TOP + 8}" r="4.5"/>'
        yield text_at(_END + 33, _SHARES_TOP + 12.5, f"{chart.others:,} others", "ink")


def _apart(wanted: Sequence[float]) -> Sequence[float]:
    """The nearest places in the same order that do not overlap and stay on the page."""
    order = sorted(range(len(wanted)), key=lambda one: -wanted[one])
    places = [0.0] * len(wanted)
    lowest = float(_BASE)
    for number, one in enumerate(order):
        above = len(order) - 1 - number
        places[one] = max(min(wanted[one], lowest), _TOP + above * _LABEL_GAP)
        lowest = places[one] - _LABEL_GAP
    return places


def _shares(chart: ServiceChart) -> Iterator[str]:
    """Stacked from below, the named customers in order, the rest on top."""
    stacks = [
        [0.0, *accumulate(course.parts[index] for course in chart.named)]
        for index in range(len(chart.named[0].parts) if chart.named else 0)
    ]
    width = (_END - _LEFT) / max(1, len(stacks))
    height = _SHARES_BASE - _SHARES_TOP
    yield from (
        _area([(stack[layer], stack[layer + 1]) for stack in stacks], width, height, colour)
        for layer, colour in zip(range(len(chart.named)), COLOURS, strict=False)
    )
    if chart.others:
        tops = [(stack[-1], 1.0 if stack[-1] > 0 else 0.0) for stack in stacks]
        yield _area(tops, width, height, _REST)


def _area(
    layers: Sequence[tuple[float, float]], width: float, height: float, colour: str
) -> str:
    above = [
        (_LEFT + width * (index + side), _SHARES_BASE - height * top)
        for index, (_, top) in enumerate(layers)
        for side in (0, 1)
    ]
    below = [
        (_LEFT + width * (index + side), _SHARES_BASE - height * bottom)
        for index, (bottom, _) in reversed([*enumerate(layers)])
        for side in (1, 0)
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*above, *below])
    return f'<polygon class="share" fill="{colour}" points="{points}"/>'
