"""What the pictures are drawn with: SVG for light and dark pages, and any colour vision."""

from collections.abc import Iterator
from html import escape
from math import ceil, floor, log10
from typing import Final

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


def ticks(most: float) -> Iterator[tuple[float, str]]:
    """Round values from 0 to the most, and how they are written."""
    rough = most / _TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * (1 - 1e-9))
    digits = max(0, ceil(-log10(step) - 1e-9))
    for number in range(floor(most / step + 1e-9) + 1):
        yield number * step, f"{number * step:,.{digits}f}"
