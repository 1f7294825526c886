"""Writes what happened in a run as a CSV file, for whoever would reckon for themselves."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pop_stream.cli.simulate.trial import ScenarioComparison
from pop_stream.core.audits.service import (
    ARRIVED,
    EMITTED,
    HELD,
    RELEASED,
    SETTLED,
    STARTED,
    REWEIGHTED,
    ServiceEvent,
    ServiceLog,
)

_HEADER: Final = (
    "insight", "at_s", "event", "customer", "charged_s", "spent_s", "waited_s", "weight",
)  # fmt: skip
_DIGITS: Final = 9
_NAMES: Final = {
    ARRIVED: "arrived",
    SETTLED: "settled",
    STARTED: "started",
    RELEASED: "released",
    HELD: "held",
    REWEIGHTED: "weighed",
    EMITTED: "emitted",
}


def write_events(path: Path, comparisons: Mapping[str, ScenarioComparison]) -> None:
    """Write every event that the figures are reckoned from, in the order they took effect."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(_HEADER)
        for insight, comparison in comparisons.items():
            lines.writerows([insight, *row] for row in _rows(comparison.log))


def _rows(log: ServiceLog) -> Iterator[list[str | float]]:
    for moment in log:
        kind, at, customer, _, _ = moment
        yield [round(at, _DIGITS), _NAMES[kind], log.customers[customer], *_values(moment)]


def _values(moment: ServiceEvent) -> tuple[str | float, ...]:
    """Charged, spent, waited and weight, as far as this kind of event has them."""
    kind, _, _, first, second = moment
    if kind == EMITTED:
        return first, second, "", ""
    if kind == SETTLED:
        return "", second, "", second / first
    if kind == STARTED:
        return "", "", first, ""
    return "", "", "", first if kind == REWEIGHTED else ""
