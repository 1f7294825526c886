"""Consumes the topic of one insight as a member of its share group, record by record."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from pop_stream.clock import wait_until_set
from pop_stream.kafka.share_consumer import ShareGroupConsumer
from pop_stream.kafka.topics import InsightSubscription
from pop_stream.ports.records import ConsumedRecord
from pop_stream.puller.claiming.pipeline import ClaimContext
from pop_stream.settings import Settings

_POLL_S: Final = 0.5
_SLOT_S: Final = 5.0
_IMMEDIATE_S: Final = 0.02


class ShareInsightConsumer:
    """What `InsightConsumer` is for a consumer group, for a share group.

    It takes a record only while a slot is free, claims it, acknowledges it once Kafka has the
    claim, and then starts the attempt. So it keeps no record from others that it cannot run,
    and if it dies before, the record goes to another member.

    Args:
        settings: Where the cluster is.
        queue: What to read, and as which group.
        claim_context: Shared with the puller's other consumers.
    """

    def __init__(
        self, settings: Settings, queue: InsightSubscription, claim_context: ClaimContext
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._claim_context = claim_context

    async def consume(self, stop: asyncio.Event) -> None:
        """Take and claim records until `stop`, then leave the group. The topic must exist.

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
        """Take a record if one comes while a slot is free, and start its attempt."""
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
        # Another consumer of this puller may have taken the slot; the record may wait a little.
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
                    # The next member to get the records claims them, or their leases end.
                    self._claim_context.claimer.abandon(claimed.attempts)
            finally:
                self._claim_context.claimer.release(claimed.attempts)
        finally:
            capacity.release_slots(slots - started)
