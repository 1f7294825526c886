"""Folds batches of lifecycle events into the summaries' rows, each event exactly once.

Summaries that this process read or wrote lately are kept in memory and need not be read
again; every write is guarded by the version it is based on, so an outdated one is noticed.
How far each partition was folded is moved on in the transaction that folds.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from pop_stream.model.errors import OffsetsMovedError, UnavailableError, UnstorableError
from pop_stream.model.events.base import OperationProgress
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaHeartbeat,
    LifecycleEvent,
)
from pop_stream.model.ids import alternate_ids
from pop_stream.policy.lifecycle.stats import KeyLimiter, Report, StatsBatch, fold_accounting
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.policy.lifecycle.webhooks import webhook_payload
from pop_stream.ports.summaries import FoldedBatch, SummaryChange
from pop_stream.postgres.conditions import add_waits
from pop_stream.postgres.pool import acquire_connection, load_queries
from pop_stream.postgres.pullers import PullerSign, PullerSigns, record_pullers
from pop_stream.postgres.summary_rows import (
    Row,
    agenda_row,
    is_description_changed,
    operation_of,
    operation_row,
    progress_row,
    stats_row,
    summary_of,
)
from pop_stream.postgres.webhooks import enqueue_webhooks

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_OFFSETS_SQL: Final = load_queries("offsets")


async def read_offsets(connection: "Connection", topic: str) -> Mapping[int, int]:
    """The offset to read next, by partition; absent for one never read."""
    rows = await connection.fetch(_OFFSETS_SQL["next_offsets"], topic)
    return {row["partition"]: row["next_offset"] for row in rows}


async def advance_offsets(
    connection: "Connection", topic: str, spans: Mapping[int, tuple[int, int]]
) -> None:
    """Move partitions on from where the reader thinks they are.

    Until the transaction ends, no other process can move them.

    Raises:
        OffsetsMovedError: If one is elsewhere.
    """
    if begun := sorted(partition for partition, (start, _) in spans.items() if not start):
        await connection.execute(_OFFSETS_SQL["insert_offsets"], topic, begun)
    partitions = sorted(spans)
    status = await connection.execute(
        _OFFSETS_SQL["advance_offsets"],
        topic,
        partitions,
        [spans[partition][0] for partition in partitions],
        [spans[partition][1] for partition in partitions],
    )
    if affected(status) != len(partitions):
        msg = f"another process has moved partitions of {topic}, some of {partitions}"
        raise OffsetsMovedError(msg)


def affected(status: str) -> int:
    """How many rows a statement's status, such as `INSERT 0 7`, counts."""
    return int(status.rpartition(" ")[2])


CACHE_SIZE: Final = 20_000
"""Summaries kept at most; an estimated 25 MB."""

_MAX_OPERATIONS: Final = 8
_MAX_BYTES: Final = 4_096
"""Of results; what is larger is read again."""


class StoredSummary(msgspec.Struct, frozen=True, gc=False):
    """A summary as the database has it.

    Attributes:
        percent: As stored; valid also where the operations were not read.
        is_complete: Whether its operations were read.
        template_id: Of the template it was made from.
        accounted: The last attempt that the table `stats` has counted.
    """

    summary: Summary | None = None
    version: int = 0
    percent: float = 0.0
    is_complete: bool = True
    template_id: str | None = None
    accounted: int = 0


class SummaryCache:
    """What this process wrote last of agendas that go on, so that it need not be read again.

    It may be outdated: every write is guarded by the version it is made upon.

    Args:
        size: Summaries that are kept at most.
    """

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        self._summaries: OrderedDict[str, StoredSummary] = OrderedDict()

    def __len__(self) -> int:
        return len(self._summaries)

    def get(self, agenda_id: str) -> StoredSummary | None:
        """What was written last; None if that is not known."""
        return self._summaries.get(agenda_id)

    def put(self, written: Iterable[StoredSummary]) -> None:
        """Keep what was written; call it only once the transaction is committed."""
        known = self._summaries
        for one in written:
            if one.summary is None:
                continue
            agenda_id = one.summary.agenda_id
            known.pop(agenda_id, None)  # to its end: what was written last is dropped last
            if _is_unfinished(one.summary) and _is_small(one.summary):
                # No event changes the body, and a write without one leaves it.
                known[agenda_id] = (
                    replace(one, summary=replace(one.summary, body=b""))
                    if one.summary.body
                    else one
                )
        while len(known) > self._size:
            known.popitem(last=False)

    def clear(self) -> None:
        """Drop everything: after a failed commit it is unknown what the database has."""
        self._summaries.clear()


def _is_unfinished(summary: Summary) -> bool:
    return not summary.state.is_terminal


def _is_small(summary: Summary) -> bool:
    if len(summary.operation_names) > _MAX_OPERATIONS or summary.appended or summary.history:
        return False
    operations = summary.operations.values()
    results = sum(0 if one.result is UNSET else len(one.result) for one in operations)
    return len(operations) <= _MAX_OPERATIONS and results <= _MAX_BYTES


