"""Finds out which kind of group serves an insight, and reads as a member of that.

Takes an insight's agendas as a member of its share group, one by one, for free runners.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.kafka import clients
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.share_consumer import ShareGroupConsumer
from pop_stream.kafka.topics import InsightSubscription, Topics
from pop_stream.model.definitions import GroupType
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.records import ConsumedRecord
from pop_stream.puller.claiming.pipeline import ClaimContext
from pop_stream.puller.consuming.insight_consumer import InsightConsumer
from pop_stream.settings import Settings

_POLL_S: Final = 0.5
_SLOT_S: Final = 5.0
_IMMEDIATE_S: Final = 0.02


class ShareInsightConsumer:
    """The twin of `InsightConsumer` for an insight whose group is a share group.

    A record is taken only while a slot is free, claimed, and accepted once the claim can be
    read; then it starts. So nobody is kept from what this puller cannot run, and a puller
    that dies before leaves its record to another.

    Args:
        settings: Where the cluster is.
        queue: What to read, and as which group.
        claim_context: Shared with the puller's other feeds.
    """

    def __init__(
        self, settings: Settings, queue: InsightSubscription, claim_context: ClaimContext
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._claim_context = claim_context

    async def consume(self, stop: asyncio.Event) -> None:
        """Take agendas until `stop`, then leave the group. The topic must exist.

        Raises:
            MissingClientError: If the client of share groups is not installed.
            UnavailableError: If Kafka, or the client, is in trouble; call it again.
        """
        queue = self._queue
        async with ShareGroupConsumer(
            self._settings, topic=queue.topic, group=queue.group
        ) as member:
            while not stop.is_set():
                await self._take(member, stop)

    async def _take(self, member: ShareGroupConsumer, stop: asyncio.Event) -> None:
        """Take a record if one comes while a slot is free, and start what it holds."""
        capacity = self._claim_context.capacity
        if self._claim_context.reporter.is_full:
            await wait_until_set(stop, _POLL_S)
            return
        if not await self._has_slot(_POLL_S):
            return
        began_s = monotonic()
        records = await member.poll(_POLL_S)
        if not records:
            return
        sync_matched = capacity.idle_runners if monotonic() - began_s > _IMMEDIATE_S else 0
        # Another feed of this puller may have been quicker; the record may wait a little.
        await self._has_slot(_SLOT_S)
        slots = 0 if stop.is_set() else capacity.acquire(len(records))
        await self._start(member, records, slots, sync_matched)

    async def _has_slot(self, within_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._claim_context.capacity.wait_free()
                return True
        return False

    async def _start(
        self,
        member: ShareGroupConsumer,
        records: Sequence[ConsumedRecord],
        slots: int,
        sync_matched: int,
    ) -> None:
        capacity, taken_s = self._claim_context.capacity, monotonic()
        ours, others = records[:slots], records[slots:]
        started = 0
        try:
            claimed = await self._claim_context.claimer.claim(
                ours, sync_matched=sync_matched, idle=self._claim_context.idle_runners
            )
            try:
                if await member.acknowledge(ours, released=others):
                    capacity.note_claim(monotonic() - taken_s)
                    for emitted in claimed.attempts:
                        self._claim_context.starter.start(emitted, claimed_s=taken_s)
                        started += 1
                else:
                    # Whoever is given the records claims them, or the lease brings them back.
                    self._claim_context.claimer.abandon(claimed.attempts)
            finally:
                self._claim_context.claimer.release(claimed.attempts)
        finally:
            capacity.release_slots(slots - started)


_TOPIC_POLL_S: Final = 0.5
_OTHER_KIND_POLL_S: Final = 10.0
_RETRY_S: Final = 1.0

_log = structlog.get_logger()


class _QueueConsumer(Protocol):
    async def consume(self, stop: asyncio.Event) -> None: ...


class _ConsumerFactory(Protocol):
    def __call__(
        self, settings: Settings, queue: InsightSubscription, claim_context: ClaimContext
    ) -> _QueueConsumer: ...


_CONSUMERS: Final[Mapping[GroupType, _ConsumerFactory]] = {
    "consumer": InsightConsumer,
    "share": ShareInsightConsumer,
}


async def run_subscription(
    settings: Settings, insight_id: str, claim_context: ClaimContext, stop: asyncio.Event
) -> None:
    """Take agendas of an insight until `stop`, as a member of its consumer or share group.

    Each kind has a topic of its own, which appears with the first agenda; it is waited for.
    So a puller need not read all definitions to know. Of an insight that was defined anew
    with the other kind both are there, and both are read: the other one from some seconds
    after it appears. Any fault of Kafka is outlived.

    Raises:
        MissingClientError: If it is a share group, and its client is not installed.
    """
    names = Topics(settings.topic_prefix)
    missing = {names.insight(insight_id, one): one for one in _CONSUMERS}
    async with asyncio.TaskGroup() as feeds:
        is_first = True
        while missing and not stop.is_set():
            found = await _wait_for_topics(
                settings, insight_id, missing.keys(), stop, until_some=is_first
            )
            for kind in map(missing.pop, found):
                feed = _CONSUMERS[kind](
                    settings, names.insight_subscription(insight_id, kind), claim_context
                )
                feeds.create_task(_consume(feed, insight_id, stop))
            is_first = False
            await wait_until_set(stop, _OTHER_KIND_POLL_S)


async def _consume(feed: _QueueConsumer, insight_id: str, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await feed.consume(stop)
        except (KafkaError, OSError, UnavailableError) as error:
            _log.warning("consumer.interrupted", insight_id=insight_id, error=repr(error))
            await wait_until_set(stop, _RETRY_S)


async def _wait_for_topics(
    settings: Settings,
    insight_id: str,
    wanted: Set[str],
    stop: asyncio.Event,
    *,
    until_some: bool,
) -> Set[str]:
    """Those of the topics that exist, once there is one if `until_some`; none if stopped."""
    while not stop.is_set():
        probe = clients.consumer(settings, client_id=f"puller.{insight_id}", group_id=None)
        try:
            async with clients.started(probe):
                while not stop.is_set():
                    # Only what exists is asked for by name: asking for another may create it.
                    existing: Set[str] = await clients.shield_until_answered(probe.topics())
                    found = wanted & existing
                    if found or not until_some:
                        return found
                    await wait_until_set(stop, _TOPIC_POLL_S)
        except (KafkaError, OSError) as error:
            _log.warning("consumer.interrupted", insight_id=insight_id, error=repr(error))
            await wait_until_set(stop, _RETRY_S)
    return set()
