"""Places again, unasked, what was accepted and nobody has.

Regularly, and by one process at a time: what has not ended by its summary is asked of its
scheduler. What the scheduler lacks is looked at again once everything that could tell
otherwise has arrived: all that was told is folded, all that was submitted is placed, all that
the relay carries is carried. Only what is missing then too, and did not change, is placed.
While a part that must arrive does not, or a scheduler does not answer, nothing is done.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Final, Protocol

import structlog
from msgspec import Raw
from prometheus_client import CollectorRegistry, Counter

from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.clock import is_set_within
from pop_stream.core.errors import SubmissionError, UnavailableError
from pop_stream.core.events import (
    MOST_ASKED,
    NOWHERE,
    HeldAgenda,
    InsightPlaced,
    Origin,
    encode,
)
from pop_stream.core.reconcile import LedgerFault, LedgerRow, confirmed, faults, placed_anew
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.lag import LagProbe
from pop_stream.ports.questions import Questions
from pop_stream.ports.wire import Publisher, Record

BETWEEN_LOOKS_S: Final = 3.0
"""So that what an event leads to has happened as well."""

_ARRIVED_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.25
_AT_ONCE: Final = 500
_SHOWN: Final = 20

_log = structlog.get_logger()


class OpenAgendas(Protocol):
    """The list of agendas that have not ended."""

    def turn(self) -> AbstractAsyncContextManager[bool]:
        """Whether it is this process' turn, for as long as the block runs."""
        ...

    async def walk(self, quiet: timedelta) -> int:
        """Bring the list up to date; how many agendas were passed."""
        ...

    def listed(self, quiet: timedelta) -> AsyncIterator[Sequence[LedgerRow]]:
        """Those on it that changed nothing for so long, by pages."""
        ...


class Ledger(Protocol):
    """What summaries say of agendas, and how far they are folded."""

    async def rows_of(self, agenda_ids: Sequence[str]) -> list[LedgerRow]:
        """The rows of these agendas, as they are now."""
        ...

    async def bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, tuple[bytes, datetime]]:
        """What was submitted, and when it was accepted."""
        ...

    async def folded(self, topic: str) -> Mapping[int, int]:
        """How far each partition of a topic has been folded."""
        ...


@dataclass(slots=True)
class Placements:
    """What is to be placed again, and what cannot be, with why."""

    records: dict[str, Record] = field(default_factory=dict)
    beyond: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one look led to.

    Attributes:
        looked_at: Agendas that have not ended.
        placed: Ids of those that were placed again.
        beyond: Those that could not be, with why.
        unanswered: Insights whose scheduler did not answer.
    """

    looked_at: int = 0
    placed: tuple[str, ...] = ()
    beyond: Mapping[str, str] = field(default_factory=dict)
    unanswered: tuple[str, ...] = ()


class Reconciler:
    """One look at a time; see the module.

    Args:
        topics: Names of topics and groups.
        agendas: What has not ended.
        ledger: What summaries say.
        questions: Asks schedulers.
        publisher: For what is placed again.
        definitions: Tell where an insight is at home.
        probe: How far intake and relay have come.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        topics: Topics,
        *,
        agendas: OpenAgendas,
        ledger: Ledger,
        questions: Questions,
        publisher: Publisher,
        definitions: DefinitionSource,
        probe: LagProbe,
    ) -> None:
        self._topics = topics
        self._agendas = agendas
        self._ledger = ledger
        self._questions = questions
        self._publisher = publisher
        self._definitions = definitions
        self._probe = probe

    async def reconcile(self, quiet: timedelta) -> Reconciled | None:
        """Look once, and place again what is missing; None if it is another process' turn.

        Args:
            quiet: Agendas that changed within this time are passed over.

        Raises:
            UnavailableError: If Postgres or Kafka is away, or a part is far behind; nothing
                was done.
        """
        async with self._agendas.turn() as has_turn:
            if not has_turn:
                return None
            await self._until_folded()  # else what is accepted may appear behind the walk
            await self._agendas.walk(quiet)
            first, looked_at, unanswered = await self._first_look(quiet)
            if not first:
                return Reconciled(looked_at, unanswered=unanswered)
            await self._until_arrived()
            await asyncio.sleep(BETWEEN_LOOKS_S)
            again = await self._look(await self._ledger.rows_of([*first]), set())
            missing = [one.row for one in confirmed(first, again) if one.is_repairable]
            found = await placements(
                self._topics, self._ledger, self._publisher, self._definitions, missing
            )
            await self._place(found)
        return Reconciled(looked_at, tuple(found.records), found.beyond, unanswered)

    async def _first_look(
        self, quiet: timedelta
    ) -> tuple[Mapping[str, LedgerFault], int, tuple[str, ...]]:
        first: dict[str, LedgerFault] = {}
        looked_at, unanswered = 0, set[str]()
        async for page in self._agendas.listed(quiet):
            looked_at += len(page)
            found = await self._look(page, unanswered)
            first |= {one: fault for one, fault in found.items() if fault.is_repairable}
        return first, looked_at, tuple(sorted(unanswered))

    async def _look(
        self, rows: Sequence[LedgerRow], unanswered: set[str]
    ) -> Mapping[str, LedgerFault]:
        found: dict[str, LedgerFault] = {}
        for insight_id, some in by_insight(rows):
            if insight_id in unanswered:
                continue
            try:
                holds = await holds_of(
                    self._questions, insight_id, [row.agenda_id for row in some]
                )
            except UnavailableError:
                unanswered.add(insight_id)
            else:
                found |= faults(some, holds)
        return found

    async def _until_folded(self) -> None:
        """Wait until all that is told now is folded."""
        events = self._topics.agenda_events
        told = await self._ends("relay", events)
        await self._until(lambda: self._has_folded(told))

    async def _until_arrived(self) -> None:
        """Wait until all that is told or submitted now has come to where it is counted."""
        topics = self._topics
        events, submissions = topics.agenda_events, topics.submissions
        told = await self._ends("relay", events)
        submitted = await self._ends("intake", submissions)

        async def has_arrived() -> bool:
            return (
                await self._has_folded(told)
                and _reaches(await self._committed("relay", events), told)
                and _reaches(await self._committed("intake", submissions), submitted)
            )

        await self._until(has_arrived)

    async def _has_folded(self, told: Mapping[int, int]) -> bool:
        return _reaches(await self._ledger.folded(self._topics.agenda_events), told)

    async def _until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(_ARRIVED_WITHIN_S):
                while not await is_so():  # noqa: ASYNC110  # other processes tell
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            msg = "rollup, relay or intake is far behind, so nothing can be said of any agenda"
            raise UnavailableError(msg) from None

    async def _ends(self, part: str, topic: str) -> Mapping[int, int]:
        progress = await self._probe.progress(self._topics.group(part), topic)
        if progress is None:
            msg = f"how far {part} has come with {topic} is not known"
            raise UnavailableError(msg)
        return progress.ends

    async def _committed(self, part: str, topic: str) -> Mapping[int, int]:
        progress = await self._probe.progress(self._topics.group(part), topic)
        return {} if progress is None else progress.committed

    async def _place(self, found: Placements) -> None:
        records = iter(found.records.values())
        while some := list(islice(records, _AT_ONCE)):
            await self._publisher.publish(some)


