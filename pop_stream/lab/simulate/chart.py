"""Draws a service log as SVG: everybody's service over time, and their shares.

`chart_of` samples the log into curves, `draw` writes them. The picture suits light and dark
pages and any kind of colour vision; `text_at`, `line_between` and `ticks` are also what the
benchmarks draw with.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import Final, NamedTuple

from pop_stream.lab.fairness_metrics.service_log import REWEIGHTED, SETTLED, ServiceLog
from pop_stream.lab.reporting import shortened
from pop_stream.lab.simulate.trial import ScenarioComparison

NAMED: Final = 7
"""Customers that are drawn in a colour of their own."""

_FAINT: Final = 40
_SAMPLES: Final = 300
_BINS: Final = 75
_MAX_MARKS: Final = 6
_LABEL_MOST: Final = 20
_TITLE_MOST: Final = 84


@dataclass(frozen=True, slots=True)
class ServiceCurve:
    """One customer's service by time.

    Attributes:
        name: With its weight, if that is not 1.
        heights: Worker-seconds per weight so far, at the samples' instants.
        parts: Of all worker-seconds in each of some equal spans, 0 to 1.
    """

    name: str
    heights: Sequence[float]
    parts: Sequence[float]


@dataclass(frozen=True, slots=True)
class ServiceChart:
    """What is drawn.

    Attributes:
        instants: Of the samples, in seconds.
        named: The customers with the most work.
        faint: Further ones, as far as they can be distinguished.
        others: How many there are beside the named ones.
        marks: Instants when weights changed, and to what.
    """

    title: str
    instants: Sequence[float]
    named: Sequence[ServiceCurve]
    faint: Sequence[ServiceCurve]
    others: int
    marks: Sequence[tuple[float, str]]


def chart_of(title: str, log: ServiceLog) -> ServiceChart:
    """Sample everybody's service, in one pass over the log."""
    sampled = _sample(log)
    work = sampled.work[-1]
    order = sorted(range(len(work)), key=lambda one: (-work[one], log.customers[one]))
    parts = _parts(sampled.work)

    def course(customer: int) -> ServiceCurve:
        return ServiceCurve(
            name=_label(log.customers[customer], sampled.weights[customer]),
            heights=[row[customer] for row in sampled.served],
            parts=[row[customer] for row in parts],
        )

    return ServiceChart(
        title=title,
        instants=sampled.instants,
        named=[course(one) for one in order[:NAMED]],
        faint=[course(one) for one in order[NAMED : NAMED + _FAINT]],
        others=max(0, len(order) - NAMED),
        marks=sampled.marks[:_MAX_MARKS],
    )


@dataclass(slots=True)
class _ServiceSamples:
    """Rows of one value a customer: served per weight, and worker-seconds."""

    instants: list[float]
    served: list[list[float]]
    work: list[list[float]]
    weights: list[float]
    marks: list[tuple[float, str]]


def _sample(log: ServiceLog) -> _ServiceSamples:
    count = len(log.customers)
    served, work, weights = [0.0] * count, [0.0] * count, [1.0] * count
    begin, end = log.span
    step = (end - begin) / _SAMPLES or 1.0
    found = _ServiceSamples([], [], [], weights, [])

    def sample() -> None:
        found.instants.append(len(found.instants) * step)
        found.served.append([*served])
        found.work.append([*work])

    for kind, at, customer, first, second in log:
        while at > begin + len(found.instants) * step:
            sample()
        if kind == SETTLED:
            served[customer] += first
            work[customer] += second
        elif kind == REWEIGHTED:
            if weights[customer] != 1 or at > begin + step:
                name = shortened(log.customers[customer], _LABEL_MOST)
                found.marks.append((at - begin, f"{name} weighs {first:g}"))
            weights[customer] = first
    sample()
    return found


def _parts(work: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
    """Everybody's part of the worker-seconds of each span; all zero if there were none."""
    last = len(work) - 1
    bounds = [work[round(last * number / _BINS)] for number in range(_BINS + 1)]
    parts: list[list[float]] = []
    for before, after in pairwise(bounds):
        gained = [late - early for early, late in zip(before, after, strict=True)]
        total = sum(gained)
        parts.append([one / total if total > 0 else 0.0 for one in gained])
    return parts


def _label(name: str, weight: float) -> str:
    more = "" if weight == 1 else f" (weight {weight:g})"
    return shortened(name, _LABEL_MOST - len(more)) + more


_TICKS: Final = 6
COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c7ae6",
)  # fmt: skip

STYLE: Final = """
  .page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .axis { stroke: #818b98; stroke-width: 1 }
  .mark { stroke: #818b98; stroke-width: 1; stroke-dasharray: 2 4 }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  .rest { fill: none; stroke: #8b949e; stroke-width: 1; opacity: .5 }
  .lead { stroke-width: 1; opacity: .5 } .share { opacity: .85 }
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .title { font-size: 19px; font-weight: 600 } .text { font-size: 13px }
  .number { font-variant-numeric: tabular-nums }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #f0f6fc } .soft { fill: #9198a1 }
    .grid { stroke: #2a313c } .axis, .mark { stroke: #656c76 }
  }
"""


