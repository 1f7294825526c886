"""The audit of a live system: Postgres, Kafka and the scheduler held against each other."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from aiokafka import TopicPartition

from pop_stream.bus import clients
from pop_stream.bus.definitions import DefinitionFollower
from pop_stream.bus.questions import KafkaQueueQueries
from pop_stream.bus.topics import Topics
from pop_stream.cli.ledger.looks import LedgerAudit, LedgerChecks
from pop_stream.cli.ledger.repair import LedgerRepairs
from pop_stream.core.errors import UnavailableError
from pop_stream.core.lifecycle.reconcile import (
    LedgerDiscrepancy,
    confirmed,
    checked_against_events,
)
from pop_stream.rollup.told import AgendaEvidence, told_of
from pop_stream.settings import Settings
from pop_stream.store.ledger import PostgresSummaryScan
from pop_stream.store.pool import open_pool
from pop_stream.store.summaries import PostgresSummaries
from pop_stream.wiring import connections

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
