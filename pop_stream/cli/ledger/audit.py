"""The audit of a live system: Postgres, Kafka and the scheduler held against each other."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from aiokafka import TopicPartition

from pop_stream.bus import clients
from pop_stream.bus.definitions import DefinitionFollower
from pop_stream.bus.questions import KafkaQuestions
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnavailableError
from pop_stream.core.lifecycle.reconcile import LedgerFault, LedgerRow, confirmed, faults
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.questions import Questions
from pop_stream.ports.wire import Publisher
from pop_stream.rollup.missing import by_insight, holds_of, placements
from pop_stream.settings import Settings
from pop_stream.store.ledger import PostgresLedger
from pop_stream.store.pool import open_pool
from pop_stream.wiring import connections

_PAGE: Final = 5_000
_ENDED_LOOKED_AT: Final = 5_000
_FOLDED_WITHIN_S: Final = 60.0
_BETWEEN_LOOKS_S: Final = 3.0


@dataclass(slots=True)
class Audit:
    """What was found, and what was done about it.

    Attributes:
        looked_at: Agendas.
        passed_over: Agendas that changed too lately to be looked at.
        offsets: What is wrong between `pop.agenda-events` and how far it was folded.
        behind: Events that were not folded when the first look began.
        unanswered: Insights whose scheduler does not answer, with why.
        repaired: Agendas that were placed again.
        beyond_repair: Those that could not be, with why.
    """

    looked_at: int = 0
    passed_over: int = 0
    behind: int = 0
    offsets: list[str] = field(default_factory=list)
    faults: list[LedgerFault] = field(default_factory=list)
    unanswered: dict[str, str] = field(default_factory=dict)
    repaired: list[str] = field(default_factory=list)
    beyond_repair: dict[str, str] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to do for anyone."""
        left = {one.row.agenda_id for one in self.faults} - {*self.repaired}
        return not (left or self.offsets or self.unanswered)


async def audit_ledger(settings: Settings, *, quiet: timedelta, repair: bool) -> Audit:
    """Look twice, and place again what is missing if that is wanted.

    Safe beside everything that runs: it reads, asks, and at most places agendas again that
    nobody has; the attempt number outdates whoever might.

    Args:
        settings: Where Kafka and Postgres are.
        quiet: Agendas that changed within this time are passed over.
        repair: Whether to place missing agendas again.

    Raises:
        UnavailableError: If Postgres or Kafka is away, or the rollup does not keep up.
    """
    async with (
        open_pool(settings) as pool,
        connections.publisher(settings, client_id="ledger") as publisher,
        DefinitionFollower(settings, client_id="ledger") as definitions,
        KafkaQuestions(settings, publisher, definitions) as questions,
    ):
        auditor = _Auditor(settings, PostgresLedger(pool), questions)
        audit = await auditor.audit(quiet)
        if repair:
            await _repair(settings, auditor.ledger, publisher, definitions, audit)
        return audit


class _Auditor:
    def __init__(
        self, settings: Settings, ledger: PostgresLedger, questions: Questions
    ) -> None:
        self.ledger = ledger
        self._settings = settings
        self._questions = questions

    async def audit(self, quiet: timedelta) -> Audit:
        audit = Audit()
        first: dict[str, LedgerFault] = {}
        async for page in self.ledger.open_rows(quiet, page=_PAGE):
            first |= await self._look(page, audit)
        first |= await self._look(
            await self.ledger.ended_rows(quiet, most=_ENDED_LOOKED_AT), audit
        )
        audit.passed_over = await self.ledger.count_fresh(quiet)
        audit.behind = await self._until_folded(audit)
        if first:
            # Agendas on their way between two parts arrive.
            await asyncio.sleep(_BETWEEN_LOOKS_S)
            again = await self._look(await self.ledger.rows_of([*first]), Audit())
            audit.faults = confirmed(first, again)
        return audit

    async def _look(self, rows: Sequence[LedgerRow], audit: Audit) -> Mapping[str, LedgerFault]:
        found: dict[str, LedgerFault] = {}
        audit.looked_at += len(rows)
        for insight_id, some in by_insight(rows):
            try:
                holds = await holds_of(
                    self._questions, insight_id, [row.agenda_id for row in some]
                )
            except UnavailableError as error:
                audit.unanswered[insight_id] = str(error)
            else:
                found |= faults(some, holds)
        return found

    async def _until_folded(self, audit: Audit) -> int:
        """Wait until all that is told now is folded; how much was not."""
        topic = Topics(self._settings.topic_prefix).agenda_events
        begins, ends = await _offsets(self._settings, topic)
        folded = await self.ledger.folded(topic)
        audit.offsets += _offset_faults(topic, begins, ends, folded)
        behind = sum(max(0, end - folded.get(number, 0)) for number, end in ends.items())
        if audit.offsets:
            return behind
        try:
            async with asyncio.timeout(_FOLDED_WITHIN_S):
                while any(folded.get(number, 0) < end for number, end in ends.items()):
                    await asyncio.sleep(0.2)
                    folded = await self.ledger.folded(topic)
        except TimeoutError:
            msg = (
                f"the rollup has not folded what was told {_FOLDED_WITHIN_S:g} s ago: it is "
                "down or far behind, so nothing can be said of any agenda; see to it first"
            )
            raise UnavailableError(msg) from None
        return behind


async def _repair(
    settings: Settings,
    ledger: PostgresLedger,
    publisher: Publisher,
    definitions: DefinitionSource,
    audit: Audit,
) -> None:
    missing = [one.row for one in audit.faults if one.is_repairable]
    topics = Topics(settings.topic_prefix)
    found = await placements(topics, ledger, publisher, definitions, missing)
    audit.beyond_repair |= found.beyond
    for agenda_id, record in found.records.items():
        await publisher.publish([record])
        audit.repaired.append(agenda_id)


def _offset_faults(
    topic: str, begins: Mapping[int, int], ends: Mapping[int, int], folded: Mapping[int, int]
) -> Iterator[str]:
    for number, end in sorted(ends.items()):
        known = folded.get(number, 0)
        if known > end:
            yield (
                f"partition {number} of {topic} was folded up to {known} and ends at {end}: "
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
