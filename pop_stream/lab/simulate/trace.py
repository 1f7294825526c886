"""The agendas of a trace, in columns so that a million of them fit in memory; read from CSV.

A file that cannot be used is refused by line and column, with a remedy.
"""

import csv
import math
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from pop_stream.cli.weights import MAX_WEIGHT, MIN_WEIGHT
from pop_stream.lab.simulator.simulation import MAX_DURATION_S
from pop_stream.lab.simulator.workload import Arrival
from pop_stream.model.agenda import DEFAULT_PRIORITY
from pop_stream.model.ids import CustomerId
from pop_stream.operations.errors import UsageError
from pop_stream.policy.fairness.cost_model import MAX_COST_S

_NOT_DECLARED: Final = math.nan


class WeightChange(NamedTuple):
    """A customer's weight from an instant on, in every insight."""

    at: float
    customer_id: CustomerId
    weight: float


class TraceRow(NamedTuple):
    """One agenda of a trace.

    Attributes:
        submit_s: On any clock.
        cost: Declared worker-seconds; None to have them learned.
        weight: Of its customer from this instant on; None leaves it as it is.
    """

    submit_s: float
    customer: str
    insight: str
    runtime_s: float
    cost: float | None
    priority: int
    weight: float | None
    fairness_key: str
    operation_type: str

    @property
    def weight_changes(self) -> Sequence[WeightChange]:
        """Its customer's weight from then on, if the row has one."""
        if self.weight is None:
            return ()
        return (WeightChange(self.submit_s, CustomerId(self.customer), self.weight),)


class AgendaTrace:
    """The agendas of one insight; iterate as often as you like, once they are sorted."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._ats = array("d")
        self._runtimes = array("d")
        self._costs = array("d")
        self._priorities = bytearray()
        self._customers: list[str] = []
        self._keys: list[str] = []
        self._types: list[str] = []

    def __len__(self) -> int:
        return len(self._ats)

    def __iter__(self) -> Iterator[Arrival]:
        for at, customer, runtime, cost, kind, priority, key in zip(
            self._ats,
            self._customers,
            self._runtimes,
            self._costs,
            self._types,
            self._priorities,
            self._keys,
            strict=True,
        ):
            declared = None if math.isnan(cost) else cost
            yield Arrival(at, CustomerId(customer), runtime, declared, kind, priority, key)

    @property
    def begins_at(self) -> float:
        """The first instant; infinite if there is none."""
        return min(self._ats, default=math.inf)

    def add(self, row: TraceRow) -> None:
        """Add an agenda, in any order."""
        self._ats.append(row.submit_s)
        self._runtimes.append(row.runtime_s)
        self._costs.append(_NOT_DECLARED if row.cost is None else row.cost)
        self._priorities.append(row.priority)
        # Names recur: one object for each keeps a row at a few dozen bytes.
        name = self._names.setdefault
        self._customers.append(name(row.customer, row.customer))
        self._keys.append(name(row.fairness_key, row.fairness_key))
        kind = row.operation_type or row.insight
        self._types.append(name(kind, kind))

    def sort(self, *, begin: float) -> None:
        """Order by instant, counted from `begin` on; call it once, when all are added."""
        for index, at in enumerate(self._ats):
            self._ats[index] = at - begin
        if any(one > other for one, other in pairwise(self._ats)):
            order = sorted(range(len(self)), key=self._ats.__getitem__)
            for column in self._columns():
                for place, value in enumerate([column[index] for index in order]):
                    column[place] = value

    def _columns(self) -> Sequence[MutableSequence[Any]]:
        return (
            self._ats,
            self._runtimes,
            self._costs,
            self._priorities,
            self._customers,
            self._keys,
            self._types,
        )


def changes(weight_changes: Iterable[WeightChange], *, begin: float) -> list[WeightChange]:
    """Those that differ from the customer's weight before, in order, counted from `begin`."""
    known: dict[CustomerId, float] = {}
    found: list[WeightChange] = []
    for at, customer_id, weight in sorted(weight_changes, key=itemgetter(0)):
        if known.get(customer_id) != weight:
            known[customer_id] = weight
            found.append(WeightChange(at - begin, customer_id, weight))
    return found


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
    """More values than columns: it is unknown which value belongs where."""
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
