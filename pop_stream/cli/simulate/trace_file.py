"""Reads a trace from a CSV file, and says of a bad one where it is wrong and what to do."""

import csv
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pop_stream.cli.errors import UsageError
from pop_stream.cli.simulate.trace import TraceRow, AgendaTrace, WeightChange, changes
from pop_stream.cli.weights import MIN_WEIGHT, MAX_WEIGHT
from pop_stream.core.agendas.agenda import DEFAULT_PRIORITY
from pop_stream.core.backlog.costs import MAX_COST_S
from pop_stream.core.simulation.simulation import MAX_DURATION_S

DEFAULT_INSIGHT: Final = "work"
"""The insight of rows that name none."""

_PRIORITIES: Final = range(1, 10)
_ABSENT: Final = -1


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What a file holds.

    Attributes:
        traces: By insight.
        weight_changes: When a customer's weight became what; whichever insight the row is of.
        ignored: Columns that mean nothing here.
    """

    traces: Mapping[str, AgendaTrace]
    weight_changes: Sequence[WeightChange]
    ignored: Sequence[str]


def read_trace(path: Path) -> TraceFile:
    """Read a CSV file with a header; rows in any order, time counted from the first.

    Raises:
        UsageError: With line, column, value and what to do about it.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True, skipinitialspace=True)
            try:
                return _read(path, lines)
            except csv.Error as error:
                msg = (
                    f"{path}, line {lines.line_num}: {error}; is a quote open, or one too many?"
                )
                raise UsageError(msg) from None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: {error}; a trace is a CSV file in UTF-8 with the header {_HEADER}"
        raise UsageError(msg) from None


def _read(path: Path, lines: Any) -> TraceFile:  # noqa: ANN401  # the csv module names no type
    header = [name.strip().lower() for name in next(lines, ())]
    columns = _columns(path, header)
    traces: dict[str, AgendaTrace] = {}
    weight_changes: list[WeightChange] = []
    for fields in lines:
        if not any(map(str.strip, fields)):
            continue
        if any(map(str.strip, fields[len(header) :])):
            where = f"{path}, line {lines.line_num}"
            raise _surplus_error(where, header, fields)
        fields.append("")  # what a column that is absent reads
        try:
            row = TraceRow._make([parse(fields[index]) for _, index, parse in columns])
        except (ValueError, IndexError):
            where = f"{path}, line {lines.line_num}"
            raise _bad_value_error(where, columns, fields) from None
        trace = traces.get(row.insight)
        if trace is None:
            trace = traces[row.insight] = AgendaTrace()
        trace.add(row)
        weight_changes += row.weight_changes
    if not traces:
        msg = f"{path}: no agendas; a trace has one a line after the header {_HEADER}"
        raise UsageError(msg)
    begin = min(trace.begins_at for trace in traces.values())
    for trace in traces.values():
        trace.sort(begin=begin)
    ignored = [name for name in header if name and name not in _PARSERS]
    return TraceFile(traces, changes(weight_changes, begin=begin), ignored)


_Column = tuple[str, int, Callable[[str], Any]]


def _columns(path: Path, header: Sequence[str]) -> Sequence[_Column]:
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        found = ", ".join(header) or "nothing"
        msg = (
            f"{path}, line 1: no column {missing[0]!r}, found {found}; the first line must "
            f"name {', '.join(_REQUIRED)}, with commas between"
        )
        raise UsageError(msg)
    twice = [name for name in _PARSERS if header.count(name) > 1]
    if twice:
        msg = f"{path}, line 1: two columns are named {twice[0]!r}; remove or rename one"
        raise UsageError(msg)
    return [
        (name, header.index(name) if name in header else _ABSENT, parse)
        for name, parse in _PARSERS.items()
    ]


def _surplus_error(where: str, header: Sequence[str], fields: Sequence[str]) -> UsageError:
    """More values than columns: none can be told to be where it belongs."""
    found = f"{len(fields)} fields where the header has {len(header)}"
    return UsageError(f"{where}: {found}; quote values with commas, and write 0.5, not 0,5")


def _bad_value_error(
    where: str, columns: Sequence[_Column], fields: Sequence[str]
) -> UsageError:
    """The first column of a row that cannot be read."""
    width = max(index for _, index, _ in columns) + 1
    if len(fields) <= width:
        short = f"{where}: {len(fields) - 1} fields where the header has {width} or more"
        return UsageError(f"{short}; add what is missing, and quote values with commas")
    for name, index, parse in columns:
        try:
            parse(fields[index])
        except ValueError as error:
            return UsageError(f"{where}, column {name}: {fields[index]!r} {error}")
    return UsageError(f"{where}: cannot be read")


def _text(text: str) -> str:
    return text.strip()


def _name(text: str) -> str:
    if any(unicodedata.category(one) == "Cc" for one in text):
        msg = "is no name; remove its control characters"
        raise ValueError(msg)
    return text.strip()


def _customer(text: str) -> str:
    if not text.strip():
        msg = "is no customer; name whose agenda it is"
        raise ValueError(msg)
    return _name(text)


def _insight(text: str) -> str:
    return _name(text) or DEFAULT_INSIGHT


def _number(text: str, remedy: str) -> float:
    try:
        number = math.nan if "_" in text else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        msg = f"is no number; {remedy}"
        raise ValueError(msg)
    return number


def _submit(text: str) -> float:
    remedy = "write seconds, as 12.5, counted from whenever you like"
    seconds = _number(text, remedy)
    if abs(seconds) > MAX_DURATION_S:
        msg = f"is more than {MAX_DURATION_S:g}; {remedy}, not milliseconds"
        raise ValueError(msg)
    return seconds


def _runtime(text: str) -> float:
    seconds = _number(text, "write the seconds it kept a worker, as 0.25")
    if not 0 <= seconds <= MAX_COST_S:
        msg = f"is out of range; write the seconds it kept a worker, 0 to {MAX_COST_S:g}"
        raise ValueError(msg)
    return seconds


def _cost(text: str) -> float | None:
    if not text.strip():
        return None
    remedy = "write worker-seconds, or nothing to have them learned"
    seconds = _number(text, remedy)
    if seconds < 0:
        msg = f"is negative; {remedy}"
        raise ValueError(msg)
    return seconds


def _priority(text: str) -> int:
    if not text.strip():
        return DEFAULT_PRIORITY
    if not text.strip().isdecimal() or int(text) not in _PRIORITIES:
        msg = f"is no priority; write 1, most urgent, to 9, or nothing for {DEFAULT_PRIORITY}"
        raise ValueError(msg)
    return int(text)


def _weight(text: str) -> float | None:
    if not text.strip():
        return None
    remedy = f"write a weight from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}, or nothing"
    weight = _number(text, remedy)
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        msg = f"is out of range; {remedy}"
        raise ValueError(msg)
    return weight


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "submit_s": _submit,
    "customer": _customer,
    "insight": _insight,
    "runtime_s": _runtime,
    "cost": _cost,
    "priority": _priority,
    "weight": _weight,
    "fairness_key": _text,
    "operation_type": _text,
}
_REQUIRED: Final = ("submit_s", "customer", "runtime_s")
_HEADER: Final = "submit_s,customer,insight,runtime_s,cost"
