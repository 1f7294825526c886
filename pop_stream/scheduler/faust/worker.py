"""The Faust application: one agent on `pop.ready` that owns the ReadyAgenda table.

What Faust does not promise is met here: nothing may leave the agent's loop, for Faust would
acknowledge the event; the table's topic is created beforehand, for Faust would create it
with one replica; and the table, and a partition's backlog from it, is read on the first event,
for Faust takes its time over it, may not come to its end, and swallows errors.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from itertools import islice
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry

from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import UNREADABLE_RECORDS
from pop_stream.model.definitions import Insight
from pop_stream.policy.ingress.usage import MemoryLoad
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.lag import LagProbe
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord
from pop_stream.scheduler.emitted_attempts import NewestReader
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.faust.app import faust_app
from pop_stream.scheduler.faust.table import FaustReadyTable, ReadToEnd
from pop_stream.scheduler.metrics import SchedulerCollector
from pop_stream.scheduler.ownership import PartitionOwnership
from pop_stream.scheduler.partition_processor import PartitionProcessor
from pop_stream.scheduler.stall_watchdog import StallWatchdog
from pop_stream.scheduler.ticker import Ticker
from pop_stream.scheduler.usage_reporter import UsageReporter
from pop_stream.settings import Settings

TABLE: Final = "ready"

_LOOK_AHEAD: Final = 32

_STOP_TIMEOUT_S: Final = 10.0

_log = structlog.get_logger()


class Scheduler:
    """Runs the agent and the ticker until told to stop; `registry` holds its metrics.

    Args:
        settings: Where the cluster is, and how patient to be.
        publisher: For emission; ours, because Faust's is serial and does not await acks.
        definitions: Customers and insights in force.
        probe: For consumer lag.
        clock: For the instants in events.
        create_topic: Makes sure an insight's topic exists.
        read_skipped: Reads a partition of `pop.ready` beside Faust, from an offset to another.
        read_newest: Reads what is on insights' topics already.
        read_to_end: Reads partitions of the table's changelog.
        partitions: Of `pop.ready`.
        ownership: What is surely this worker's; the publisher's fence asks the same.
    """

    def __init__(  # noqa: PLR0913  # every port the scheduler needs, named once
        self,
        *,
        settings: Settings,
        publisher: Publisher,
        definitions: DefinitionSource,
        probe: LagProbe,
        clock: Clock,
        create_topic: Callable[[Insight], Awaitable[None]],
        read_skipped: Callable[[int, int, int], AsyncIterator[ConsumedRecord]],
        read_newest: NewestReader,
        read_to_end: ReadToEnd,
        partitions: int,
        ownership: PartitionOwnership,
    ) -> None:
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._clock = clock
        self._ownership = ownership
        # Faust revokes only once the record under way is done, and that one waits for the hold.
        self._app = faust_app(
            settings,
            on_heartbeat=self._ownership.heartbeat_acknowledged,
            on_expelled=self._ownership.expelled,
        )
        self._data = settings.scheduler_data
        self._table = FaustReadyTable(
            self._app.Table(
                TABLE,
                partitions=partitions,
                key_type=bytes,
                value_type=bytes,
            ),
            publisher,
            read_to_end,
            self._ownership.owns,
        )
        self._handler = ReadyEventHandler(
            table=self._table,
            publisher=publisher,
            definitions=definitions,
            clock=clock,
            topics=self._topics,
            create_topic=create_topic,
            partitions=partitions,
            owns=self._ownership.owns,
            read_newest=read_newest,
            epoch=lambda: self._epoch,
        )
        self._ticker = Ticker(
            self._handler,
            probe,
            publisher,
            self._topics,
            settings.lag_interval,
            clock,
            is_settled=lambda: not self._app.rebalancing,
        )
        self._processor = PartitionProcessor(
            self._handler,
            self._ticker,
            self._ownership,
            publisher=publisher,
            clock=clock,
            topics=self._topics,
            read_skipped=read_skipped,
            recover=self._table.recover,
            end_offset=lambda one: self._app.transport.end_offset(self._topics.ready, one),
        )
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._drain_timeout_s = settings.session_timeout.total_seconds() / 2
        self._usage_reporter = UsageReporter(
            self._handler,
            publisher=publisher,
            definitions=definitions,
            clock=clock,
            topics=self._topics,
            limit=MemoryLoad(settings.scheduler_max_agendas, settings.scheduler_max_bytes),
        )
        self._rows_seen = 0
        self._epoch = 0
        self._watchdog = StallWatchdog(
            probe,
            self._topics,
            clock,
            stall_timeout=settings.stall_timeout,
            partitions=lambda: self._ownership.partitions,
            is_suspended=self._is_suspended,
        )
        self.registry = CollectorRegistry()
        self.registry.register(SchedulerCollector(self._handler.schedulers, clock))
        self.registry.register(UNREADABLE_RECORDS)
        ready = self._app.topic(self._topics.ready, key_type=bytes, value_type=bytes)
        self._app.agent(ready, name="rounds", concurrency=1)(self._consume)
        self._app.on_partitions_assigned.connect(self._on_assigned)
        self._app.on_partitions_revoked.connect(self._on_revoked)

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until `stop`; one that stands still ends the process at once.

        Raises:
            RuntimeError: If Faust gave up; the process should end and be started again.
        """
        self._data.mkdir(parents=True, exist_ok=True)
        self._app.finalize()
        await self._app.start()
        _log.info("scheduler.started", topic=self._topics.ready)
        stopping = asyncio.create_task(stop.wait())
        watching = asyncio.create_task(self._watchdog.run())
        tasks = {
            stopping,
            watching,
            asyncio.create_task(self._ticker.run()),
            asyncio.create_task(self._usage_reporter.run()),
            asyncio.create_task(self._app.wait_until_stopped()),
        }
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        is_requested = stop.is_set()
        if watching.done() and not is_requested:
            # Faust may hang in its stop too, and its thread would keep the process alive.
            _log.error("scheduler.exited", exc_info=watching.exception())
            os._exit(os.EX_SOFTWARE)
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [one for one in found if isinstance(one, Exception)]
        for error in errors:
            _log.error("scheduler.failed", exc_info=error)
        await self._release(self._ownership.partitions)
        await self._stop_faust()
        if not is_requested:
            cause = errors[0] if errors else self._app.crash_reason
            msg = f"the scheduler ended by itself: {cause!r}"
            raise RuntimeError(msg)

    async def _stop_faust(self) -> None:
        """Have Faust stop, or the process end without it: until then the group waits for us."""
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._app.stop()
        except TimeoutError:
            _log.error("scheduler.exited", reason="it did not stop")
            os._exit(os.EX_SOFTWARE)

    def _is_suspended(self) -> bool:
        """Whether work waits for Kafka, or for the table, which is being read and gets on."""
        if self._table.is_complete:
            return any(self._ownership.owns(one) for one in self._processor.postponed)
        before, self._rows_seen = self._rows_seen, self._table.rows_recovered
        return self._rows_seen != before

    async def _consume(self, stream: Any) -> None:  # noqa: ANN401  # a Faust stream
        async for event in stream.events():
            message = event.message
            self._is_idle.clear()
            try:
                await self._processor.process(
                    message, has_next=_has_next(stream, message.partition)
                )
            finally:
                self._is_idle.set()

    async def _on_assigned(self, _: object, assigned: set[Any], **__: object) -> None:
        partitions = self._ready_partitions(assigned)
        self._epoch = self._app.transport.generation()
        self._table.settle(partitions)
        self._processor.assign(partitions)
        self._ownership.assign(partitions)
        self._ticker.assign(partitions)

    async def _on_revoked(self, _: object, revoked: set[Any], **__: object) -> None:
        partitions = self._ready_partitions(revoked)
        self._ticker.revoke(partitions)
        await self._release(partitions)
        self._processor.revoke(partitions)

    async def _release(self, partitions: Set[int]) -> None:
        """Give partitions up once the record under way is done, or its round would be repeated.

        Faust hands on no other one meanwhile, and the group waits.
        """
        if all(self._ownership.owns(one) for one in partitions):
            try:
                async with asyncio.timeout(self._drain_timeout_s):
                    await self._is_idle.wait()
                    await self._table.wait_durable()
            except TimeoutError:
                _log.warning("round.abandoned_on_revoke", partitions=sorted(partitions))
        self._ownership.revoke(partitions)

    def _ready_partitions(self, topic_partitions: set[Any]) -> set[int]:
        return {tp.partition for tp in topic_partitions if tp.topic == self._topics.ready}


def _has_next(stream: Any, partition: int) -> bool:  # noqa: ANN401  # a Faust stream
    """Whether another record of the partition is among the next that the agent will see."""
    waiting = islice(stream.channel.queue._queue, _LOOK_AHEAD)  # noqa: SLF001  # no way to peek
    return any(event.message.partition == partition for event in waiting)
