"""Takes an insight's agendas as a member of its share group, one by one, for free runners."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from aiokafka import ConsumerRecord

from pop_stream import faults
from pop_stream.bus.share_member import ShareGroupConsumer
from pop_stream.bus.topics import InsightSubscription
from pop_stream.clock import wait_until_set
from pop_stream.pullers.pipeline import ClaimContext
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
        awaited = capacity.idle if monotonic() - began_s > _IMMEDIATE_S else 0
        # Another feed of this puller may have been quicker; the record may wait a little.
        await self._has_slot(_SLOT_S)
        slots = 0 if stop.is_set() else capacity.take(len(records))
        await self._start(member, records, slots, awaited)

    async def _has_slot(self, within_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._claim_context.capacity.some()
                return True
        return False

    async def _start(
        self,
        member: ShareGroupConsumer,
        records: Sequence[ConsumerRecord],
        slots: int,
        awaited: int,
    ) -> None:
        capacity, taken_s = self._claim_context.capacity, monotonic()
        ours, others = records[:slots], records[slots:]
        started = 0
        try:
            claimed = await self._claim_context.claimer.claim(
                ours, awaited=awaited, idle=self._claim_context.idle
            )
            try:
                if await member.acknowledge(ours, released=others):
                    faults.crash_point("puller.committed")
                    capacity.note_claim(monotonic() - taken_s)
                    for emitted in claimed.fresh:
                        self._claim_context.running.start(emitted, claimed_s=taken_s)
                        started += 1
                else:
                    # Whoever is given the records claims them, or the lease brings them back.
                    self._claim_context.claimer.give_up(claimed.fresh)
            finally:
                self._claim_context.claimer.release(claimed.fresh)
        finally:
            capacity.give_back(slots - started)
