"""Folds batches of lifecycle events into the summaries' rows, each event exactly once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pop_stream import faults
from pop_stream.core.errors import UnavailableError, UnstorableError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaRenewed,
    LifecycleEvent,
    OperationProgress,
)
from pop_stream.core.lifecycle.callbacks import owed
from pop_stream.core.lifecycle.fold import fold_all
from pop_stream.core.lifecycle.summary import Summary
from pop_stream.ports.summaries import FoldedBatch
from pop_stream.store.callbacks import owe
from pop_stream.store.offsets import advance_offsets, affected, read_offsets
from pop_stream.store.pool import borrow
from pop_stream.store.queries import load_queries
from pop_stream.store.recent import Known, RecentSummaries
from pop_stream.store.rows import (
    Row,
    agenda_row,
    is_described_anew,
    moved_row,
    operation_of,
    operation_row,
    summary_of,
)

if TYPE_CHECKING:
    from pop_stream.store.pool import Connection, Pool

_SQL: Final = load_queries("summaries")

_TRIES: Final = 5

_Told = Mapping[str, Sequence[LifecycleEvent]]


class _OvertakenError(Exception):
    """A row was changed between reading and writing it, or a presumed new one exists."""


_NEW: Final = Known()


class _Change(NamedTuple):
    """What was known of an agenda, its summary now, and what is known once that is written."""

    before: Known
    after: Summary
    written: Known


class PostgresSummaries:
    """The port `SummaryStore`.

    A batch reads what it changes, unless this process wrote it lately, with two statements,
    and writes it with four at most. Rows are guarded by their version, and read and locked
    after that has failed: an agenda whose events were written to a wrong partition, and are
    folded by two processes, loses none.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._recent = RecentSummaries()

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """The offset to read next, by partition; see the port."""
        async with borrow(self._pool) as connection:
            return await read_offsets(connection, topic)

    async def fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        lifecycle: Sequence[LifecycleEvent],
    ) -> FoldedBatch:
        """Fold a batch and advance the offsets, both in one transaction; see the port."""
        told: dict[str, list[LifecycleEvent]] = defaultdict(list)
        for event in lifecycle:
            told[event.agenda_id].append(event)
        try:
            changes, skipped = await self._fold(topic, spans, told)
        except BaseException:
            self._recent.forget()
            raise
        self._recent.keep(change.written for change in changes)
        return FoldedBatch(applied=len(lifecycle) - skipped, skipped=skipped)

    async def fold_anew(
        self,
        told: Mapping[str, Sequence[LifecycleEvent]],
        versions: Mapping[str, int],
    ) -> None:
        """Make summaries what these events add up to, whatever they say; in one transaction.

        An end is owed its callback again, under the same id.

        Args:
            told: By agenda, all that is told of it, in order.
            versions: Of the summaries as they were before that was read; 0 of one without any.

        Raises:
            UnavailableError: If one was changed since, or the database is away; nothing was
                done.
        """
        ids = sorted(told)
        try:
            async with borrow(self._pool) as connection, connection.transaction():
                await connection.execute(_SQL["lock_agendas"], ids)
                await connection.execute(_SQL["forget_operations_of"], ids)
                changes, _ = _changes({one: Known(version=versions[one]) for one in ids}, told)
                await _write(connection, changes)
        except _OvertakenError:
            msg = "agendas changed while their summaries were made anew: look again"
            raise UnavailableError(msg) from None

    async def _fold(
        self, topic: str, spans: Mapping[int, tuple[int, int]], told: _Told
    ) -> tuple[Sequence[_Change], int]:
        async with borrow(self._pool) as connection:
            for tries in range(_TRIES):
                try:
                    async with connection.transaction():
                        await advance_offsets(connection, topic, spans)
                        if tries:
                            await connection.execute(_SQL["lock_agendas"], list(told))
                            known = await _read(connection, told)
                        else:
                            known = await self._known(connection, told)
                        changes, skipped = _changes(known, told)
                        await _write(connection, changes)
                        faults.reach("rollup.folding")
                except _OvertakenError:
                    continue
                return changes, skipped
        msg = "other processes keep changing the same agendas"
        raise UnavailableError(msg)

    async def _known(self, connection: "Connection", told: _Told) -> Mapping[str, Known]:
        """What is known of the agendas; those first accepted here are presumed to be new.

        If they are not, but told of again, or others have written since, the guard on the
        version tells, and then all are read after all.
        """
        found: dict[str, Known] = {}
        unknown: dict[str, Sequence[LifecycleEvent]] = {}
        for agenda_id, events in told.items():
            known = self._recent.get(agenda_id)
            if known is not None and _serves(known, events):
                found[agenda_id] = known
            elif not isinstance(events[0], AgendaAccepted):
                unknown[agenda_id] = events
        return {**found, **await _read(connection, unknown)}


