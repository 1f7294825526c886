"""The audit of a live system: Postgres, Kafka and the scheduler held against each other."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from aiokafka import TopicPartition

from pop_stream.bus import clients
from pop_stream.bus.definitions import DefinitionFollower
from pop_stream.bus.questions import KafkaQuestions
from pop_stream.bus.topics import Topics
from pop_stream.cli.ledger.looks import Audit, Looks
from pop_stream.cli.ledger.repair import Repairs
from pop_stream.core.errors import UnavailableError
from pop_stream.core.lifecycle.reconcile import LedgerFault, confirmed, weighed
from pop_stream.rollup.told import Told, told_of
from pop_stream.settings import Settings
from pop_stream.store.ledger import PostgresLedger
from pop_stream.store.pool import open_pool
from pop_stream.store.summaries import PostgresSummaries
from pop_stream.wiring import connections

_PAGE: Final = 5_000
_ENDED_LOOKED_AT: Final = 5_000
_FOLDED_WITHIN_S: Final = 60.0
_BETWEEN_LOOKS_S: Final = 3.0
_BEYOND_DOUBT: Final = frozenset({"not_claimed"})
"""Where Postgres and the scheduler agree."""


async def audit_ledger(settings: Settings, *, quiet: timedelta, repair: bool) -> Audit:
    """Look twice, and repair what can be if that is wanted.

    Safe beside everything that runs: it reads and asks. What it repairs it places with the
    attempt number that outdates whoever might have it, makes anew from what Kafka tells, or
    tells a scheduler once more; each is known where it was known already.

    Args:
        settings: Where Kafka and Postgres are.
        quiet: Agendas that changed within this time are passed over.
        repair: Whether to repair; see `Repairs`.

    Raises:
        UnavailableError: If Postgres or Kafka is away, or the rollup does not keep up.
    """
    async with (
        open_pool(settings) as pool,
        connections.publisher(settings, client_id="ledger") as publisher,
        DefinitionFollower(settings, client_id="ledger") as definitions,
        KafkaQuestions(settings, publisher, definitions) as questions,
    ):
        ledger = PostgresLedger(pool)
        looks = Looks(ledger, questions, sorted(definitions.current.insights))
        audit = Audit()
        told = await _audit(settings, looks, ledger, audit, quiet)
        if repair:
            repairs = Repairs(
                topics=Topics(settings.topic_prefix),
                looks=looks,
                ledger=ledger,
                summaries=PostgresSummaries(pool),
                publisher=publisher,
                definitions=definitions,
            )
            await repairs.do(audit, told)
        return audit


async def _audit(
    settings: Settings, looks: Looks, ledger: PostgresLedger, audit: Audit, quiet: timedelta
) -> Mapping[str, Told]:
    """Note what is wrong; what Kafka tells of the agendas about which something is."""
    first: dict[str, LedgerFault] = {}
    async for page in ledger.open_rows(quiet, page=_PAGE):
        first |= await looks.at_rows(page, audit)
    first |= await looks.at_rows(await ledger.ended_rows(quiet, most=_ENDED_LOOKED_AT), audit)
    first |= await looks.for_unknown(audit)
    audit.passed_over = await ledger.count_fresh(quiet)
    audit.behind = await _until_folded(settings, ledger, audit)
    if not first:
        return {}
    # Agendas on their way between two parts arrive.
    await asyncio.sleep(_BETWEEN_LOOKS_S)
    both = confirmed(first, await looks.again(first))
    doubted = [one.row.agenda_id for one in both if one.kind not in _BEYOND_DOUBT]
    told = await told_of(settings, doubted, await ledger.first_accepted(doubted))
    audit.faults = [
        weighed(one, told[one.row.agenda_id].summary) if one.row.agenda_id in told else one
        for one in both
    ]
    return told


async def _until_folded(settings: Settings, ledger: PostgresLedger, audit: Audit) -> int:
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
        async with asyncio.timeout(_FOLDED_WITHIN_S):
            while any(folded.get(number, 0) < end for number, end in ends.items()):
                await asyncio.sleep(0.2)
                folded = await ledger.folded(topic)
    except TimeoutError:
        msg = (
            f"the rollup has not folded what was told {_FOLDED_WITHIN_S:g} s ago: it is "
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
