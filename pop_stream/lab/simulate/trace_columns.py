"""The columns of a trace: what each may hold, and where a file has it.

A file names its columns; `--columns customer=user,runtime_s=elapsed` says which of them is
what. A row is read as a whole: all of its faults are reported, each with column, value and
remedy.
"""

import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pop_stream.lab.simulate.trace import DEFAULT_INSIGHT, TraceRow
from pop_stream.lab.simulator.simulation import MAX_DURATION_S
from pop_stream.lab.weights import MAX_WEIGHT, MIN_WEIGHT
from pop_stream.model.agenda import DEFAULT_PRIORITY
from pop_stream.operations.errors import UsageError
from pop_stream.policy.fairness.cost_model import MAX_COST_S

HEADER: Final = "submit_s,customer,insight,runtime_s,cost"
MAX_PROCESSORS: Final = 1_000_000

_OTHER_NAMES: Final = {"submitted": "submit_s", "seconds": "runtime_s"}
_PRIORITIES: Final = range(1, 10)
_ABSENT: Final = -1
_SHOWN: Final = 60


ProcessorsMode = Literal["seconds", "agendas", "ignored"]
"""What a row of p processors for t seconds counts as.

`seconds`: one agenda of p times t. `agendas`: p agendas of t. `ignored`: one agenda of t.
"""


def parse_columns(text: str | None) -> Mapping[str, str]:
    """The file's name of a column by ours, in lower case; none of no text.

    Raises:
        UsageError: With the part that is wrong, and what to write.
    """
    found: dict[str, str] = {}
    for part in filter(str.strip, (text or "").split(",")):
        name, _, theirs = (one.strip().lower() for one in part.partition("="))
        name = _OTHER_NAMES.get(name, name)
        if name not in _PARSERS or not theirs:
            known = ", ".join(_PARSERS)
            msg = f"--columns: {part!r} names none of {known}; write customer=user"
            raise UsageError(msg)
        if name in found:
            msg = f"--columns: {part!r} names {name} a second time; give it one column"
            raise UsageError(msg)
        found[name] = theirs
    return found


class RowReader:
    """Reads the rows of one file.

    Args:
        header: The file's names of its columns.
        columns: The file's name of a column by ours, where they differ.
        processors: What a row of several counts as.

    Attributes:
        faults: Columns that are needed and not there, or there twice; no row can be read then.
        wide: Rows so far that were of more than one processor.
    """

    def __init__(
        self,
        header: Sequence[str],
        columns: Mapping[str, str],
        processors: ProcessorsMode = "seconds",
    ) -> None:
        self.faults: list[str] = []
        self.wide = 0
        self._header = [name.strip().lower() for name in header]
        self._processors = processors
        self._columns = [
            (name, self._index(name, columns.get(name)), parse)
            for name, parse in _PARSERS.items()
        ]
        self._width = max(index for _, index, _ in self._columns) + 1

    @property
    def ignored(self) -> Sequence[str]:
        """Columns that mean nothing here."""
        used = {index for _, index, _ in self._columns}
        return [name for at, name in enumerate(self._header) if name and at not in used]

    def read(self, fields: Sequence[str]) -> TraceRow | Sequence[str]:
        """The row; or all that is wrong with it, each a text with column, value and remedy."""
        if any(map(str.strip, fields[len(self._header) :])):
            found = f"{len(fields)} fields where the header has {len(self._header)}"
            return [f"{found}; quote values with commas, and write 0.5, not 0,5"]
        if len(fields) < self._width:
            found = f"{len(fields)} fields where the header has {self._width} or more"
            return [f"{found}; add what is missing"]
        padded = [*fields, ""]  # what a column that is absent reads
        try:
            return self._row([parse(padded[index]) for _, index, parse in self._columns])
        except ValueError as error:
            return [*self._faults(padded)] or [str(error)]

    def _row(self, values: Sequence[Any]) -> TraceRow:
        *own, processors = values
        row = TraceRow._make([*own, 1])
        self.wide += processors > 1
        if processors == 1 or self._processors == "ignored":
            return row
        if self._processors == "agendas":
            return row._replace(copies=processors)
        runtime_s = row.runtime_s * processors
        if runtime_s > MAX_COST_S:
            msg = (
                f"column processors: {processors} times {row.runtime_s:g} s are over "
                f"{MAX_COST_S:g} worker-seconds; use --processors agendas or ignored"
            )
            raise ValueError(msg)
        cost = None if row.cost is None else row.cost * processors
        return row._replace(runtime_s=runtime_s, cost=cost)

    def _faults(self, fields: Sequence[str]) -> Iterator[str]:
        for name, index, parse in self._columns:
            try:
                parse(fields[index])
            except ValueError as error:
                value = fields[index]
                shown = repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"
                theirs = self._header[index] if index != _ABSENT else name
                named = name if theirs == name else f"{name} ({theirs})"
                yield f"column {named}: {shown} {error}"

    def _index(self, name: str, mapped: str | None) -> int:
        others = [other for other, ours in _OTHER_NAMES.items() if ours == name]
        wanted = [mapped] if mapped else [name, *others]
        places = [at for at, theirs in enumerate(self._header) if theirs in wanted]
        if len(places) > 1:
            twice = self._header[places[0]]
            self.faults.append(f"two columns are named {twice!r}; remove or rename one")
        if not places and (mapped or name in _REQUIRED):
            found = ", ".join(filter(None, self._header)) or "nothing"
            self.faults.append(
                f"no column {mapped or name!r}, found {found}; the first line must name "
                f"{', '.join(_REQUIRED)}, with commas between, or --columns {name}=… what "
                "the file calls it"
            )
        return places[0] if places else _ABSENT


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
    if "T" in text or ":" in text:
        return _instant(text)
    seconds = _number(text, remedy)
    if abs(seconds) > MAX_DURATION_S:
        msg = f"is more than {MAX_DURATION_S:g}; {remedy}, not milliseconds"
        raise ValueError(msg)
    return seconds


def _instant(text: str) -> float:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        msg = "is no instant; write seconds, or a date and time as 2026-01-31T08:30:00Z"
        raise ValueError(msg) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


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


def _processor_count(text: str) -> int:
    if not text.strip():
        return 1
    remedy = f"write how many it kept at a time, 1 to {MAX_PROCESSORS}, or nothing for 1"
    count = _number(text, remedy)
    if not (1 <= count <= MAX_PROCESSORS and count.is_integer()):
        msg = f"is no count of processors; {remedy}"
        raise ValueError(msg)
    return int(count)


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
    "processors": _processor_count,
}
_REQUIRED: Final = ("submit_s", "customer", "runtime_s")
