"""Where an insight's backlog is kept: its rows in the ReadyAgenda table.

    page/<number>     bodies of up to 512 agendas, a JSON list, one agenda a line
    journal/<slot>    the delta of one handled event, in a ring of `RING` rows
    mark/<side>/<n>   a snapshot that replaces the deltas before it, on two sides
    head              which side is whole, and the sequence it stands for

each after `<partition>/<insight>/term/<term>/`, or, as earlier versions wrote them and as term
0, after `<partition>/<insight>/` alone.

A term is the time for which one owner has the partition; later ones are greater. What a frozen
owner had on its way may arrive when another has long taken over, so no two terms write the same
row. Each begins with a snapshot and a head that names the pages it found; whatever else is of
an earlier term counts for nothing from then on, and is deleted with the next snapshots.

A handled event costs one journal row whatever it touched, so a round is written whole or not
at all. The ring is reused, never deleted from: when it is full a snapshot is written to the
side that is not in force, and then the head, in one write, puts it in force.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import PlacedAgenda, decode_placed
from pop_stream.ports.table import ReadyTable
from pop_stream.scheduler.rows import (
    GAP,
    HEAD,
    JOURNAL_ROW,
    MARK,
    PAGE,
    Head,
    JournalRow,
    RoundNote,
    handled,
    mark_keys,
    offsets_of,
    size_of,
)
from pop_stream.scheduler.terms import Spans, base, guessed, place, term_of, used

RING: Final = 256
"""Journal rows of an insight, and so handled events between two snapshots."""

_PART: Final = 1_000
"""Most entries of a kind in one row of a snapshot: below a record's size with longest ids."""

R = TypeVar("R")

_encode: Final = msgspec.json.encode


