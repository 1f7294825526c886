"""Reads a trace from a file: CSV with a header, or SWF, either as it is or packed with gzip.

What a file is, its content says, not its name. It is read line by line, so that memory grows
with the agendas and not with the text, and to its end even when something is wrong with it:
all faults are counted, and the first ones reported.

SWF is the Standard Workload Format, version 2.2, of the Parallel Workloads Archive: a line a
job, 18 numbers with blanks between, -1 where unknown, comments after a semicolon. Jobs that
never ran are left out: those without a run time, and those of 0 s that were cancelled or had no
processor. A run time below 0 is none: some logs have the end 0 less a start there.
"""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase, BufferedReader, TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import IO, Final, cast

from pop_stream.lab.simulate.trace import AgendaTrace, TraceRow, WeightChange, changes
from pop_stream.lab.simulate.trace_columns import HEADER, ProcessorsMode, RowReader
from pop_stream.operations.errors import UsageError

MAX_AGENDAS: Final = 10_000_000
"""In a trace; 37 bytes each, and four events of 30 bytes for each run."""

MAX_LINE: Final = 1_000_000
SHOWN_FAULTS: Final = 20

_GZIP: Final = b"\x1f\x8b"
_FORMATS: Final = (
    f"a trace is a CSV file in UTF-8 with the header {HEADER}, or SWF; or gzip of it"
)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What a file holds.

    Attributes:
        traces: By insight.
        weight_changes: When a customer's weight became what; whichever insight the row is of.
        ignored: Columns of a CSV file that mean nothing here.
        skipped: Jobs that never ran.
        wide: Rows of more than one processor.
    """

    traces: Mapping[str, AgendaTrace]
    weight_changes: Sequence[WeightChange]
    ignored: Sequence[str] = ()
    skipped: int = 0
    wide: int = 0


@dataclass(slots=True)
class TraceFaults:
    """What is wrong with a file: how much, and the first of it."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, line: int, text: str) -> None:
        """One more, with what it says of value and remedy."""
        self.count += 1
        if len(self.first) < SHOWN_FAULTS:
            separator = ", " if text.startswith("column ") else ": "
            self.first.append(f"line {line}{separator}{text}")

    def error(self, path: Path) -> UsageError:
        """All of it, to be raised."""
        if self.count == 1:
            return UsageError(f"{path}, {self.first[0]}")
        rest = self.count - len(self.first)
        more = [f"and {rest:,} more"] if rest else []
        return UsageError("\n".join([f"{path}: {self.count:,} faults", *self.first, *more]))


def read_trace(
    path: Path,
    columns: Mapping[str, str] | None = None,
    processors: ProcessorsMode = "seconds",
) -> TraceFile:
    """Read a file; rows in any order, time counted from the first.

    Args:
        path: Of it.
        columns: The file's name of a column by ours; see `trace_columns`.
        processors: What a row of several processors counts as.

    Raises:
        UsageError: With the faults: line, column, value and what to do about it.
    """
    faults = TraceFaults()
    try:
        with path.open("rb") as file, _unpacked(file) as binary, _decoded(binary) as text:
            found = _Reading(_Lines(text, faults), columns or {}, processors).read()
    except OSError as error:
        msg = f"{path}: {error}; {_FORMATS}"
        raise UsageError(msg) from None
    if faults.count:
        raise faults.error(path)
    if not found.traces:
        msg = f"{path}: no agendas; a trace has one a line after the header {HEADER}"
        raise UsageError(msg)
    return found


def _unpacked(file: BufferedReader) -> BufferedIOBase:
    is_packed = file.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
    return gzip.GzipFile(fileobj=file) if is_packed else file


def _decoded(file: BufferedIOBase) -> TextIOWrapper:
    return TextIOWrapper(
        cast("IO[bytes]", file), encoding="utf-8-sig", errors="surrogateescape", newline=""
    )


class _Lines:
    """The lines of a file, none too long; what is no text reads as an empty line."""

    def __init__(self, file: TextIOWrapper, faults: TraceFaults) -> None:
        self._file = file
        self.faults = faults
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._next():
            if line.isascii() or line.startswith(";") or self._is_text(line):
                yield line
            else:
                yield "\n"

    def fault(self, text: str) -> None:
        """Something is wrong with the present line."""
        self.faults.add(max(1, self.number), text)

    def _next(self) -> str:
        try:
            line = rest = self._file.readline(MAX_LINE)
            while len(rest) == MAX_LINE:  # to its end, of which nothing is kept
                rest = self._file.readline(MAX_LINE)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.number += 1
            self.fault(f"{error}; the file is damaged, fetch or pack it again")
            return ""
        self.number += bool(line)
        if len(line) < MAX_LINE:
            return line
        self.fault(f"is longer than {MAX_LINE:,} characters; {_FORMATS}")
        return "\n"

    def _is_text(self, line: str) -> bool:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) & 0xFF
            self.fault(f"has the byte {byte:#04x} that is no UTF-8; {_FORMATS}")
            return False
        return True


