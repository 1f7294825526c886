"""Where an insight's backlog is kept: its rows in the ReadyAgenda table.

    page/<number>     bodies of up to 512 agendas, a JSON list, one agenda a line
    journal/<slot>    the delta of one handled event, in a ring of `RING` rows
    mark/<side>/<n>   a snapshot that replaces the deltas before it, on two sides
    head              which side is whole, and the sequence it stands for

each after `<partition>/<insight>/`.

A handled event costs one journal row whatever it touched, so a round is written whole or not
at all. The ring is reused, never deleted from: when it is full a snapshot is written to the
side that is not in force, and then the head, in one write, puts it in force.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

from pop_stream.core.backlog import Backlog
from pop_stream.core.delta import Delta
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import PlacedAgenda, Struct, decode_placed
from pop_stream.ports.table import ReadyTable

RING: Final = 256
"""Journal rows of an insight, and so handled events between two snapshots."""

_PART: Final = 1_000
"""Most entries of a kind in one row of a snapshot: below a record's size with longest ids."""


R = TypeVar("R")


class _JournalRow(Struct, frozen=True):
    sequence: int
    delta: Delta
    offset: int = -1


class _Head(Struct, frozen=True):
    sequence: int
    side: int
    parts: int
    offset: int = -1


_JOURNAL_ROW: Final = msgspec.json.Decoder(_JournalRow)
_MARK: Final = msgspec.json.Decoder(Delta)
_HEAD: Final = msgspec.json.Decoder(_Head)
_PAGE: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode: Final = msgspec.json.encode


