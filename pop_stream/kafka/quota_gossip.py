"""Exchanges quota usage with schedulers and the other entry points, over `pop.quota-usage`."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final, Self

import structlog

from pop_stream.background import ExitReason, background
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_usage, encode
from pop_stream.model.events.quota import IngressUsage
from pop_stream.model.events.schema_version import checked_value
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings

GOSSIP_INTERVAL_S: Final = 0.25
"""Between two reports of this process; by so much the others' view of it is late."""

_CATCH_UP_TIMEOUT_S: Final = 5.0

_log = structlog.get_logger()


class QuotaGossip:
    """Keeps the quota ledger of one process up to date, and reports it, while entered.

    Reports of others are applied as they come; what the ledger has to report is published every
    quarter of a second. Counts are absolute, so a report that is lost is repaired by the next.

    Args:
        settings: Where the cluster is.
        publisher: For the reports; open for as long as this object is.
        quota_ledger: Of this process.
        now_s: The ledger's clock, in seconds.
        since: Reports from before this instant are not read.

    Attributes:
        quota_ledger: The same.
    """

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        quota_ledger: QuotaLedger,
        *,
        now_s: Callable[[], float],
        since: datetime,
    ) -> None:
        self._topic = Topics(settings.topic_prefix).quota_usage
        self._publisher = publisher
        self.quota_ledger = quota_ledger
        self._now_s = now_s
        self._follower = TopicFollower(
            settings,
            self._topic,
            client_id="quota-usage",
            on_record=self._on_record,
            since=since,
        )
        self._background = AsyncExitStack()

    async def __aenter__(self) -> Self:
        gossip = background(
            quota_reader=self._follower.run(), quota_reporter=self._publish_usage()
        )
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(gossip)
            await self.catch_up()
            self._background = opening.pop_all()
        return self

    async def __aexit__(self, *reason: *ExitReason) -> None:
        await self._background.__aexit__(*reason)

    async def catch_up(self) -> None:
        """Wait until all reports from before the call are applied, for seconds at most.

        After them the ledger goes on with what it has: its quotas are then less exact.
        """
        try:
            async with asyncio.timeout(_CATCH_UP_TIMEOUT_S):
                await self._follower.catch_up()
        except TimeoutError:
            _log.warning("quota_usage.not_caught_up", topic=self._topic)

    async def begin(self, ends: Mapping[int, int]) -> None:
        """Report that submissions up to these offsets are begun; returns once Kafka has it."""
        await publish_until_acknowledged(
            self._publisher, [self._record(self.quota_ledger.begin(ends))]
        )

    async def _publish_usage(self) -> None:
        while True:
            await asyncio.sleep(GOSSIP_INTERVAL_S)
            records = [
                self._record(one) for one in self.quota_ledger.drain_reports(self._now_s())
            ]
            if records:
                # The ledger hands out each report once, so it must not be lost here.
                await publish_until_acknowledged(self._publisher, records)

    def _record(self, report: IngressUsage) -> Record:
        return Record(self._topic, report.ingress_id.encode(), encode(report))

    def _on_record(self, record: ConsumedRecord) -> None:
        try:
            event = decode_usage(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
        else:
            self.quota_ledger.apply(event, now_s=self._now_s())
