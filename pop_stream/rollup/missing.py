"""What a scheduler holds of agendas, and the records that place again what nobody has."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from typing import Protocol

from msgspec import Raw

from pop_stream.bus.publisher import lifecycle_records
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import SubmissionError
from pop_stream.core.events import (
    MAX_QUERIED_AGENDAS,
    NO_ORIGIN,
    AgendaReady,
    TrackedAgenda,
    InsightAgendasRouted,
    LifecycleEvent,
    Origin,
    encode,
)
from pop_stream.core.lifecycle.reconcile import (
    LedgerDiscrepancy,
    LedgerRow,
    placed_for_repair,
    missing_summary,
)
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.questions import QueueQueries
from pop_stream.ports.wire import Publisher, Record


class AgendaBodies(Protocol):
    """What was submitted."""

    async def bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, tuple[bytes, datetime]]:
        """What was submitted, and when it was accepted."""
        ...


class SummaryIndex(Protocol):
    """Which agendas have a summary."""

    async def entries(self, agenda_ids: Sequence[str]) -> Mapping[str, object]:
        """Those of the agendas that have one."""
        ...


@dataclass(slots=True)
class RequeuePlan:
    """What is to be placed again, and what cannot be, with why.

    Attributes:
        waits: That the next attempts wait: to be acknowledged before they are placed, for
            nobody else would tell.
    """

    records: dict[str, Record] = field(default_factory=dict)
    waits: list[Record] = field(default_factory=list)
    beyond: dict[str, str] = field(default_factory=dict)


async def query_held(
    questions: QueueQueries, insight_id: str, agenda_ids: Iterable[str]
) -> Mapping[str, TrackedAgenda]:
    """Which of these agendas the scheduler of an insight holds.

    Its answer comes after everything that was on its way to it when it was asked.

    Raises:
        UnavailableError: If no scheduler answers in time.
    """
    holds: dict[str, TrackedAgenda] = {}
    waiting = iter(agenda_ids)
    while some := list(islice(waiting, MAX_QUERIED_AGENDAS)):
        answer = await questions.ask(insight_id, agenda_ids=some)
        holds |= {one.agenda_id: one for one in answer.holds}
    return holds


async def query_unsummarised(
    questions: QueueQueries, ledger: SummaryIndex, insight_id: str
) -> AsyncIterator[Mapping[str, LedgerDiscrepancy]]:
    """What the scheduler of an insight holds and Postgres does not know, by portions.

    Raises:
        UnavailableError: If no scheduler answers in time, or Postgres is away.
    """
    after: int | None = -1
    while after is not None:
        answer = await questions.ask(insight_id, tracked_after=after)
        known = await ledger.entries([one.agenda_id for one in answer.holds])
        yield {
            one.agenda_id: missing_summary(insight_id, one)
            for one in answer.holds
            if one.agenda_id not in known
        }
        after = answer.tracked_up_to


async def plan_requeue(
    topics: Topics,
    ledger: AgendaBodies,
    publisher: Publisher,
    definitions: DefinitionSource,
    missing: Sequence[LedgerRow],
    *,
    now: datetime,
) -> RequeuePlan:
    """The records that place missing agendas again."""
    found = RequeuePlan()
    readied: list[LifecycleEvent] = []
    bodies = await ledger.bodies([row.agenda_id for row in missing])
    partitions = await publisher.partitions(topics.ready)
    for row in missing:
        if row.agenda_id not in bodies:
            found.beyond[row.agenda_id] = "its body is not known: submit it again"
            continue
        try:
            placed = placed_for_repair(row, *bodies[row.agenda_id])
        except SubmissionError as error:
            found.beyond[row.agenda_id] = str(error)
            continue
        event = InsightAgendasRouted(
            insight_id=row.insight_id,
            agendas=(Raw(encode(placed)),),
            origins=(Origin(partition=NO_ORIGIN, offset=0),),
        )
        found.records[row.agenda_id] = ready_record(
            topics, definitions.current, event, partitions=partitions
        )
        if placed.attempt > row.attempt:
            readied.append(
                AgendaReady(
                    agenda_id=row.agenda_id,
                    at=now,
                    insight_id=row.insight_id,
                    attempt=placed.attempt,
                )
            )
    found.waits += await lifecycle_records(publisher, topics.agenda_events, readied)
    return found


def by_insight(rows: Iterable[LedgerRow]) -> Iterator[tuple[str, list[LedgerRow]]]:
    """The rows of each insight."""
    ordered = sorted(rows, key=lambda row: row.insight_id)
    for insight_id, some in groupby(ordered, key=lambda row: row.insight_id):
        yield insight_id, list(some)
