"""Stores the backlog of an insight as rows of the ReadyAgenda table.

    page/<number>     bodies of up to 512 agendas, a JSON list, one agenda a line
    journal/<slot>    the delta of one handled record, in a ring of `JOURNAL_ROWS` rows
    mark/<side>/<n>   a part of a snapshot that replaces the deltas before it, on two sides
    head              which side is in force, and up to which journal row it reaches

each after `<partition>/<insight>/term/<epoch>/`, or in epoch 0 after `<partition>/<insight>/`.

A handled record costs one journal row whatever it changed, so a round is recorded completely or
not at all. The ring is overwritten, never deleted from. When it is full, a snapshot is written
to the side that is not in force, and then the head, a single row, puts it in force. Rows arrive
in the order they are put, so a crash between any two leaves a complete state.

An ownership epoch is the time for which one process owns the partition. Rows that a frozen
owner had in flight may arrive when another has long taken over, so no two epochs write the same
row. Each begins with a snapshot, and a head that names the pages it found. Whatever else is of
an earlier epoch is ignored from then on and deleted with the next snapshots.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler.state.row_format import (
    BODY_SEPARATOR_SIZE,
    JOURNAL_ROW_DECODER,
    PAGE_DECODER,
    SNAPSHOT_HEADER_DECODER,
    SNAPSHOT_PART_DECODER,
    JournaledRound,
    JournalRow,
    PageEpochs,
    SnapshotHeader,
    body_offsets,
    compact_epochs,
    epoch_of,
    handled_offset,
    key_prefix,
    page_size,
    parse_key,
    recovered_epochs,
    snapshot_keys,
)

JOURNAL_ROWS: Final = 256
"""Journal rows of an insight, and so the records between two snapshots."""

_MAX_PART_ENTRIES: Final = 1_000
"""Most entries of a kind in one row of a snapshot, which so fits a record with longest ids."""

R = TypeVar("R")

_encode: Final = msgspec.json.encode


class BacklogStore:
    """The rows of one insight; written only while a record of its partition is handled.

    For an insight with rows `load` is called first and once.

    Args:
        table: Of rows.
        partition: Of `pop.ready`.
        insight_id: Of the backlog.
        epoch: The writer's. If rows of a later one are found, the next one after that is used.

    Attributes:
        size: Bytes of all pages.
        offset: Of the last record of `pop.ready` that a row covers; if rows are missing, of the
            last record before them; -1 if none is known.
        is_incomplete: Whether rows are missing, so that later changes are known in part only.
        unreadable: By key, why a row could not be read.
        unconfirmed_round: Recorded by the newest row and perhaps not published; None once it
            is. The next row says so too.
    """

    def __init__(
        self, table: BacklogTable, partition: int, insight_id: str, epoch: int = 0
    ) -> None:
        self._table = table
        self._epoch = epoch
        self._starts_epoch = epoch > 0
        self._spans: PageEpochs = ((0, epoch),)
        self._deletable: list[str] = []
        self._superseded: list[str] = []
        self._prefix = f"{partition}/{insight_id}"
        self._offsets: dict[int, array[int]] = {}
        self._sequence = 0
        self._snapshot_sequence = 0
        self._side = 0
        self.size = 0
        self.offset, self.is_incomplete = -1, False
        self.unconfirmed_round: JournaledRound | None = None
        self.unreadable: dict[str, str] = {}

    def write_page(self, number: int, bodies: Sequence[bytes]) -> None:
        """Write a page: the bodies of its agendas, in the order of their slots."""
        self._index_bodies(number, bodies)
        self._table.put(self._page_key(number), b"[" + b",\n".join(bodies) + b"]")

    def agenda(self, number: int, slot: int) -> RoutedAgenda:
        """Read one agenda of a page; costs that agenda, not the page.

        Raises:
            LookupError: If the table has lost the row.
        """
        row = self._table.get(self._page_key(number))
        if row is None:
            msg = f"row {self._page_key(number)} is missing"
            raise LookupError(msg)
        offsets = self._offsets[number]
        return decode_routed(row[offsets[slot] : offsets[slot + 1] - BODY_SEPARATOR_SIZE])

    def delete_pages(self, numbers: Iterable[int]) -> None:
        """Delete pages whose agendas have all left the backlog."""
        for number in numbers:
            known = self._offsets.pop(number, None)
            self.size -= page_size(known) if known else 0
            self._table.delete(self._page_key(number))

    def save(self, backlog: Backlog, offset: int = -1) -> None:
        """Write what changed since the last call: one row, and at times a snapshot.

        Writes nothing if nothing changed.

        Args:
            backlog: Of the insight.
            offset: Of the last record of `pop.ready` that the row covers.
        """
        delta = backlog.drain_delta()
        if delta is None:
            return
        self._sequence += 1
        self.offset = max(self.offset, offset)
        if self._starts_epoch:
            self._write_snapshot(backlog)
            return
        row = JournalRow(
            sequence=self._sequence,
            delta=delta,
            offset=self.offset,
            last_round=self.unconfirmed_round,
        )
        self._table.put(self._journal_key(self._sequence), _encode(row))
        self.delete_pages(backlog.drain_emptied())
        if self._sequence - self._snapshot_sequence >= JOURNAL_ROWS:
            self._snapshot(backlog)

    def record_progress(self, backlog: Backlog, offset: int) -> None:
        """Write a snapshot that covers records up to this one; they changed nothing."""
        self.offset = max(self.offset, offset)
        self._write_snapshot(backlog)

    def load(self, rows: dict[str, bytes], backlog: Backlog, now: float = 0.0) -> None:
        """Fill a new backlog from the insight's rows.

        A row that cannot be read is left out and noted in `unreadable`. The agendas that it
        held are missing from the backlog; reconciliation finds and requeues them.

        Args:
            rows: All rows of this insight, by full key.
            backlog: New, never used.
            now: The present instant, in seconds since 1970; leases begin anew at it.
        """
        epoch, head = self._current_epoch(rows)
        self._snapshot_sequence, self._side, self._spans = head.sequence, head.side, head.spans
        keys = snapshot_keys(key_prefix(self._prefix, epoch), head)
        parts = [self._read(key, rows.get(key), SNAPSHOT_PART_DECODER) for key in keys]
        deltas = [part for part in parts if part is not None]
        journal = sorted(self._journal(rows, epoch), key=lambda row: row.sequence)
        newer = [row for row in journal if row.sequence > head.sequence]
        deltas.extend(row.delta for row in newer)
        newest = newer[-1] if newer else head
        self._sequence, self.unconfirmed_round = newest.sequence, newest.last_round
        self.offset, self.is_incomplete = handled_offset(head, newer)
        backlog.restore(self._pages(rows, epoch), deltas, now)
        self._start_epoch(epoch, backlog.next_page)
        self.delete_pages(backlog.drain_emptied())

    def _current_epoch(self, rows: Mapping[str, bytes]) -> tuple[int, SnapshotHeader]:
        """The latest epoch with a complete snapshot, and its head.

        If the head cannot be read, everything in the journal and all pages are taken.
        """
        heads = {
            parse_key(self._prefix, key).epoch: key for key in rows if key.endswith("/head")
        }
        for epoch, key in sorted(heads.items(), reverse=True):
            head = self._read(key, rows[key], SNAPSHOT_HEADER_DECODER)
            if head is None:
                spans = recovered_epochs(parse_key(self._prefix, key) for key in rows)
                return epoch, SnapshotHeader(sequence=0, side=0, parts=0, spans=tuple(spans))
            is_complete = all(
                part in rows for part in snapshot_keys(key_prefix(self._prefix, epoch), head)
            )
            if is_complete or epoch == 0:
                return epoch, head
        return 0, SnapshotHeader(sequence=0, side=0, parts=0)

    def _start_epoch(self, epoch: int, next_page: int) -> None:
        """Have the next row begin an epoch after the one that was loaded."""
        self._epoch = self._epoch if self._epoch >= epoch else epoch + 1
        self._starts_epoch = self._epoch > epoch
        if self._starts_epoch:
            self._spans = (*self._spans, (next_page, self._epoch))
        else:
            self._deletable, self._superseded = [], []

    def _write_snapshot(self, backlog: Backlog) -> None:
        self._starts_epoch, emptied = False, [*backlog.drain_emptied()]
        self._snapshot(backlog, emptied)
        self.delete_pages(emptied)
        # Only now: the deleted pages' keys contain the epochs that wrote them.
        self._spans = compact_epochs(self._spans, self._offsets)

    def _snapshot(self, backlog: Backlog, emptied: Iterable[int] = ()) -> None:
        """Write a snapshot, and then the head that puts it in force.

        The snapshot notes all agendas of `emptied` pages as removed: their rows are deleted
        after the head, and a crash in between leaves them.
        """
        side = 1 - self._side
        snapshot = backlog.snapshot()
        gone = {**snapshot.gone, **{str(one): self._all_removed(one) for one in emptied}}
        parts = replace(snapshot, gone=gone).split(_MAX_PART_ENTRIES)
        for number, part in enumerate(parts):
            self._table.put(self._snapshot_key(side, number), _encode(part))
        head = SnapshotHeader(
            sequence=self._sequence,
            side=side,
            parts=len(parts),
            offset=self.offset,
            spans=tuple(self._spans),
            last_round=self.unconfirmed_round,
        )
        self._table.put(f"{key_prefix(self._prefix, self._epoch)}/head", _encode(head))
        self._snapshot_sequence, self._side = self._sequence, side
        for key in self._deletable:
            self._table.delete(key)
        # What this snapshot replaces is deleted with the next one, when its head is durable.
        self._deletable, self._superseded = self._superseded, []

    def _journal(self, rows: Mapping[str, bytes], epoch: int) -> Iterator[JournalRow]:
        for slot in range(JOURNAL_ROWS):
            key = f"{key_prefix(self._prefix, epoch)}/journal/{slot}"
            row = rows.get(key)
            if row is not None:
                read = self._read(key, row, JOURNAL_ROW_DECODER)
                if read is not None:
                    yield read

    def _pages(
        self, rows: Mapping[str, bytes], epoch: int
    ) -> Iterator[tuple[int, Sequence[RoutedAgenda]]]:
        """Pages by number, one at a time: all decoded would take as much as the index."""
        for number, key in sorted(self._page_keys(rows, epoch)):
            try:
                bodies = [bytes(body) for body in PAGE_DECODER.decode(rows[key])]
                agendas = [decode_routed(body) for body in bodies]
            except (ValueError, UnreadableRecordError) as error:  # msgspec's are ValueErrors
                self.unreadable[key] = str(error)
                continue
            self._index_bodies(number, bodies)
            yield number, agendas

    def _page_keys(self, rows: Iterable[str], epoch: int) -> Iterator[tuple[int, str]]:
        """The pages in force; collects all other rows, to be deleted with later snapshots."""
        for key in rows:
            one = parse_key(self._prefix, key)
            if one.kind != "page":
                (self._superseded if one.epoch == epoch else self._deletable).append(key)
                continue
            if one.page is not None and key != self._page_key(one.page):
                self._deletable.append(key)
                continue
            try:
                yield int(key.rpartition("/")[2]), key
            except ValueError as error:
                self.unreadable[key] = str(error)

    def _all_removed(self, number: int) -> str:
        """The bitmap of all slots of a page, in the form of `Delta.gone`."""
        return f"{(1 << len(self._offsets[number]) - 1) - 1:x}"

    def _index_bodies(self, number: int, bodies: Sequence[bytes]) -> None:
        self._offsets[number] = offsets = body_offsets(bodies)
        self.size += page_size(offsets)

    def _read(self, key: str, row: bytes | None, decoder: msgspec.json.Decoder[R]) -> R | None:
        try:
            return decoder.decode(row or b"")
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
            self.unreadable[key] = str(error)
            return None

    def _page_key(self, number: int) -> str:
        """The page's key; its epoch follows from its number, which is never used twice."""
        return f"{key_prefix(self._prefix, epoch_of(self._spans, number))}/page/{number}"

    def _journal_key(self, sequence: int) -> str:
        return f"{key_prefix(self._prefix, self._epoch)}/journal/{sequence % JOURNAL_ROWS}"

    def _snapshot_key(self, side: int, part: int) -> str:
        return f"{key_prefix(self._prefix, self._epoch)}/mark/{side}/{part}"


def rows_by_insight(table: BacklogTable, partition: int) -> dict[str, dict[str, bytes]]:
    """The rows of every insight of a partition, by insight and full key."""
    found: dict[str, dict[str, bytes]] = {}
    for key, value in table.rows(partition):
        found.setdefault(key.split("/")[1], {})[key] = value
    return found
