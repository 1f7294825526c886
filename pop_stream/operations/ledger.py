"""The audit of a live system: Postgres, Kafka and the scheduler held against each other.

One look of the audit: what Postgres says against what schedulers hold, both ways.

What `pop-stream doctor --ledger --repair` does about each kind of fault.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Final

from msgspec.structs import replace

from pop_stream.clock import WallClock
from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.publisher import ready_record
from pop_stream.kafka.queries import KafkaQueueQueries
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.lifecycle import AttemptEvent
from pop_stream.model.events.scheduling import Settlement
from pop_stream.policy.lifecycle.reconcile import (
    LedgerDiscrepancy,
    LedgerRow,
    checked_against_events,
    confirmed,
    faults,
)
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.queries import QueueQueries
from pop_stream.ports.records import TopicPartition
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.reconciler.missing import (
    AgendaEvidence,
    by_insight,
    plan_requeue,
    query_held,
    query_unsummarised,
    told_of,
)
from pop_stream.relay.translation import translate
from pop_stream.settings import Settings


@dataclass(slots=True)
class LedgerAudit:
    """What was found, and what was done about it.

    Attributes:
        checked: Agendas.
        skipped: Agendas that changed too lately to be looked at.
        offsets: What is wrong between `pop.agenda-events` and how far it was folded.
        behind: Events that were not folded when the first look began.
        unanswered: Insights whose scheduler does not answer, with why.
        repaired: Agendas that were placed again, or are told of as they should be.
        unrepairable: Those for which nothing could be done, with why.
    """

    checked: int = 0
    skipped: int = 0
    behind: int = 0
    offsets: list[str] = field(default_factory=list)
    faults: list[LedgerDiscrepancy] = field(default_factory=list)
    unanswered: dict[str, str] = field(default_factory=dict)
    repaired: list[str] = field(default_factory=list)
    unrepairable: dict[str, str] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to do for anyone."""
        left = {one.row.agenda_id for one in self.faults} - {*self.repaired}
        return not (left or self.offsets or self.unanswered)


