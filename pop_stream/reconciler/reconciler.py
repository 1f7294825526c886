"""Places again, unasked, what was accepted and nobody has.

Regularly, and by one process at a time: what has not ended by its summary is asked of its
scheduler. What the scheduler lacks is looked at again once everything that could tell
otherwise has arrived: all that was told is folded, all that was submitted is placed, all that
the relay carries is carried. Only what is missing then too, did not change, and has not ended
by what Kafka tells of it, is placed.
While a part that must arrive does not, or a scheduler does not answer, nothing is done.

Looks for what nobody has, at regular times, and what became of them.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter

from pop_stream.clock import WallClock, wait_until_set
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.policy.lifecycle.reconcile import (
    LedgerDiscrepancy,
    LedgerRow,
    checked_against_events,
    confirmed,
    faults,
)
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.lag import LagProbe
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.queries import QueueQueries
from pop_stream.reconciler.missing import (
    AgendaBodies,
    AgendaEvidence,
    RequeuePlan,
    by_insight,
    plan_requeue,
    query_held,
)

RECHECK_AFTER_S: Final = 3.0
"""So that what an event leads to has happened as well."""

_CATCH_UP_TIMEOUT_S: Final = 30.0
_POLL_EVERY_S: Final = 0.25
_MAX_BATCH: Final = 500


ReadEvidence = Callable[
    [Collection[str], datetime | None], Awaitable[Mapping[str, AgendaEvidence]]
]
"""All that is told of agendas, accepted at an instant or later; see `told_of`."""


class UnsettledAgendas(Protocol):
    """The list of agendas that have not ended."""

    def try_lock(self) -> AbstractAsyncContextManager[bool]:
        """Whether it is this process' turn, for as long as the block runs."""
        ...

    async def scan(self, quiet: timedelta) -> int:
        """Bring the list up to date; how many agendas were passed."""
        ...

    def listed(self, quiet: timedelta) -> AsyncIterator[Sequence[LedgerRow]]:
        """Those on it that changed nothing for so long, by pages."""
        ...


class SummaryLedger(AgendaBodies, Protocol):
    """What summaries say of agendas, and how far they are folded."""

    async def rows_of(self, agenda_ids: Sequence[str]) -> list[LedgerRow]:
        """The rows of these agendas, as they are now."""
        ...

    async def folded(self, topic: str) -> Mapping[int, int]:
        """How far each partition of a topic has been folded."""
        ...


