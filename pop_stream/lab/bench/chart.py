"""Draws what the benchmarks measured: lines over time, as SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pop_stream.lab.bench.figures import thinned
from pop_stream.lab.simulate.chart import COLOURS, STYLE, line_between, text_at, ticks

if TYPE_CHECKING:
    from pop_stream.lab.bench.pipeline_run import PipelineResult, PipelineRun

_WIDTH, _HEIGHT = 960, 460
_LEFT, _END = 92, 780
_TOP, _BASE = 96, 392
_KEY_GAP: Final = 24

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LineChart:
    """A picture of lines.

    Attributes:
        description: What the height is, in words.
        across: What the width is, in words.
        named: Lines of one colour each, by what the key calls them.
    """

    title: str
    description: str
    across: str
    named: Mapping[str, Sequence[Points]]


def write_progress(path: Path, outcome: "PipelineResult") -> None:
    """Draw how many agendas had ended by time, in each run and in each of the floor's."""
    named = {"pop_stream": outcome.runs, "floor": outcome.floors}
    lines = LineChart(
        title="A bench pipeline: every run, and its floor",
        description="Agendas whose summary is in Postgres; the slope is the rate",
        across="seconds since the first submission",
        named={name: [_points(run) for run in runs] for name, runs in named.items() if runs},
    )
    path.write_text(draw_lines(lines), encoding="utf-8")


def draw_lines(lines: LineChart) -> str:
    """The picture as SVG."""
    points = [one for many in lines.named.values() for line in many for one in line]
    most_x = max((x for x, _ in points), default=0.0) or 1.0
    most_y = max((y for _, y in points), default=0.0) or 1.0
    scale = _ChartAxes(most_x, most_y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{escape(lines.title)}: {escape(lines.description)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
        text_at(28, 36, lines.title, "title ink"),
        text_at(28, 66, lines.description),
        *_axes(scale, lines.across),
        *_drawn(scale, lines.named),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _ChartAxes:
    most_x: float
    most_y: float

    def x(self, value: float) -> float:
        return round(_LEFT + (_END - _LEFT) * value / self.most_x, 1)

    def y(self, value: float) -> float:
        return round(_BASE - (_BASE - _TOP) * value / self.most_y, 1)


def _points(run: "PipelineRun") -> Points:
    return [(one.at, float(one.ended)) for one in thinned(run.samples)]


def _axes(scale: _ChartAxes, across: str) -> Iterator[str]:
    for value, said in ticks(scale.most_y):
        y = scale.y(value)
        yield line_between("grid" if value else "axis", (_LEFT, y), (_END, y))
        yield text_at(_LEFT - 10, y + 4, said, "number soft", "end")
    for value, said in ticks(scale.most_x):
        x = scale.x(value)
        yield line_between("axis", (x, _BASE), (x, _BASE + 5))
        yield text_at(x, _BASE + 21, said, "number soft", "middle")
    yield text_at((_LEFT + _END) / 2, _BASE + 45, across, anchor="middle")


def _drawn(scale: _ChartAxes, named: Mapping[str, Sequence[Points]]) -> Iterator[str]:
    for number, (name, many) in enumerate(named.items()):
        colour = COLOURS[number % len(COLOURS)]
        for points in many:
            path = " L".join(f"{scale.x(x):g},{scale.y(y):g}" for x, y in points)
            yield f'<path class="line" stroke="{colour}" d="M{path}"/>'
        y = _TOP + _KEY_GAP * number
        yield f'<circle fill="{colour}" cx="{_END + 22}" cy="{y}" r="4.5"/>'
        yield text_at(_END + 33, y + 4.5, name, "ink")
