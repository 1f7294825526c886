"""Folds batches of lifecycle events into the summaries' rows, each event exactly once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pop_stream import faults
from pop_stream.core.callbacks import owed
from pop_stream.core.errors import UnavailableError, UnstorableError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaRenewed,
    LifecycleEvent,
    OperationProgress,
)
from pop_stream.core.fold import fold_all
from pop_stream.core.summary import Summary
from pop_stream.ports import FoldedBatch
from pop_stream.store.callbacks import owe
from pop_stream.store.offsets import advance_offsets, affected, read_offsets
from pop_stream.store.pool import borrow
from pop_stream.store.queries import load_queries
from pop_stream.store.rows import Row, agenda_row, operation_of, operation_row, summary_of

if TYPE_CHECKING:
    from pop_stream.store.pool import Connection, Pool

_SQL: Final = load_queries("summaries")

_TRIES: Final = 5

_Told = Mapping[str, Sequence[LifecycleEvent]]


class _OvertakenError(Exception):
    """A row was changed between reading and writing it, or a presumed new one exists."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A summary as the database has it.

    Attributes:
        percent: As stored; valid also where the operations were not read.
        is_whole: Whether its operations were read.
    """

    summary: Summary | None = None
    version: int = 0
    percent: float = 0.0
    is_whole: bool = True


_NEW: Final = _Known()


class PostgresSummaries:
    """The port `SummaryStore`.

    A batch reads what it changes with two statements and writes it with three at most. Rows
    are guarded by their version, and locked only after that has failed: an agenda whose
    events were written to a wrong partition, and are folded by two processes, loses none.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

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
        async with borrow(self._pool) as connection:
            for tries in range(_TRIES):
                try:
                    async with connection.transaction():
                        await advance_offsets(connection, topic, spans)
                        if tries:
                            await connection.execute(_SQL["lock_agendas"], list(told))
                        skipped = await _fold(connection, told, presuming_new=not tries)
                        faults.reach("rollup.folding")
                except _OvertakenError:
                    continue
                return FoldedBatch(applied=len(lifecycle) - skipped, skipped=skipped)
        msg = "other processes keep changing the same agendas"
        raise UnavailableError(msg)


async def _fold(connection: "Connection", told: _Told, *, presuming_new: bool) -> int:
    """Fold by agenda and write what changed; the number of events skipped."""
    known = await _read(connection, _presumed_known(told) if presuming_new else told)
    changes: list[tuple[_Known, Summary]] = []
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
            changes.append((before, after))
    await _write(connection, changes)
    return skipped


def _presumed_known(told: _Told) -> _Told:
    """Without the agendas that are first accepted here: they are new, but for repeats.

    The guard on the version tells if they are not, and then they are read after all.
    """
    return {
        agenda_id: events
        for agenda_id, events in told.items()
        if not isinstance(events[0], AgendaAccepted)
    }


async def _read(connection: "Connection", told: _Told) -> Mapping[str, _Known]:
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
        row["agenda_id"]: _Known(
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


async def _write(connection: "Connection", changes: Sequence[tuple[_Known, Summary]]) -> None:
    agendas: list[Row] = []
    kept: list[Row] = []
    forgotten: list[Row] = []
    for before, after in changes:
        percent = after.percent if before.is_whole else before.percent
        agendas.append(agenda_row(after, version=before.version + 1, percent=percent))
        known = before.summary.operations if before.summary else {}
        for name, one in after.operations.items():
            if one != known.get(name):
                kept.append(operation_row(after.agenda_id, one))
        forgotten += [(after.agenda_id, name) for name in known if name not in after.operations]
    if await _execute(connection, "keep_agendas", agendas) != len(agendas):
        raise _OvertakenError
    await owe(
        connection,
        [
            (ended, after.callback_url)
            for before, after in changes
            if after.callback_url and (ended := owed(before.summary, after))
        ],
    )
    await _execute(connection, "keep_operations", kept)
    await _execute(connection, "forget_operations", forgotten)


async def _execute(connection: "Connection", name: str, rows: Sequence[Row]) -> int:
    """Run a query that takes one array per column; the number of rows it affected."""
    if not rows:
        return 0
    return affected(await connection.execute(_SQL[name], *zip(*rows, strict=True)))