_SQL: Final = load_queries("summaries")
_STATS_SQL: Final = load_queries("stats")

_TRIES: Final = 5

_EventsByAgenda = Mapping[str, Sequence[LifecycleEvent]]


class _VersionConflictError(Exception):
    """A row was changed between reading and writing it, or a presumed new one exists."""


_NEW: Final = StoredSummary()


class _Change(NamedTuple):
    """What was known of an agenda, its summary now, and what is known once that is written.

    Attributes:
        reports: Of attempts, to be counted.
    """

    before: StoredSummary
    after: Summary
    written: StoredSummary
    reports: Sequence[Report]


class PostgresSummaries:
    """The port `SummaryStore`.

    A batch reads what it changes, unless this process wrote it lately, with two statements,
    and writes it with four at most. Rows are guarded by their version, and read and locked
    after that has failed: an agenda whose events were written to a wrong partition, and are
    folded by two processes, loses none.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._cache = SummaryCache()
        self._puller_signs = PullerSigns()
        self._stats_limiter = KeyLimiter()

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """The offset to read next, by partition; see the port."""
        async with acquire_connection(self._pool) as connection:
            return await read_offsets(connection, topic)

    async def fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        lifecycle: Sequence[LifecycleEvent],
    ) -> FoldedBatch:
        """Fold a batch and advance the offsets, both in one transaction; see the port."""
        events_by_agenda: dict[str, list[LifecycleEvent]] = defaultdict(list)
        for event in lifecycle:
            events_by_agenda[event.agenda_id].append(event)
        try:
            signs = self._puller_signs.due(lifecycle)
            changes, skipped = await self._fold(topic, spans, events_by_agenda, signs)
        except BaseException:
            self._cache.clear()
            raise
        self._cache.put(change.written for change in changes)
        return FoldedBatch(
            applied=len(lifecycle) - skipped,
            skipped=skipped,
            changes=[SummaryChange(one.before.summary, one.after) for one in changes],
        )

    async def rebuild(
        self,
        events_by_agenda: Mapping[str, Sequence[LifecycleEvent]],
        versions: Mapping[str, int],
    ) -> None:
        """Make summaries what these events add up to, whatever they say; in one transaction.

        An end is owed its webhook again, under the same id.

        Args:
            events_by_agenda: By agenda, all its events, in order.
            versions: Of the summaries as they were before that was read; 0 of one without any.

        Raises:
            UnavailableError: If one was changed since, or the database is away; nothing was
                done.
        """
        ids = sorted(events_by_agenda)
        try:
            async with acquire_connection(self._pool) as connection, connection.transaction():
                await connection.execute(_SQL["lock_agendas"], ids)
                await connection.execute(_SQL["delete_operations_of_agendas"], ids)
                changes, _ = _changes(
                    {one: StoredSummary(version=versions[one]) for one in ids}, events_by_agenda
                )
                await _write(connection, changes)
        except _VersionConflictError:
            msg = "agendas changed while their summaries were made anew: look again"
            raise UnavailableError(msg) from None

    async def _fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        events_by_agenda: _EventsByAgenda,
        signs: Sequence[PullerSign],
    ) -> tuple[Sequence[_Change], int]:
        async with acquire_connection(self._pool) as connection:
            for tries in range(_TRIES):
                try:
                    async with connection.transaction():
                        await advance_offsets(connection, topic, spans)
                        if tries:
                            await connection.execute(
                                _SQL["lock_agendas"], list(events_by_agenda)
                            )
                            known = await _read(connection, events_by_agenda)
                        else:
                            known = await self._known(connection, events_by_agenda)
                        changes, skipped = _changes(known, events_by_agenda)
                        await _write(connection, changes)
                        await record_pullers(connection, signs)
                        # The transaction holds these partitions, so nobody else adds to
                        # the rows of the first of them.
                        await self._add_stats(connection, min(spans, default=-1), changes)
                except _VersionConflictError:
                    continue
                return changes, skipped
        msg = "other processes keep changing the same agendas"
        raise UnavailableError(msg)

    async def _add_stats(
        self, connection: "Connection", partition: int, changes: Sequence[_Change]
    ) -> None:
        batch = StatsBatch(self._stats_limiter)
        for before, after, written, reports in changes:
            batch.add(before.summary, after, reports, written.template_id)
        if batch.rows:
            await connection.execute(
                _STATS_SQL["add"], [stats_row(partition, *one) for one in batch.rows.items()]
            )

    async def _known(
        self, connection: "Connection", events_by_agenda: _EventsByAgenda
    ) -> Mapping[str, StoredSummary]:
        """What is known of the agendas; those first accepted here are presumed to be new.

        If they are not new but repeated, or others have written since, the guard on the
        version fails, and then all are read after all.
        """
        found: dict[str, StoredSummary] = {}
        unknown: dict[str, Sequence[LifecycleEvent]] = {}
        for agenda_id, events in events_by_agenda.items():
            known = self._cache.get(agenda_id)
            if known is not None and _can_fold_on(known, events):
                found[agenda_id] = known
            elif not isinstance(events[0], AgendaAccepted):
                unknown[agenda_id] = events
        return {**found, **await _read(connection, unknown)}


def _can_fold_on(known: StoredSummary, events: Sequence[LifecycleEvent]) -> bool:
    """Whether the events can be folded on what is known."""
    if known.is_complete or known.summary is None:
        return True
    return not any(_touches_operations(one, known.summary.attempt) for one in events)


def _after(before: StoredSummary, after: Summary, accounted: int) -> StoredSummary:
    """What the database has once a change is written."""
    template_id = before.template_id
    if template_id is None and after.body and not (before.summary and before.summary.body):
        template_id = alternate_ids(after.body).template_id
    return StoredSummary(
        after,
        before.version + 1,
        after.percent if before.is_complete else before.percent,
        before.is_complete,
        template_id,
        accounted,
    )


def _changes(
    known: Mapping[str, StoredSummary], events_by_agenda: _EventsByAgenda
) -> tuple[Sequence[_Change], int]:
    """Fold by agenda: what changes, and the number of events skipped."""
    changes: list[_Change] = []
    skipped = 0
    # In order of id, so that two processes wait for each other instead of deadlocking.
    for agenda_id in sorted(events_by_agenda):
        before = known.get(agenda_id, _NEW)
        try:
            folded = fold_accounting(
                before.summary, before.accounted, events_by_agenda[agenda_id]
            )
        except (ArithmeticError, TypeError) as error:
            raise UnstorableError(repr(error)) from error
        skipped += folded.skipped
        after = folded.summary
        if after is not None and (after != before.summary or folded.reports):
            written = _after(before, after, folded.accounted)
            changes.append(_Change(before, after, written, folded.reports))
    return changes, skipped


async def _read(
    connection: "Connection", events_by_agenda: _EventsByAgenda
) -> Mapping[str, StoredSummary]:
    if not events_by_agenda:
        return {}
    rows = await connection.fetch(_SQL["select_agendas"], list(events_by_agenda))
    whole = [
        row["agenda_id"]
        for row in rows
        if any(
            _touches_operations(event, row["attempt"])
            for event in events_by_agenda[row["agenda_id"]]
        )
    ]
    operations: dict[str, dict[str, OperationProgress]] = {one: {} for one in whole}
    if whole:
        for row in await connection.fetch(_SQL["select_operations"], whole):
            operations[row["agenda_id"]][row["name"]] = operation_of(row)
    return {
        row["agenda_id"]: StoredSummary(
            summary=summary_of(row, operations.get(row["agenda_id"], {})),
            version=row["version"],
            percent=row["percent"],
            is_complete=row["agenda_id"] in operations,
            template_id=row["template_id"],
            accounted=row["accounted_attempt"],
        )
        for row in rows
    }


def _touches_operations(event: LifecycleEvent, attempt: int) -> bool:
    if isinstance(event, AgendaEmitted | AgendaClaimed | AgendaHeartbeat):
        return event.attempt > attempt
    return True


async def _write(connection: "Connection", changes: Sequence[_Change]) -> None:
    whole: list[Row] = []
    progressed: list[Row] = []
    changed_operations: list[Row] = []
    deleted_operations: list[Row] = []
    for before, after, written, _ in changes:
        is_whole = before.summary is None or is_description_changed(before.summary, after)
        rows = whole if is_whole else progressed
        rows.append(_row(agenda_row if is_whole else progress_row, after, written))
        known = before.summary.operations if before.summary else {}
        for name, one in after.operations.items():
            if one != known.get(name):
                changed_operations.append(operation_row(after.agenda_id, one))
        deleted_operations += [
            (after.agenda_id, name) for name in known if name not in after.operations
        ]
    for name, made in (("upsert_agendas", whole), ("update_agenda_progress", progressed)):
        if await _execute(connection, name, made) != len(made):
            raise _VersionConflictError
    await add_waits(
        connection,
        [after for before, after, *_ in changes if _is_accepted(before.summary, after)],
    )
    await enqueue_webhooks(
        connection,
        [
            (ended, after.callback_url, after.callback_format)
            for before, after, *_ in changes
            if after.callback_url and (ended := webhook_payload(before.summary, after))
        ],
    )
    await _execute(connection, "upsert_operations", changed_operations)
    if deleted_operations:
        await connection.execute(
            _SQL["delete_operations"], *zip(*deleted_operations, strict=True)
        )


def _is_accepted(before: Summary | None, after: Summary) -> bool:
    """Whether the change is that the agenda was accepted."""
    return after.accepted_at is not None and (before is None or before.accepted_at is None)


def _row(make: Callable[..., Row], after: Summary, written: StoredSummary) -> Row:
    return make(
        after,
        version=written.version,
        percent=written.percent,
        accounted=written.accounted,
    )


async def _execute(connection: "Connection", name: str, rows: Sequence[Row]) -> int:
    """Run a query that takes an array of rows; the number of rows it affected."""
    if not rows:
        return 0
    return affected(await connection.execute(_SQL[name], rows))