async def holds_of(
    questions: Questions, insight_id: str, agenda_ids: Iterable[str]
) -> Mapping[str, HeldAgenda]:
    """Which of these agendas the scheduler of an insight holds.

    Its answer comes after everything that was on its way to it when it was asked.

    Raises:
        UnavailableError: If no scheduler answers in time.
    """
    holds: dict[str, HeldAgenda] = {}
    waiting = iter(agenda_ids)
    while some := list(islice(waiting, MOST_ASKED)):
        answer = await questions.ask(insight_id, agenda_ids=some)
        holds |= {one.agenda_id: one for one in answer.holds}
    return holds


async def placements(
    topics: Topics,
    ledger: Ledger,
    publisher: Publisher,
    definitions: DefinitionSource,
    missing: Sequence[LedgerRow],
) -> Placements:
    """The records that place missing agendas again."""
    found = Placements()
    bodies = await ledger.bodies([row.agenda_id for row in missing])
    partitions = await publisher.partitions(topics.ready)
    for row in missing:
        if row.agenda_id not in bodies:
            found.beyond[row.agenda_id] = "its body is not known: submit it again"
            continue
        try:
            placed = placed_anew(row, *bodies[row.agenda_id])
        except SubmissionError as error:
            found.beyond[row.agenda_id] = str(error)
            continue
        event = InsightPlaced(
            insight_id=row.insight_id,
            agendas=(Raw(encode(placed)),),
            origins=(Origin(partition=NOWHERE, offset=0),),
        )
        found.records[row.agenda_id] = ready_record(
            topics, definitions.current, event, partitions=partitions
        )
    return found


def by_insight(rows: Iterable[LedgerRow]) -> Iterator[tuple[str, list[LedgerRow]]]:
    """The rows of each insight."""
    ordered = sorted(rows, key=lambda row: row.insight_id)
    for insight_id, some in groupby(ordered, key=lambda row: row.insight_id):
        yield insight_id, list(some)


class Reconciliations:
    """What became of all looks, for Prometheus.

    Args:
        registry: Where the counters are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._looks = Counter(
            "pop_reconciliations", "Looks for what nobody has.", ["result"], registry=registry
        )
        self._placed = Counter(
            "pop_agendas_placed_again", "Agendas that nobody had.", registry=registry
        )

    def note(self, reconciled: Reconciled | None) -> None:
        """Count and log what a look led to."""
        if reconciled is None:
            self._looks.labels("others_turn").inc()
            return
        self._placed.inc(len(reconciled.placed))
        left = reconciled.beyond or reconciled.unanswered
        self._looks.labels("incomplete" if left else "complete").inc()
        if reconciled.placed or reconciled.beyond:
            _log.warning(
                "agendas.placed_again",
                count=len(reconciled.placed),
                agenda_ids=reconciled.placed[:_SHOWN],
                beyond_repair=dict(islice(reconciled.beyond.items(), _SHOWN)),
            )
        if reconciled.unanswered:
            _log.info("reconciliation.incomplete", unanswered=reconciled.unanswered)

    def note_postponed(self, error: Exception) -> None:
        """Count and log a look that could not be."""
        self._looks.labels("postponed").inc()
        _log.info("reconciliation.postponed", reason=str(error))


async def reconcile_regularly(
    reconciler: Reconciler, told: Reconciliations, every: timedelta, stop: asyncio.Event
) -> None:
    """Look every so often until `stop`, the first time after that long."""
    while not await is_set_within(stop, every.total_seconds()):
        try:
            told.note(await reconciler.reconcile(every))
        except UnavailableError as error:
            told.note_postponed(error)


def _reaches(known: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(known.get(number, 0) >= end for number, end in ends.items())