class Shelf:
    """The rows of one insight. Write only while an event of its partition is handled.

    Args:
        table: Of rows.
        partition: Whose rows they are.
        insight_id: Whose backlog.
        term: Of the writer. If rows of a later one are found, it is the one after that.

    Attributes:
        size: Bytes of all pages.
        offset: Of the last record of `pop.ready` that led to a row, and if rows are missing
            to one before these; -1 if none is known.
        lacks_rows: Whether rows are missing: what later records led to is known in part.
        unreadable: Rows that could not be read, with why.
        last_round: Sent with the newest row, and not known to be out; None once it is. The
            next row says so, too.
    """

    def __init__(
        self, table: ReadyTable, partition: int, insight_id: str, term: int = 0
    ) -> None:
        self._table = table
        self._term = term
        self._begins = term > 0
        self._spans: Spans = ((0, term),)
        self._outdated: list[str] = []
        self._former: list[str] = []
        self._prefix = f"{partition}/{insight_id}"
        self._offsets: dict[int, array[int]] = {}
        self._sequence = 0
        self._marked = 0
        self._side = 0
        self.size = 0
        self.offset, self.lacks_rows = -1, False
        self.last_round: RoundNote | None = None
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
        return decode_placed(row[offsets[slot] : offsets[slot + 1] - GAP])

    def drop_pages(self, numbers: Iterable[int]) -> None:
        """Forget pages whose agendas are all gone."""
        for number in numbers:
            known = self._offsets.pop(number, None)
            self.size -= size_of(known) if known else 0
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
        if self._begins:
            self._write_whole(backlog)
            return
        row = JournalRow(
            sequence=self._sequence,
            delta=delta,
            offset=self.offset,
            last_round=self.last_round,
        )
        self._table.put(self._journal_key(self._sequence), _encode(row))
        self.drop_pages(backlog.take_emptied())
        if self._sequence - self._marked >= RING:
            self._snapshot(backlog)

    def tell(self, backlog: Backlog, offset: int) -> None:
        """Tell by a snapshot that records are handled up to this one, which changed nothing."""
        self.offset = max(self.offset, offset)
        self._write_whole(backlog)

    def load(self, rows: dict[str, bytes], backlog: Backlog, now: float = 0.0) -> None:
        """Fill a new backlog from the insight's rows.

        One that cannot be read is left aside, and told of in `unreadable`, with why: what it
        held is missed, which the ledger's audit finds and repairs, and all else goes on.

        Args:
            rows: All rows of this insight, by full key.
            backlog: As made, never used.
            now: The present instant, in seconds since the epoch; leases begin anew at it.
        """
        term, head = self._in_force(rows)
        self._marked, self._side, self._spans = head.sequence, head.side, head.spans
        keys = mark_keys(base(self._prefix, term), head)
        marks = [self._read(key, rows.get(key), MARK) for key in keys]
        deltas = [mark for mark in marks if mark is not None]
        journal = sorted(self._journal(rows, term), key=lambda row: row.sequence)
        newer = [row for row in journal if row.sequence > head.sequence]
        deltas.extend(row.delta for row in newer)
        newest = newer[-1] if newer else head
        self._sequence, self.last_round = newest.sequence, newest.last_round
        self.offset, self.lacks_rows = handled(head, newer)
        backlog.restore(self._pages(rows, term), deltas, now)
        self._succeed(term, backlog.next_page)
        self.drop_pages(backlog.take_emptied())

    def _in_force(self, rows: Mapping[str, bytes]) -> tuple[int, Head]:
        """The latest term that has begun, and its head; best guesses if that cannot be read."""
        heads = {place(self._prefix, key).term: key for key in rows if key.endswith("/head")}
        for term, key in sorted(heads.items(), reverse=True):
            head = self._read(key, rows[key], HEAD)
            if head is None:
                spans = guessed(place(self._prefix, key) for key in rows)
                return term, Head(sequence=0, side=0, parts=0, spans=tuple(spans))
            is_whole = all(mark in rows for mark in mark_keys(base(self._prefix, term), head))
            if is_whole or term == 0:
                return term, head
        return 0, Head(sequence=0, side=0, parts=0)

    def _succeed(self, term: int, next_page: int) -> None:
        """Begin a term of our own after the one that was read, with the next row."""
        self._term = self._term if self._term >= term else term + 1
        self._begins = self._term > term
        if self._begins:
            self._spans = (*self._spans, (next_page, self._term))
        else:
            self._outdated, self._former = [], []

    def _write_whole(self, backlog: Backlog) -> None:
        self._begins, emptied = False, [*backlog.take_emptied()]
        self._snapshot(backlog, emptied)
        self.drop_pages(emptied)
        # Only now: the pages dropped bear the names of the terms that wrote them.
        self._spans = used(self._spans, self._offsets)

    def _snapshot(self, backlog: Backlog, emptied: Iterable[int] = ()) -> None:
        """Write it, and then the head; pages just emptied are still there after a crash."""
        side = 1 - self._side
        snapshot = backlog.snapshot()
        gone = {**snapshot.gone, **{str(one): self._all_gone(one) for one in emptied}}
        parts = replace(snapshot, gone=gone).parts(_PART)
        for number, part in enumerate(parts):
            self._table.put(self._mark_key(side, number), _encode(part))
        head = Head(
            sequence=self._sequence,
            side=side,
            parts=len(parts),
            offset=self.offset,
            spans=tuple(self._spans),
            last_round=self.last_round,
        )
        self._table.put(f"{base(self._prefix, self._term)}/head", _encode(head))
        self._marked, self._side = self._sequence, side
        for key in self._outdated:
            self._table.delete(key)
        # Deleted once the head that stands for them has surely been kept.
        self._outdated, self._former = self._former, []

    def _journal(self, rows: Mapping[str, bytes], term: int) -> Iterator[JournalRow]:
        for slot in range(RING):
            key = f"{base(self._prefix, term)}/journal/{slot}"
            row = rows.get(key)
            if row is not None:
                read = self._read(key, row, JOURNAL_ROW)
                if read is not None:
                    yield read

    def _pages(
        self, rows: Mapping[str, bytes], term: int
    ) -> Iterator[tuple[int, Sequence[PlacedAgenda]]]:
        """Oldest first, one at a time: decoded, all of them would need as much as the index."""
        for number, key in sorted(self._page_keys(rows, term)):
            try:
                bodies = [bytes(body) for body in PAGE.decode(rows[key])]
                agendas = [decode_placed(body) for body in bodies]
            except (ValueError, UnreadableRecordError) as error:  # msgspec's are ValueErrors
                self.unreadable[key] = str(error)
                continue
            self._note(number, bodies)
            yield number, agendas

    def _page_keys(self, rows: Iterable[str], term: int) -> Iterator[tuple[int, str]]:
        """The pages in force; takes note of all rows that a later term has no use for."""
        for key in rows:
            one = place(self._prefix, key)
            if one.kind != "page":
                (self._former if one.term == term else self._outdated).append(key)
                continue
            if one.page is not None and key != self._page_key(one.page):
                self._outdated.append(key)
                continue
            try:
                yield int(key.rpartition("/")[2]), key
            except ValueError as error:
                self.unreadable[key] = str(error)

    def _all_gone(self, number: int) -> str:
        """A bitmap of all slots of a page, as `Delta.gone` has them."""
        return f"{(1 << len(self._offsets[number]) - 1) - 1:x}"

    def _note(self, number: int, bodies: Sequence[bytes]) -> None:
        self._offsets[number] = offsets = offsets_of(bodies)
        self.size += size_of(offsets)

    def _read(self, key: str, row: bytes | None, decoder: msgspec.json.Decoder[R]) -> R | None:
        try:
            return decoder.decode(row or b"")
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
            self.unreadable[key] = str(error)
            return None

    def _page_key(self, number: int) -> str:
        """In whose term a page was written follows from its number, which never comes twice."""
        return f"{base(self._prefix, term_of(self._spans, number))}/page/{number}"

    def _journal_key(self, sequence: int) -> str:
        return f"{base(self._prefix, self._term)}/journal/{sequence % RING}"

    def _mark_key(self, side: int, part: int) -> str:
        return f"{base(self._prefix, self._term)}/mark/{side}/{part}"


def insights_in(table: ReadyTable, partition: int) -> dict[str, dict[str, bytes]]:
    """The rows of every insight of a partition, by insight and full key."""
    found: dict[str, dict[str, bytes]] = {}
    for key, value in table.rows(partition):
        found.setdefault(key.split("/")[1], {})[key] = value
    return found