@dataclass(frozen=True, slots=True)
class ReconciliationResult:
    """What one look led to.

    Attributes:
        checked: Agendas that have not ended.
        placed: Ids of those that were placed again.
        beyond: Those that could not be, or must not before their summary is mended, with why.
        unanswered: Insights whose scheduler did not answer.
    """

    checked: int = 0
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
        probe: How far ingest and relay have come.
        told: What Kafka tells of agendas, those accepted since an instant.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        topics: Topics,
        *,
        agendas: UnsettledAgendas,
        ledger: SummaryLedger,
        questions: QueueQueries,
        publisher: Publisher,
        definitions: DefinitionSource,
        probe: LagProbe,
        told: ReadEvidence,
    ) -> None:
        self._topics = topics
        self._agendas = agendas
        self._ledger = ledger
        self._questions = questions
        self._publisher = publisher
        self._definitions = definitions
        self._probe = probe
        self._read_evidence = told

    async def reconcile(self, quiet: timedelta) -> ReconciliationResult | None:
        """Look once, and place again what is missing; None if it is another process' turn.

        Args:
            quiet: Agendas that changed within this time are passed over.

        Raises:
            UnavailableError: If Postgres or Kafka is away, or a part is far behind; nothing
                was done.
        """
        async with self._agendas.try_lock() as has_turn:
            if not has_turn:
                return None
            await self._wait_until_folded()  # else what is accepted may appear behind the walk
            await self._agendas.scan(quiet)
            first, checked, unanswered = await self._find_missing(quiet)
            if not first:
                return ReconciliationResult(checked, unanswered=unanswered)
            await self._wait_until_relayed_and_folded()
            await asyncio.sleep(RECHECK_AFTER_S)
            again = await self._compare(await self._ledger.rows_of([*first]), set())
            missing = await self._confirm_by_evidence(confirmed(first, again))
            found = await plan_requeue(
                self._topics,
                self._ledger,
                self._publisher,
                self._definitions,
                [one.row for one in missing if one.is_repairable],
                now=WallClock().now(),
            )
            await self._requeue(found)
        wrong = {one.row.agenda_id: one.detail for one in missing if not one.is_repairable}
        beyond = {**found.beyond, **wrong}
        return ReconciliationResult(checked, tuple(found.records), beyond, unanswered)

    async def _find_missing(
        self, quiet: timedelta
    ) -> tuple[Mapping[str, LedgerDiscrepancy], int, tuple[str, ...]]:
        first: dict[str, LedgerDiscrepancy] = {}
        checked, unanswered = 0, set[str]()
        async for page in self._agendas.listed(quiet):
            checked += len(page)
            found = await self._compare(page, unanswered)
            first |= {one: fault for one, fault in found.items() if fault.is_repairable}
        return first, checked, tuple(sorted(unanswered))

    async def _confirm_by_evidence(
        self, faults: Sequence[LedgerDiscrepancy]
    ) -> Sequence[LedgerDiscrepancy]:
        """The faults, with those set apart whose summary alone says that they are missing.

        A summary that someone changed by hand, or that lost what it was, may take for open
        what has ended: placed again it would be done twice.
        """
        missing = [one for one in faults if one.is_repairable]
        if not missing:
            return []
        bodies = await self._ledger.bodies([one.row.agenda_id for one in missing])
        since = min((at for _, at in bodies.values()), default=None)
        told = await self._read_evidence({one.row.agenda_id for one in missing}, since)
        return [
            checked_against_events(one, told[one.row.agenda_id].summary)
            if one.row.agenda_id in told
            else one
            for one in missing
        ]

    async def _compare(
        self, rows: Sequence[LedgerRow], unanswered: set[str]
    ) -> Mapping[str, LedgerDiscrepancy]:
        found: dict[str, LedgerDiscrepancy] = {}
        for insight_id, some in by_insight(rows):
            if insight_id in unanswered:
                continue
            try:
                holds = await query_held(
                    self._questions, insight_id, [row.agenda_id for row in some]
                )
            except UnavailableError:
                unanswered.add(insight_id)
            else:
                found |= faults(some, holds)
        return found

    async def _wait_until_folded(self) -> None:
        """Wait until all that is told now is folded."""
        events = self._topics.agenda_events
        told = await self._ends("relay", events)
        await self._wait_until(lambda: self._has_folded(told))

    async def _wait_until_relayed_and_folded(self) -> None:
        """Wait until all that is told or submitted now has come to where it is counted."""
        topics = self._topics
        events, submissions = topics.agenda_events, topics.submissions
        told = await self._ends("relay", events)
        submitted = await self._ends("ingest", submissions)

        async def has_arrived() -> bool:
            return (
                await self._has_folded(told)
                and _reaches(await self._committed("relay", events), told)
                and _reaches(await self._committed("ingest", submissions), submitted)
            )

        await self._wait_until(has_arrived)

    async def _has_folded(self, told: Mapping[int, int]) -> bool:
        return _reaches(await self._ledger.folded(self._topics.agenda_events), told)

    async def _wait_until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(_CATCH_UP_TIMEOUT_S):
                while not await is_so():  # noqa: ASYNC110  # other processes tell
                    await asyncio.sleep(_POLL_EVERY_S)
        except TimeoutError:
            msg = "rollup, relay or ingest is far behind, so nothing can be said of any agenda"
            raise UnavailableError(msg) from None

    async def _ends(self, part: str, topic: str) -> Mapping[int, int]:
        progress = await self._probe.fetch_group_offsets(self._topics.group(part), topic)
        if progress is None:
            msg = f"how far {part} has come with {topic} is not known"
            raise UnavailableError(msg)
        return progress.ends

    async def _committed(self, part: str, topic: str) -> Mapping[int, int]:
        progress = await self._probe.fetch_group_offsets(self._topics.group(part), topic)
        return {} if progress is None else progress.committed

    async def _requeue(self, found: RequeuePlan) -> None:
        if found.waits:
            await self._publisher.publish(found.waits)
        records = iter(found.records.values())
        while some := list(islice(records, _MAX_BATCH)):
            await self._publisher.publish(some)


def _reaches(known: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(known.get(number, 0) >= end for number, end in ends.items())


_MAX_LOGGED: Final = 20

_log = structlog.get_logger()


class ReconciliationMetrics:
    """What became of all looks, for Prometheus.

    Args:
        registry: Where the counters are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "pop_reconciliations", "Looks for what nobody has.", ["result"], registry=registry
        )
        self._requeued = Counter(
            "pop_agendas_requeued", "Agendas that nobody had.", registry=registry
        )

    def note(self, reconciled: ReconciliationResult | None) -> None:
        """Count and log what a look led to."""
        if reconciled is None:
            self._runs.labels("others_turn").inc()
            return
        self._requeued.inc(len(reconciled.placed))
        left = reconciled.beyond or reconciled.unanswered
        self._runs.labels("incomplete" if left else "complete").inc()
        if reconciled.placed or reconciled.beyond:
            _log.warning(
                "agendas.requeued",
                count=len(reconciled.placed),
                agenda_ids=reconciled.placed[:_MAX_LOGGED],
                beyond_repair=dict(islice(reconciled.beyond.items(), _MAX_LOGGED)),
            )
        if reconciled.unanswered:
            _log.info("reconciliation.incomplete", unanswered=reconciled.unanswered)

    def record_postponed(self, error: Exception) -> None:
        """Count and log a look that could not be."""
        self._runs.labels("postponed").inc()
        _log.info("reconciliation.postponed", reason=str(error))


async def schedule_reconciliation(
    reconciler: Reconciler, told: ReconciliationMetrics, every: timedelta, stop: asyncio.Event
) -> None:
    """Look every so often until `stop`, the first time after that long."""
    while not await wait_until_set(stop, every.total_seconds()):
        try:
            told.note(await reconciler.reconcile(every))
        except UnavailableError as error:
            told.record_postponed(error)