def text_at(x: float, y: float, text: str, kind: str = "soft", anchor: str = "start") -> str:
    """Text at a place; `kind` is of the style's classes."""
    kinds = kind if "title" in kind else f"text {kind}"
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{kinds}" {place}>{escape(text)}</text>'


def line_between(
    kind: str, begin: tuple[float, float], end: tuple[float, float], more: str = ""
) -> str:
    """A straight line of one of the style's classes, with further attributes."""
    (x1, y1), (x2, y2) = begin, end
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{more}/>'


class AxisUnit(NamedTuple):
    """What an axis of time is marked in, and its seconds."""

    name: str
    seconds: float


_UNITS: Final = (
    AxisUnit("year", 365 * 86_400.0),
    AxisUnit("day", 86_400.0),
    AxisUnit("hour", 3_600.0),
    AxisUnit("minute", 60.0),
)
_FEWEST: Final = 3
_SECOND: Final = AxisUnit("second", 1.0)


def axis_unit(most_s: float) -> AxisUnit:
    """The largest unit of which an axis of so many seconds has some."""
    return next((one for one in _UNITS if most_s >= _FEWEST * one.seconds), _SECOND)


def ticks(most: float) -> Iterator[tuple[float, str]]:
    """Round values from 0 to the most, and how they are written."""
    rough = most / _TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * (1 - 1e-9))
    digits = max(0, ceil(-log10(step) - 1e-9))
    for number in range(floor(most / step + 1e-9) + 1):
        yield number * step, f"{number * step:,.{digits}f}"


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
    insight = max(comparisons, key=lambda name: comparisons[name].fairness.times.started)
    heading = title if len(comparisons) == 1 else f"{title}: {insight}"
    path.write_text(draw(chart_of(heading, comparisons[insight].log)), encoding="utf-8")


def draw(chart: ServiceChart) -> str:
    """The chart as SVG: service so far above, everybody's part of the moment below."""
    courses = [*chart.named, *chart.faint]
    plot = _ChartScale(
        across=max(chart.instants[-1], 1e-9),
        up=max((course.heights[-1] for course in courses), default=0.0) or 1.0,
    )
    title = shortened(chart.title, _TITLE_MOST)
    said = f"Worker-{plot.unit_up.name}s per weight given so far; equal slopes are equal shares"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{escape(title)}: {said}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
        text_at(28, 36, title, "title ink"),
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

    @property
    def unit_across(self) -> AxisUnit:
        """Of time since the first agenda."""
        return axis_unit(self.across)

    @property
    def unit_up(self) -> AxisUnit:
        """Of a worker's time."""
        return axis_unit(self.up)

    def x(self, seconds: float) -> float:
        return round(_LEFT + (_END - _LEFT) * seconds / self.across, 1)

    def y(self, height: float) -> float:
        return round(_BASE - (_BASE - _TOP) * height / self.up, 1)


def _heights(plot: _ChartScale) -> Iterator[str]:
    each = plot.unit_up.seconds
    for value, text in ticks(plot.up / each):
        y = plot.y(value * each)
        yield line_between("grid" if value else "axis", (_LEFT, y), (_END, y))
        yield text_at(_LEFT - 10, y + 4, text, "number soft", "end")


def _instants(plot: _ChartScale) -> Iterator[str]:
    yield line_between("axis", (_LEFT, _SHARES_BASE), (_END, _SHARES_BASE))
    each = plot.unit_across.seconds
    for value, text in ticks(plot.across / each):
        x = plot.x(value * each)
        yield line_between("axis", (x, _SHARES_BASE), (x, _SHARES_BASE + 5))
        yield text_at(x, _SHARES_BASE + 21, text, "number soft", "middle")
    middle = (_LEFT + _END) / 2
    said = f"{plot.unit_across.name}s since the first agenda"
    yield text_at(middle, _SHARES_BASE + 43, said, anchor="middle")
    for y, text in ((_SHARES_TOP, "100 %"), (_SHARES_BASE, "0")):
        yield text_at(_LEFT - 10, y + 4, text, "number soft", "end")


def _marks(plot: _ChartScale, chart: ServiceChart) -> Iterator[str]:
    for number, (instant, text) in enumerate(chart.marks):
        x = plot.x(instant)
        yield line_between("mark", (x, _TOP), (x, _SHARES_BASE))
        is_late = x > (_LEFT + _END) / 2
        at, anchor = (x - 6, "end") if is_late else (x + 6, "start")
        yield text_at(at, _TOP + 10 + 16 * number, text, anchor=anchor)


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
                merged = sorted([*groups[one], *groups[other]])
                groups |= dict.fromkeys(merged, merged)
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