SWF_FIELDS: Final = (
    "job", "submit_time", "wait_time", "run_time", "processors", "cpu_time", "memory",
    "requested_processors", "requested_time", "requested_memory", "status", "user", "group",
    "executable", "queue", "partition", "preceding_job", "think_time",
)  # fmt: skip
_SWF_COLUMNS: Final = {
    "submit_s": "submit_time",
    "runtime_s": "run_time",
    "customer": "user",
    "operation_type": "executable",
}
_RUN, _PROCESSORS, _REQUESTED, _STATUS = (
    SWF_FIELDS.index(name)
    for name in ("run_time", "processors", "requested_processors", "status")
)
_CANCELLED: Final = "5"


class _Reading:
    """One reading of one file."""

    def __init__(
        self, lines: _Lines, columns: Mapping[str, str], processors: ProcessorsMode
    ) -> None:
        self._lines = lines
        self._columns = columns
        self._processors = processors
        self._traces: dict[str, AgendaTrace] = {}
        self._weight_changes: list[WeightChange] = []
        self._agendas = 0
        self._skipped = 0

    def read(self) -> TraceFile:
        """All of it."""
        text = iter(self._lines)
        first = next((line for line in text if line.strip()), "")
        is_swf = _is_swf(first)
        rows = self._csv_rows(chain([first], text))
        if is_swf:
            rows = self._swf_rows(chain([first], text))
        header = SWF_FIELDS if is_swf else next(rows, ())
        mapped = {**_SWF_COLUMNS, **self._columns} if is_swf else self._columns
        reader = RowReader(header, mapped, self._processors)
        if not self._lines.faults.count:
            for text_of_fault in reader.faults:
                self._lines.fault(text_of_fault)
        if reader.faults:
            return TraceFile({}, ())
        for fields in rows:
            self._add(reader.read(fields))
            if self._agendas > MAX_AGENDAS:
                remedy = "cut it, or use --processors seconds or ignored"
                self._lines.fault(f"is beyond {MAX_AGENDAS:,} agendas; {remedy}")
                break
        return self._found(reader, () if is_swf else reader.ignored)

    def _add(self, row: TraceRow | Sequence[str]) -> None:
        if not isinstance(row, TraceRow):
            for text in row:
                self._lines.fault(text)
            return
        self._agendas += row.copies
        if self._agendas > MAX_AGENDAS:
            return
        trace = self._traces.get(row.insight)
        if trace is None:
            trace = self._traces[row.insight] = AgendaTrace()
        trace.add(row)
        self._weight_changes += row.weight_changes

    def _found(self, reader: RowReader, ignored: Sequence[str]) -> TraceFile:
        begin = min((trace.begins_at for trace in self._traces.values()), default=0.0)
        for trace in self._traces.values():
            trace.sort(begin=begin)
        return TraceFile(
            traces=self._traces,
            weight_changes=changes(self._weight_changes, begin=begin),
            ignored=ignored,
            skipped=self._skipped,
            wide=reader.wide,
        )

    def _csv_rows(self, lines: Iterable[str]) -> Iterator[Sequence[str]]:
        rows = csv.reader(lines, strict=True, skipinitialspace=True)
        while True:
            try:
                fields = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                self._lines.fault(f"{error}; is a quote open, or one too many?")
                continue
            if any(map(str.strip, fields)):
                yield fields

    def _swf_rows(self, lines: Iterable[str]) -> Iterator[Sequence[str]]:
        for line in lines:
            if line.startswith(";") or not line.strip():
                continue
            fields = ["" if _is_unknown(one) else one for one in line.split()]
            fields = fields[: len(SWF_FIELDS)]
            if len(fields) > _STATUS:
                granted = fields[_PROCESSORS].strip("0.") and fields[_PROCESSORS]
                fields[_PROCESSORS] = granted or fields[_REQUESTED]
            if len(fields) > _STATUS and _never_ran(fields):
                self._skipped += 1
            else:
                yield fields


def _is_swf(line: str) -> bool:
    """Whether the first line of a file is a comment or a job of SWF."""
    fields = line.split()
    if line.startswith(";"):
        return True
    return len(fields) > _STATUS and all(map(_is_number, fields[: _STATUS + 1]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_unknown(text: str) -> bool:
    whole, _, rest = text.partition(".")
    return whole == "-1" and not rest.strip("0")


def _never_ran(fields: Sequence[str]) -> bool:
    run_s = "" if fields[_RUN].startswith("-") else fields[_RUN]
    if run_s.strip("0."):
        return False
    has_processors = bool(fields[_PROCESSORS].strip("0."))
    return not run_s or fields[_STATUS] == _CANCELLED or not has_processors
