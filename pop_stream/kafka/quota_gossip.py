"""A door's place on `pop.quota-usage`: hears the schedulers and the other doors, and tells them."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Self

import structlog

from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import checked_value, decode_usage, encode
from pop_stream.model.events.quota import IngressUsage
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings

GOSSIP_INTERVAL_S: Final = 0.25
"""Between two statements; so much later the others know."""

_CATCH_UP_TIMEOUT_S: Final = 5.0

_log = structlog.get_logger()


class QuotaGossip:
    """Keeps a door informed, and others of it, while it is entered.

    Args:
        settings: Where the cluster is.
        publisher: For statements; open for as long as this object is.
        door: Whose place it is.
        now_s: The clock of the door.
        since: What was told before this instant is not heard any more.

    Attributes:
        door: The same.
    """

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        door: QuotaLedger,
        *,
        now_s: Callable[[], float],
        since: datetime,
    ) -> None:
        self._topic = Topics(settings.topic_prefix).quota_usage
        self._publisher = publisher
        self.door = door
        self._now_s = now_s
        self._follower = TopicFollower(
            settings, self._topic, client_id="counts", hear=self._on_record, since=since
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._follower.run()),
            asyncio.create_task(self._publish_usage()),
        ]
        await self.catch_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def catch_up(self) -> None:
        """Wait until all that was told before now is heard; goes on after seconds without."""
        try:
            async with asyncio.timeout(_CATCH_UP_TIMEOUT_S):
                await self._follower.catch_up()
        except TimeoutError:
            _log.warning("quota_usage.not_caught_up", topic=self._topic)

    async def begin(self, ends: Mapping[int, int]) -> None:
        """Tell that submissions up to these offsets are begun; returns once Kafka has it."""
        await publish_until_acknowledged(self._publisher, [self._record(self.door.begin(ends))])

    async def _publish_usage(self) -> None:
        while True:
            await asyncio.sleep(GOSSIP_INTERVAL_S)
            records = [self._record(one) for one in self.door.drain_reports(self._now_s())]
            if records:
                await publish_until_acknowledged(
                    self._publisher, records
                )  # counts are told once

    def _record(self, report: IngressUsage) -> Record:
        return Record(self._topic, report.ingress_id.encode(), encode(report))

    def _on_record(self, record: ConsumedRecord) -> None:
        try:
            event = decode_usage(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
        else:
            self.door.apply(event, now_s=self._now_s())
