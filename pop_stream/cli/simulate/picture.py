"""Draws who was served how much by when, as an SVG that suits light and dark pages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Final

from pop_stream.cli.simulate.trial import Trial
from pop_stream.core.service import SETTLED, WEIGHED, ServiceLog

_WIDTH, _HEIGHT = 960, 540
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 196, 84, 56
_SAMPLES: Final = 300
_LABEL_GAP: Final = 19.0
_TICKS: Final = 6
_COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c7ae6",
)  # fmt: skip
"""Told apart with any kind of colour vision: Okabe and Ito, without yellow and black."""

_STYLE: Final = """
  .page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .axis { stroke: #818b98; stroke-width: 1 }
  .mark { stroke: #818b98; stroke-width: 1; stroke-dasharray: 2 4 }
  .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }
  .rest { fill: none; stroke: #818b98; stroke-width: 1; opacity: .45 }
  .lead { stroke-width: 1; opacity: .5 }
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .title { font-size: 19px; font-weight: 600 } .text { font-size: 13px }
  .number { font-variant-numeric: tabular-nums }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #f0f6fc } .soft { fill: #9198a1 }
    .grid { stroke: #2a313c } .axis, .mark { stroke: #656c76 }
  }
"""


@dataclass(frozen=True, slots=True)
class Course:
    """One customer's service by time.

    Attributes:
        name: With its weight, if that is not 1.
        heights: Worker-seconds per weight at the samples' instants.
    """

    name: str
    heights: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn.

    Attributes:
        instants: Of the samples, in seconds.
        courses: Customers with the most work first.
        others: How many further customers there are.
        marks: Instants when weights changed, and to what.
    """

    title: str
    instants: Sequence[float]
    courses: Sequence[Course]
    others: int
    marks: Sequence[tuple[float, str]]


def write_picture(path: Path, title: str, trials: Mapping[str, Trial]) -> None:
    """Draw the insight with the most agendas."""
    insight = max(trials, key=lambda name: trials[name].audit.started)
    heading = title if len(trials) == 1 else f"{title}: {insight}"
    path.write_text(draw(chart_of(heading, trials[insight].log)), encoding="utf-8")


def chart_of(title: str, log: ServiceLog) -> Chart:
    """Sample everybody's service, in one pass."""
    begin, end = _span(log)
    step = (end - begin) / _SAMPLES or 1.0
    served = [0.0] * len(log.customers)
    work = [0.0] * len(log.customers)
    weights = [1.0] * len(log.customers)
    rows: list[list[float]] = []
    marks: list[tuple[float, str]] = []
    for kind, at, customer, first, second in log:
        while at > begin + len(rows) * step:
            rows.append([*served])
        if kind == SETTLED:
            served[customer] += first
            work[customer] += second
        elif kind == WEIGHED:
            weights[customer] = first
            if at > begin:
                marks.append((at, f"{log.customers[customer]} weighs {first:g}"))
    rows.append([*served])
    order = sorted(range(len(work)), key=lambda one: (-work[one], log.customers[one]))
    shown = order[: 4 * len(_COLOURS)]
    return Chart(
        title=title,
        instants=[number * step for number in range(len(rows))],
        courses=[
            Course(_label(log.customers[one], weights[one]), [row[one] for row in rows])
            for one in shown
        ],
        others=len(order) - len(_COLOURS),
        marks=[(at - begin, text) for at, text in marks[:_TICKS]],
    )


def draw(chart: Chart) -> str:
    """The chart as SVG."""
    plot = _Plot(
        across=max(chart.instants[-1], 1e-9),
        up=max((course.heights[-1] for course in chart.courses), default=0.0) or 1.0,
    )
    subtitle = "Worker-seconds per weight given to each customer; equal slopes are equal shares"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(chart.title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
        f'<text class="title ink" x="{_LEFT - 40}" y="36">{escape(chart.title)}</text>',
        f'<text class="text soft" x="{_LEFT - 40}" y="58">{subtitle}</text>',
        *_axes(plot),
        *_marks(plot, chart),
        *_lines(plot, chart),
        *_labels(plot, chart),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Plot:
    """From seconds and worker-seconds to places on the page."""

    across: float
    up: float

    def x(self, seconds: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / self.across, 1)

    def y(self, height: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * height / self.up, 1)


def _axes(plot: _Plot) -> Iterator[str]:
    base, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value, text in _ticks(plot.up):
        y = plot.y(value)
        kind = "grid" if value else "axis"
        yield f'<line class="{kind}" x1="{_LEFT}" x2="{end}" y1="{y}" y2="{y}"/>'
        yield (
            f'<text class="text number soft" x="{_LEFT - 10}" y="{y + 4}" '
            f'text-anchor="end">{text}</text>'
        )
    for value, text in _ticks(plot.across):
        x = plot.x(value)
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{base}" y2="{base + 5}"/>'
        yield (
            f'<text class="text number soft" x="{x}" y="{base + 21}" '
            f'text-anchor="middle">{text}</text>'
        )
    middle = (_LEFT + end) / 2
    yield (
        f'<text class="text soft" x="{middle}" y="{base + 43}" text-anchor="middle">'
        "seconds since the first agenda</text>"
    )


def _marks(plot: _Plot, chart: Chart) -> Iterator[str]:
    for at, text in chart.marks:
        x = plot.x(at)
        yield f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
        yield f'<text class="text soft" x="{x + 6}" y="{_TOP + 12}">{escape(text)}</text>'


def _lines(plot: _Plot, chart: Chart) -> Iterator[str]:
    for course in chart.courses[len(_COLOURS) :]:
        yield f'<path class="rest" d="{_path(plot, chart.instants, course)}"/>'
    named = [*zip(chart.courses, _COLOURS, strict=False)]
    for number, (course, colour) in reversed([*enumerate(named)]):
        # Where lines run over each other, dashes let the lower one show through.
        dash = f' stroke-dasharray="{7 + 2 * number} {3 + number}"' if number % 2 else ""
        yield (
            f'<path class="line" stroke="{colour}"{dash} '
            f'd="{_path(plot, chart.instants, course)}"/>'
        )


def _path(plot: _Plot, instants: Sequence[float], course: Course) -> str:
    points: list[tuple[float, float]] = []
    for at, height in zip(instants, course.heights, strict=True):
        point = (plot.x(at), plot.y(height))
        if len(points) > 1 and points[-1][1] == points[-2][1] == point[1]:
            points.pop()  # of a level stretch only the ends
        points.append(point)
    return "M" + " L".join(f"{x:g},{y:g}" for x, y in points)


def _labels(plot: _Plot, chart: Chart) -> Iterator[str]:
    end = _WIDTH - _RIGHT
    named = [*zip(chart.courses, _COLOURS, strict=False)]
    wanted = [plot.y(course.heights[-1]) for course, _ in named]
    for (course, colour), y, place in zip(named, wanted, _apart(wanted), strict=True):
        yield (
            f'<line class="lead" stroke="{colour}" x1="{end + 2}" x2="{end + 16}" '
            f'y1="{y}" y2="{place:.1f}"/>'
        )
        yield f'<circle fill="{colour}" cx="{end + 20}" cy="{place:.1f}" r="4"/>'
        yield (
            f'<text class="text ink" x="{end + 30}" y="{place + 4.5:.1f}">'
            f"{escape(course.name)}</text>"
        )
    if chart.others > 0:
        yield (
            f'<text class="text soft" x="{end + 16}" y="{_TOP - 12}">'
            f"and {chart.others:,} others, grey</text>"
        )


def _apart(wanted: Sequence[float]) -> Sequence[float]:
    """The nearest places in the same order that do not overlap and stay on the page."""
    order = sorted(range(len(wanted)), key=lambda one: -wanted[one])
    places = [0.0] * len(wanted)
    lowest = float(_HEIGHT - _BOTTOM)
    for number, one in enumerate(order):
        above = len(order) - 1 - number
        highest = _TOP + above * _LABEL_GAP
        places[one] = max(min(wanted[one], lowest), highest)
        lowest = places[one] - _LABEL_GAP
    return places


def _ticks(most: float) -> Iterator[tuple[float, str]]:
    """Round values from 0 to the most, and how they are written."""
    rough = most / _TICKS
    power = 10 ** floor(log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * (1 - 1e-9))
    digits = max(0, ceil(-log10(step)))
    for number in range(floor(most / step + 1e-9) + 1):
        yield number * step, f"{number * step:,.{digits}f}"


def _span(log: ServiceLog) -> tuple[float, float]:
    instants = [moment.at for moment in log]
    return (instants[0], instants[-1]) if instants else (0.0, 0.0)


def _label(name: str, weight: float, most: int = 20) -> str:
    shown = name if len(name) <= most else f"{name[: most - 1]}…"
    return shown if weight == 1 else f"{shown} (weight {weight:g})"