def _serves(known: Known, events: Sequence[LifecycleEvent]) -> bool:
    """Whether the events can be folded on what is known."""
    if known.is_whole or known.summary is None:
        return True
    return not any(_touches_operations(one, known.summary.attempt) for one in events)


def _after(before: Known, after: Summary) -> Known:
    """What the database has once a change is written."""
    percent = after.percent if before.is_whole else before.percent
    return Known(after, before.version + 1, percent, before.is_whole)


def _changes(known: Mapping[str, Known], told: _Told) -> tuple[Sequence[_Change], int]:
    """Fold by agenda: what changes, and the number of events skipped."""
    changes: list[_Change] = []
    skipped = 0
    # In order of id, so that two processes wait for each other instead of deadlocking.
    for agenda_id in sorted(told):
        before = known.get(agenda_id, _NEW)
        try:
            after, refused = fold_all(before.summary, told[agenda_id])
        except (ArithmeticError, TypeError) as error:
            raise UnstorableError(repr(error)) from error
        skipped += refused
        if after is not None and after != before.summary:
            changes.append(_Change(before, after, _after(before, after)))
    return changes, skipped


async def _read(connection: "Connection", told: _Told) -> Mapping[str, Known]:
    if not told:
        return {}
    rows = await connection.fetch(_SQL["known_agendas"], list(told))
    whole = [
        row["agenda_id"]
        for row in rows
        if any(_touches_operations(event, row["attempt"]) for event in told[row["agenda_id"]])
    ]
    operations: dict[str, dict[str, OperationProgress]] = {one: {} for one in whole}
    if whole:
        for row in await connection.fetch(_SQL["known_operations"], whole):
            operations[row["agenda_id"]][row["name"]] = operation_of(row)
    return {
        row["agenda_id"]: Known(
            summary=summary_of(row, operations.get(row["agenda_id"], {})),
            version=row["version"],
            percent=row["percent"],
            is_whole=row["agenda_id"] in operations,
        )
        for row in rows
    }


def _touches_operations(event: LifecycleEvent, attempt: int) -> bool:
    if isinstance(event, AgendaEmitted | AgendaClaimed | AgendaRenewed):
        return event.attempt > attempt
    return True


async def _write(connection: "Connection", changes: Sequence[_Change]) -> None:
    whole: list[Row] = []
    moved: list[Row] = []
    kept: list[Row] = []
    forgotten: list[Row] = []
    for before, after, written in changes:
        if before.summary is None or is_described_anew(before.summary, after):
            whole.append(agenda_row(after, version=written.version, percent=written.percent))
        else:
            moved.append(moved_row(after, version=written.version, percent=written.percent))
        known = before.summary.operations if before.summary else {}
        for name, one in after.operations.items():
            if one != known.get(name):
                kept.append(operation_row(after.agenda_id, one))
        forgotten += [(after.agenda_id, name) for name in known if name not in after.operations]
    for name, rows in (("keep_agendas", whole), ("move_agendas", moved)):
        if await _execute(connection, name, rows) != len(rows):
            raise _OvertakenError
    await owe(
        connection,
        [
            (ended, after.callback_url)
            for before, after, _ in changes
            if after.callback_url and (ended := owed(before.summary, after))
        ],
    )
    await _execute(connection, "keep_operations", kept)
    if forgotten:
        await connection.execute(_SQL["forget_operations"], *zip(*forgotten, strict=True))


async def _execute(connection: "Connection", name: str, rows: Sequence[Row]) -> int:
    """Run a query that takes an array of rows; the number of rows it affected."""
    if not rows:
        return 0
    return affected(await connection.execute(_SQL[name], rows))