class LedgerChecks:
    """Asks both sides.

    Args:
        ledger: What Postgres says.
        questions: Asks schedulers.
        insights: All that are defined.
    """

    def __init__(
        self, ledger: PostgresSummaryScan, questions: QueueQueries, insights: Sequence[str]
    ) -> None:
        self._ledger = ledger
        self._questions = questions
        self._insights = insights

    async def check_rows(
        self, rows: Sequence[LedgerRow], audit: LedgerAudit
    ) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong with these summaries; notes who did not answer."""
        found: dict[str, LedgerDiscrepancy] = {}
        audit.checked += len(rows)
        for insight_id, some in by_insight(rows):
            try:
                holds = await query_held(
                    self._questions, insight_id, [row.agenda_id for row in some]
                )
            except UnavailableError as error:
                audit.unanswered[insight_id] = str(error)
            else:
                found |= faults(some, holds)
        return found

    async def check_unknown(self, audit: LedgerAudit) -> Mapping[str, LedgerDiscrepancy]:
        """What schedulers hold that has no summary; who does not answer is passed over."""
        found: dict[str, LedgerDiscrepancy] = {}
        for insight_id in self._insights:
            if insight_id in audit.unanswered:
                continue
            try:
                async for some in query_unsummarised(self._questions, self._ledger, insight_id):
                    found |= some
            except UnavailableError as error:
                audit.unanswered[insight_id] = str(error)
        return found

    async def recheck(
        self, first: Mapping[str, LedgerDiscrepancy]
    ) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong by now with agendas about which something was."""
        found = {**await self.check_rows(await self._ledger.rows_of([*first]), LedgerAudit())}
        if any(one.kind == "no_summary" for one in first.values()):
            found |= await self.check_unknown(LedgerAudit())
        return found

    async def now(self, agenda_ids: Collection[str]) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong with these agendas, by a single look at their summaries."""
        return await self.check_rows(await self._ledger.rows_of([*agenda_ids]), LedgerAudit())


_AT_ONCE: Final = 500

_FORGOTTEN: Final = (
    "Kafka does not tell of its acceptance any more; what follows for it is told as ever"
)
_NO_END: Final = (
    "Kafka tells of no end of it that the scheduler could be told: wait, or cancel it"
)


class LedgerRepairs:
    """Summaries first, from what Kafka tells, for what else is wrong follows from them.

    A summary that is not what Kafka tells, or that is not there, is made anew. Then what nobody
    has is placed again; and of what has ended, the scheduler that still holds it is told.

    Args:
        topics: Names of topics.
        checks: Both sides, once more.
        ledger: What was submitted.
        summaries: Where they are made anew.
        publisher: For what is placed or told again.
        definitions: Tell where an insight is at home.
    """

    def __init__(  # every port it needs, named once
        self,
        *,
        topics: Topics,
        checks: LedgerChecks,
        ledger: PostgresSummaryScan,
        summaries: PostgresSummaries,
        publisher: Publisher,
        definitions: DefinitionSource,
    ) -> None:
        self._topics = topics
        self._looks = checks
        self._ledger = ledger
        self._summaries = summaries
        self._publisher = publisher
        self._definitions = definitions

    async def do(self, audit: LedgerAudit, evidence: Mapping[str, AgendaEvidence]) -> None:
        """Repair what was found, and note what became of it.

        Args:
            audit: Of two looks.
            evidence: What Kafka tells of agendas with a fault.

        Raises:
            UnavailableError: If Postgres or Kafka is away; some may have been repaired.
        """
        summaries = [one for one in audit.faults if one.kind in ("summary", "no_summary")]
        left = [one for one in audit.faults if one not in summaries]
        anew = await self._refold(summaries, audit, evidence)
        left += (await self._looks.now(anew)).values()
        await self._place([one for one in left if one.is_repairable], audit)
        await self._resend_ends([one for one in left if one.kind == "ended"], audit, evidence)

    async def _refold(
        self,
        wrong: Sequence[LedgerDiscrepancy],
        audit: LedgerAudit,
        evidence: Mapping[str, AgendaEvidence],
    ) -> Sequence[str]:
        known = [one for one in wrong if one.row.agenda_id in evidence]
        for one in wrong:
            if one.row.agenda_id not in evidence:
                audit.unrepairable[one.row.agenda_id] = _FORGOTTEN
        anew: list[str] = []
        waiting = iter(known)
        while some := [one.row for one in islice(waiting, _AT_ONCE)]:
            ids = [row.agenda_id for row in some]
            try:
                await self._summaries.rebuild(
                    {one: evidence[one].lifecycle for one in ids},
                    {row.agenda_id: row.version for row in some},
                )
            except UnavailableError as error:
                audit.unrepairable |= dict.fromkeys(ids, str(error))
            else:
                anew += ids
        audit.repaired += anew
        return anew

    async def _place(self, missing: Sequence[LedgerDiscrepancy], audit: LedgerAudit) -> None:
        found = await plan_requeue(
            self._topics,
            self._ledger,
            self._publisher,
            self._definitions,
            [one.row for one in missing],
            now=WallClock().now(),
        )
        audit.unrepairable |= found.beyond
        await self._publisher.publish(found.waits)
        for agenda_id, record in found.records.items():
            await self._publisher.publish([record])
            audit.repaired.append(agenda_id)

    async def _resend_ends(
        self,
        ended: Sequence[LedgerDiscrepancy],
        audit: LedgerAudit,
        evidence: Mapping[str, AgendaEvidence],
    ) -> None:
        """Carry again what the relay carries of them, as the end of what the scheduler has.

        It may have gone on to a later attempt, not having heard how the last one ended.
        """
        partitions = await self._publisher.partitions(self._topics.ready)
        for one in ended:
            row = one.row
            events = evidence[row.agenda_id].lifecycle if row.agenda_id in evidence else ()
            last = [
                event
                for event in events
                if isinstance(event, AttemptEvent) and event.attempt == row.attempt
            ]
            notes = [
                replace(note, settlements=_of_attempt(note.settlements, one.scheduler_attempt))
                for note in translate(last)
                if note.settlements
            ]
            if not notes:
                audit.unrepairable[row.agenda_id] = _NO_END
                continue
            definitions = self._definitions.current
            await self._publisher.publish(
                [
                    ready_record(self._topics, definitions, note, partitions=partitions)
                    for note in notes
                ]
            )
            audit.repaired.append(row.agenda_id)


def _of_attempt(settlements: Sequence[Settlement], attempt: int) -> tuple[Settlement, ...]:
    return tuple(replace(one, attempt=attempt) for one in settlements)


_PAGE: Final = 5_000
_MAX_ENDED_CHECKED: Final = 5_000
_FOLD_TIMEOUT_S: Final = 60.0
_BETWEEN_CHECKS_S: Final = 3.0
_CERTAIN_FAULTS: Final = frozenset({"not_claimed"})
"""Where Postgres and the scheduler agree."""


async def audit_ledger(settings: Settings, *, quiet: timedelta, repair: bool) -> LedgerAudit:
    """Look twice, and repair what can be if that is wanted.

    Safe beside everything that runs: it reads and asks. What it repairs it places with the
    attempt number that outdates whoever might have it, makes anew from what Kafka tells, or
    tells a scheduler once more; each is known where it was known already.

    Args:
        settings: Where Kafka and Postgres are.
        quiet: Agendas that changed within this time are passed over.
        repair: Whether to repair; see `LedgerRepairs`.

    Raises:
        UnavailableError: If Postgres or Kafka is away, or the rollup does not keep up.
    """
    async with (
        open_pool(settings) as pool,
        connections.publisher(settings, client_id="ledger") as publisher,
        DefinitionFollower(settings, client_id="ledger") as definitions,
        KafkaQueueQueries(settings, publisher, definitions) as questions,
    ):
        ledger = PostgresSummaryScan(pool)
        checks = LedgerChecks(ledger, questions, sorted(definitions.current.insights))
        audit = LedgerAudit()
        evidence = await _audit(settings, checks, ledger, audit, quiet)
        if repair:
            repairs = LedgerRepairs(
                topics=Topics(settings.topic_prefix),
                checks=checks,
                ledger=ledger,
                summaries=PostgresSummaries(pool),
                publisher=publisher,
                definitions=definitions,
            )
            await repairs.do(audit, evidence)
        return audit


async def _audit(
    settings: Settings,
    checks: LedgerChecks,
    ledger: PostgresSummaryScan,
    audit: LedgerAudit,
    quiet: timedelta,
) -> Mapping[str, AgendaEvidence]:
    """Note what is wrong; what Kafka tells of the agendas about which something is."""
    first: dict[str, LedgerDiscrepancy] = {}
    async for page in ledger.open_rows(quiet, page=_PAGE):
        first |= await checks.check_rows(page, audit)
    first |= await checks.check_rows(
        await ledger.ended_rows(quiet, most=_MAX_ENDED_CHECKED), audit
    )
    first |= await checks.check_unknown(audit)
    audit.skipped = await ledger.count_recently_changed(quiet)
    audit.behind = await _until_folded(settings, ledger, audit)
    if not first:
        return {}
    # Agendas on their way between two parts arrive.
    await asyncio.sleep(_BETWEEN_CHECKS_S)
    both = confirmed(first, await checks.recheck(first))
    doubted = [one.row.agenda_id for one in both if one.kind not in _CERTAIN_FAULTS]
    evidence = await told_of(settings, doubted, await ledger.first_accepted(doubted))
    audit.faults = [
        checked_against_events(one, evidence[one.row.agenda_id].summary)
        if one.row.agenda_id in evidence
        else one
        for one in both
    ]
    return evidence


async def _until_folded(
    settings: Settings, ledger: PostgresSummaryScan, audit: LedgerAudit
) -> int:
    """Wait until all that is told now is folded; how much was not."""
    topic = Topics(settings.topic_prefix).agenda_events
    before = await ledger.folded(topic)
    begins, ends = await _offsets(settings, topic)
    folded = await ledger.folded(topic)
    audit.offsets += _offset_faults(topic, begins, ends, before, folded)
    behind = sum(max(0, end - folded.get(number, 0)) for number, end in ends.items())
    if audit.offsets:
        return behind
    try:
        async with asyncio.timeout(_FOLD_TIMEOUT_S):
            while any(folded.get(number, 0) < end for number, end in ends.items()):
                await asyncio.sleep(0.2)
                folded = await ledger.folded(topic)
    except TimeoutError:
        msg = (
            f"the rollup has not folded what was told {_FOLD_TIMEOUT_S:g} s ago: it is "
            "down or far behind, so nothing can be said of any agenda; see to it first"
        )
        raise UnavailableError(msg) from None
    return behind


def _offset_faults(
    topic: str,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    before: Mapping[int, int],
    after: Mapping[int, int],
) -> Iterator[str]:
    """What is wrong with what was folded before these were asked for, and after."""
    for number, end in sorted(ends.items()):
        known = after.get(number, 0)
        if (was := before.get(number, 0)) > end:
            yield (
                f"partition {number} of {topic} was folded up to {was} and ends at {end}: "
                "the topic was made anew, or has lost records; clear its consumed_offsets"
            )
        elif known < begins.get(number, 0):
            yield (
                f"partition {number} of {topic} was folded up to {known} and begins at "
                f"{begins[number]}: retention removed what was never folded"
            )


async def _offsets(
    settings: Settings, topic: str
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    async with clients.consumer(settings, topic, client_id="ledger", group_id=None) as consumer:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        partitions = [TopicPartition(topic, number) for number in numbers]
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
    return (
        {tp.partition: offset for tp, offset in begins.items()},
        {tp.partition: offset for tp, offset in ends.items()},
    )
