"""What a scheduler holds of agendas, and the records that place again what nobody has.

What Kafka still tells of agendas, and what that adds up to: the witness behind a summary.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Final, Protocol

from msgspec import Raw

from pop_stream.clock import WallClock
from pop_stream.kafka import clients
from pop_stream.kafka.lifecycle_reader import read
from pop_stream.kafka.publisher import lifecycle_records, ready_record
from pop_stream.kafka.topic_reader import read_to_end
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import AgendaReady, LifecycleEvent
from pop_stream.model.events.scheduling import (
    MAX_QUERIED_AGENDAS,
    NO_ORIGIN,
    InsightAgendasRouted,
    Origin,
    TrackedAgenda,
)
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.reconcile import (
    LedgerDiscrepancy,
    LedgerRow,
    missing_summary,
    placed_for_repair,
)
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.queries import QueueQueries
from pop_stream.ports.records import TopicPartition
from pop_stream.settings import Settings


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


_CLOCK_SKEW: Final = timedelta(days=1)
"""Who accepted an agenda may have had a clock so far ahead of the brokers'."""


@dataclass(frozen=True, slots=True)
class AgendaEvidence:
    """Of one agenda.

    Attributes:
        lifecycle: All its events that Kafka has, from its acceptance on.
        summary: What they add up to.
    """

    lifecycle: Sequence[LifecycleEvent]
    summary: Summary


async def told_of(
    settings: Settings, agenda_ids: Collection[str], since: datetime | None
) -> Mapping[str, AgendaEvidence]:
    """Read `pop.agenda-events` for what it has of these agendas, up to its present end.

    Args:
        settings: Where the cluster is.
        agenda_ids: In memory are the events of these alone.
        since: When the first of them was accepted; None reads all there is.

    Returns:
        By agenda; absent where Kafka does not have its acceptance any more, for then nothing
        can be said.
    """
    if not agenda_ids:
        return {}
    found: dict[str, list[LifecycleEvent]] = {one: [] for one in agenda_ids}
    now = WallClock().now()
    starts = await _starts(settings, since)
    async for _, records, _ in read_to_end(settings, starts):
        for record in records:
            for entry in read(record, now=now)[0]:
                if entry.event is not None and entry.event.agenda_id in found:
                    found[entry.event.agenda_id].append(entry.event)
    sums = {one: fold_all(None, events)[0] for one, events in found.items()}
    return {
        one: AgendaEvidence(found[one], summary)
        for one, summary in sums.items()
        if summary is not None and summary.body
    }


async def _starts(settings: Settings, since: datetime | None) -> dict[TopicPartition, int]:
    topic = Topics(settings.topic_prefix).agenda_events
    async with clients.consumer(settings, topic, client_id="told", group_id=None) as consumer:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        partitions = [TopicPartition(topic, number) for number in numbers]
        if since is None:
            return dict.fromkeys(partitions, 0)
        at_ms = int((since - _CLOCK_SKEW).timestamp() * 1000)
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, at_ms))
        ends = await consumer.end_offsets(partitions)
    return {one: found[one].offset if found[one] else ends[one] for one in partitions}