class Shelf:
    """The rows of one insight. Write only while an event of its partition is handled.

    Attributes:
        size: Bytes of all pages.
        offset: Of the last record of `pop.ready` that led to a row; -1 if none is known.
        unreadable: Rows that could not be read, with why.
    """

    def __init__(self, table: ReadyTable, partition: int, insight_id: str) -> None:
        self._table = table
        self._prefix = f"{partition}/{insight_id}"
        self._offsets: dict[int, array[int]] = {}
        self._sequence = 0
        self._marked = 0
        self._side = 0
        self.size = 0
        self.offset = -1
        self.unreadable: dict[str, str] = {}

    def put_page(self, number: int, bodies: Sequence[bytes]) -> None:
        """Keep the bodies of a page's agendas, in the order of their slots."""
        self._note(number, bodies)
        self._table.put(self._page_key(number), b"[" + b",\n".join(bodies) + b"]")

    def agenda(self, number: int, slot: int) -> PlacedAgenda:
        """Read one agenda of a page; costs that agenda, not the page.

        Raises:
            LookupError: If the row is not there: the table has lost it.
        """
        row = self._table.get(self._page_key(number))
        if row is None:
            msg = f"row {self._page_key(number)} is missing"
            raise LookupError(msg)
        offsets = self._offsets[number]
        return decode_placed(row[offsets[slot] : offsets[slot + 1] - _GAP])

    def drop_pages(self, numbers: Iterable[int]) -> None:
        """Forget pages whose agendas are all gone."""
        for number in numbers:
            known = self._offsets.pop(number, None)
            self.size -= _size(known) if known else 0
            self._table.delete(self._page_key(number))

    def save(self, backlog: Backlog, offset: int = -1) -> None:
        """Write what changed since the last call: one row, and now and then a snapshot.

        Args:
            backlog: Of the insight.
            offset: Of the record of `pop.ready` that is being handled.
        """
        delta = backlog.take_delta()
        if delta is None:
            return
        self._sequence += 1
        self.offset = max(self.offset, offset)
        row = _JournalRow(sequence=self._sequence, delta=delta, offset=self.offset)
        self._table.put(self._journal_key(self._sequence), _encode(row))
        self.drop_pages(backlog.take_emptied())
        if self._sequence - self._marked >= RING:
            self._snapshot(backlog)

    def load(self, rows: dict[str, bytes], backlog: Backlog, now: float = 0.0) -> None:
        """Fill a new backlog from the insight's rows.

        One that cannot be read is left aside, and told of in `unreadable`, with why: what it
        held is missed, which the ledger's audit finds and repairs, and all else goes on.

        Args:
            rows: All rows of this insight, by full key.
            backlog: As made, never used.
            now: The present instant, in seconds since the epoch; leases begin anew at it.
        """
        raw_head = rows.get(f"{self._prefix}/head")
        head = self._read(f"{self._prefix}/head", raw_head, _HEAD) if raw_head else None
        head = head or _Head(sequence=0, side=0, parts=0)
        self._marked, self._side = head.sequence, head.side
        keys = [self._mark_key(head.side, part) for part in range(head.parts)]
        marks = [self._read(key, rows.get(key), _MARK) for key in keys]
        deltas = [mark for mark in marks if mark is not None]
        journal = sorted(self._journal(rows), key=lambda row: row.sequence)
        newer = [row for row in journal if row.sequence > head.sequence]
        deltas.extend(row.delta for row in newer)
        self._sequence = newer[-1].sequence if newer else head.sequence
        self.offset = max([head.offset, *(row.offset for row in newer)])
        backlog.restore(self._pages(rows), deltas, now)
        self.drop_pages(backlog.take_emptied())

    def _snapshot(self, backlog: Backlog) -> None:
        side = 1 - self._side
        parts = backlog.snapshot().parts(_PART)
        for number, part in enumerate(parts):
            self._table.put(self._mark_key(side, number), _encode(part))
        head = _Head(sequence=self._sequence, side=side, parts=len(parts), offset=self.offset)
        self._table.put(f"{self._prefix}/head", _encode(head))
        self._marked, self._side = self._sequence, side

    def _journal(self, rows: dict[str, bytes]) -> Iterator[_JournalRow]:
        for slot in range(RING):
            row = rows.get(self._journal_key(slot))
            if row is not None:
                read = self._read(self._journal_key(slot), row, _JOURNAL_ROW)
                if read is not None:
                    yield read

    def _pages(self, rows: dict[str, bytes]) -> Iterator[tuple[int, Sequence[PlacedAgenda]]]:
        start = f"{self._prefix}/page/"
        for key, row in rows.items():
            if not key.startswith(start):
                continue
            try:
                number = int(key.removeprefix(start))
                bodies = [bytes(body) for body in _PAGE.decode(row)]
                agendas = [decode_placed(body) for body in bodies]
            except (ValueError, UnreadableRecordError) as error:  # msgspec's are ValueErrors
                self.unreadable[key] = str(error)
                continue
            self._note(number, bodies)
            yield number, agendas

    def _note(self, number: int, bodies: Sequence[bytes]) -> None:
        self._offsets[number] = offsets = _offsets(bodies)
        self.size += _size(offsets)

    def _read(self, key: str, row: bytes | None, decoder: msgspec.json.Decoder[R]) -> R | None:
        try:
            return decoder.decode(row or b"")
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
            self.unreadable[key] = str(error)
            return None

    def _page_key(self, number: int) -> str:
        return f"{self._prefix}/page/{number}"

    def _journal_key(self, sequence: int) -> str:
        return f"{self._prefix}/journal/{sequence % RING}"

    def _mark_key(self, side: int, part: int) -> str:
        return f"{self._prefix}/mark/{side}/{part}"


def insights_in(table: ReadyTable, partition: int) -> dict[str, dict[str, bytes]]:
    """The rows of every insight of a partition, by insight and full key."""
    found: dict[str, dict[str, bytes]] = {}
    for key, value in table.rows(partition):
        found.setdefault(key.split("/")[1], {})[key] = value
    return found


_GAP: Final = len(b",\n")


def _size(offsets: "array[int]") -> int:
    """Bytes of the row: where one more body would start, less the gap, and the bracket."""
    return offsets[-1] - _GAP + len(b"]")


def _offsets(bodies: Sequence[bytes]) -> "array[int]":
    """Where each body starts in its page's row, and where one more would."""
    lengths = (len(body) + _GAP for body in bodies)
    return array("I", accumulate(lengths, initial=len(b"[")))
