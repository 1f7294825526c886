"""The scheduler's process: a Faust agent on `pop.ready`, and what runs beside it.

Faust gives membership of the group, assignments, records and commits. What it does not promise
is met here. An exception that leaves the agent's loop would acknowledge its record, so none
does. The table's topic exists beforehand, as Faust would create it with one replica. The table
is read when the first record of an assignment comes, before that record is handled.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from dataclasses import dataclass
from typing import Any, Final

import structlog

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.policy.ingress.usage import MemoryLoad
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.lag import LagProbe
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord
from pop_stream.scheduler.emitted_attempts import NewestReader
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.faust import client_internals
from pop_stream.scheduler.faust.app import faust_app
from pop_stream.scheduler.faust.table import FaustReadyTable, ReadToEnd
from pop_stream.scheduler.idle_reporter import IdleReporter
from pop_stream.scheduler.insight_registry import PartitionOwnership
from pop_stream.scheduler.metrics import RoundMetrics, SchedulerCollector
from pop_stream.scheduler.partition_processor import PartitionProcessor
from pop_stream.scheduler.stall_watchdog import StallWatchdog
from pop_stream.scheduler.ticker import Ticker
from pop_stream.scheduler.usage_reporter import UsageReporter
from pop_stream.settings import Settings
from pop_stream.telemetry.process import part_registry

TABLE: Final = "ready"
"""The Faust table's name, and the middle of its changelog topic's."""

_PEEKED_EVENTS: Final = 32
"""How many of the next events are searched for one of the same partition."""

_STOP_TIMEOUT_S: Final = 10.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerPorts:
    """What the scheduler reads from and writes to.

    Attributes:
        publisher: Of rounds, rows and all else; its own, idempotent, with acks=all. Faust's
            producer is serial, and its sends are not awaited.
        definitions: Customers and insights in force.
        probe: Reads offsets and lags.
        clock: For the instants in events.
        create_topic: Creates an insight's topic, or adds the partitions it lacks.
        read_skipped: Reads a partition of `pop.ready` beside Faust: partition, first offset,
            and the offset before which to stop.
        read_newest: Reads the newest records of insights' topics.
        read_to_end: Reads partitions of the table's changelog.
        partitions: How many `pop.ready` has.
        ownership: Which partitions are certainly this process's; the fence of the publisher
            asks the same object.
    """

    publisher: Publisher
    definitions: DefinitionSource
    probe: LagProbe
    clock: Clock
    create_topic: Callable[[Insight], Awaitable[None]]
    read_skipped: Callable[[int, int, int], AsyncIterator[ConsumedRecord]]
    read_newest: NewestReader
    read_to_end: ReadToEnd
    partitions: int
    ownership: PartitionOwnership


class Scheduler:
    """Runs the agent, the ticker, the usage reporter and the watchdog until asked to stop.

    Args:
        settings: Connection, timeouts and limits.
        ports: What it reads from and writes to.

    Attributes:
        registry: Of Prometheus: the scheduler's metrics.
    """

    def __init__(self, settings: Settings, ports: SchedulerPorts) -> None:
        self._topics = Topics(settings.topic_prefix)
        self._ownership = ports.ownership
        self._data = settings.scheduler_data
        self._drain_timeout_s = settings.session_timeout.total_seconds() / 2
        self._rows_seen = 0
        self._epoch = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        # An expulsion is reported at once: Faust revokes only when the record being handled is
        # done, and that record may wait until its partition is certainly owned.
        self._app = faust_app(
            settings,
            on_heartbeat=self._ownership.heartbeat_acknowledged,
            on_expelled=self._ownership.expelled,
        )
        self._table = self._make_table(ports)
        self.registry = part_registry()
        self._handler = self._make_handler(ports, RoundMetrics(self.registry))
        self._ticker = Ticker(
            self._handler,
            ports.probe,
            ports.publisher,
            self._topics,
            settings.lag_interval,
            ports.clock,
            is_stable=lambda: not self._app.rebalancing,
        )
        self._processor = self._make_processor(ports)
        self._usage_reporter = self._make_usage_reporter(settings, ports)
        self._idle_reporter = self._make_idle_reporter(ports)
        self._watchdog = self._make_watchdog(settings, ports)
        self.registry.register(
            SchedulerCollector(
                self._handler.insights, ports.clock, self._handler.limiting_cause
            )
        )
        self.registry.register(self._watchdog)
        self._attach_agent()

    def _make_table(self, ports: SchedulerPorts) -> FaustReadyTable:
        table = self._app.Table(
            TABLE, partitions=ports.partitions, key_type=bytes, value_type=bytes
        )
        return FaustReadyTable(table, ports.publisher, ports.read_to_end, self._ownership.owns)

    def _make_handler(self, ports: SchedulerPorts, metrics: RoundMetrics) -> ReadyEventHandler:
        return ReadyEventHandler(
            table=self._table,
            publisher=ports.publisher,
            definitions=ports.definitions,
            clock=ports.clock,
            topics=self._topics,
            create_topic=ports.create_topic,
            partitions=ports.partitions,
            owns=self._ownership.owns,
            read_newest=ports.read_newest,
            epoch=lambda: self._epoch,
            metrics=metrics,
        )

    def _make_processor(self, ports: SchedulerPorts) -> PartitionProcessor:
        ready, transport = self._topics.ready, self._app.transport
        return PartitionProcessor(
            self._handler,
            self._ticker,
            self._ownership,
            publisher=ports.publisher,
            clock=ports.clock,
            topics=self._topics,
            read_skipped=ports.read_skipped,
            recover=self._table.recover,
            end_offset=lambda partition: transport.end_offset(ready, partition),
        )

    def _make_idle_reporter(self, ports: SchedulerPorts) -> IdleReporter:
        return IdleReporter(
            self._handler,
            publisher=ports.publisher,
            definitions=ports.definitions,
            clock=ports.clock,
            topics=self._topics,
            partitions=ports.partitions,
        )

    def _make_usage_reporter(self, settings: Settings, ports: SchedulerPorts) -> UsageReporter:
        return UsageReporter(
            self._handler,
            publisher=ports.publisher,
            definitions=ports.definitions,
            clock=ports.clock,
            topics=self._topics,
            limit=MemoryLoad(settings.scheduler_max_agendas, settings.scheduler_max_bytes),
        )

    def _make_watchdog(self, settings: Settings, ports: SchedulerPorts) -> StallWatchdog:
        return StallWatchdog(
            ports.probe,
            self._topics,
            ports.clock,
            stall_timeout=settings.stall_timeout,
            partitions=lambda: self._ownership.partitions,
            is_suspended=self._is_suspended,
        )

    def _attach_agent(self) -> None:
        # One agent, one record at a time: with more, Faust commits past a record in flight.
        ready = self._app.topic(self._topics.ready, key_type=bytes, value_type=bytes)
        self._app.agent(ready, name="rounds", concurrency=1)(self._consume)
        self._app.on_partitions_assigned.connect(self._on_assigned)
        self._app.on_partitions_revoked.connect(self._on_revoked)

    @property
    def is_ready(self) -> bool:
        """Whether it is a member of its group, and has recovered what it was given."""
        return self._epoch > 0 and self._table.is_recovered

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until `stop` is set; called once.

        A scheduler that makes no progress ends the process at once, by `os._exit`.

        Raises:
            RuntimeError: If Faust or one of the tasks ended by itself; the process should end
                and be started again.
        """
        await self._start_faust()
        watching = asyncio.create_task(self._watchdog.run())
        tasks = {
            watching,
            asyncio.create_task(stop.wait()),
            asyncio.create_task(self._ticker.run()),
            asyncio.create_task(self._usage_reporter.run()),
            asyncio.create_task(self._idle_reporter.run()),
            asyncio.create_task(self._table.wait_failed()),
            asyncio.create_task(self._app.wait_until_stopped()),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Something that it needs has died. Faust's thread would keep the process alive.
            await self._end(tasks)
            raise
        is_requested = stop.is_set()
        if watching.done() and not is_requested:
            # Faust's stop may hang too, and its thread would keep the process alive.
            _log.error("scheduler.exited", exc_info=watching.exception())
            os._exit(os.EX_SOFTWARE)
        errors = await self._end(tasks)
        if not is_requested:
            cause = errors[0] if errors else self._app.crash_reason
            msg = f"the scheduler ended by itself: {type(cause).__name__}: {cause}"
            raise RuntimeError(msg)

    async def _end(self, tasks: Set[asyncio.Task[Any]]) -> list[Exception]:
        """End the tasks, give up all partitions, stop Faust; what the tasks died of."""
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [one for one in found if isinstance(one, Exception)]
        for error in errors:
            _log.error("scheduler.failed", exc_info=error)
        await self._release(self._ownership.partitions)
        await self._stop_faust()
        await self._table.close()
        return errors

    async def _start_faust(self) -> None:
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._app.finalize()
        await self._app.start()
        _log.info("scheduler.started", topic=self._topics.ready)

    async def _stop_faust(self) -> None:
        """Stop Faust, or end the process without it: a member that hangs holds up its group."""
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._app.stop()
        except TimeoutError:
            _log.error("scheduler.exited", reason="it did not stop")
            os._exit(os.EX_SOFTWARE)

    def _is_suspended(self) -> bool:
        """Whether a lack of commits is excused: records wait for Kafka, or rows keep coming."""
        if self._table.is_recovered:
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
        self._table.assign(partitions)
        self._processor.assign(partitions)
        self._ownership.assign(partitions)
        self._ticker.assign(partitions)

    async def _on_revoked(self, _: object, revoked: set[Any], **__: object) -> None:
        partitions = self._ready_partitions(revoked)
        self._ticker.revoke(partitions)
        await self._release(partitions)
        self._processor.revoke(partitions)

    async def _release(self, partitions: Set[int]) -> None:
        """Give up partitions, but first finish the record being handled and its rows.

        Otherwise the next owner would repeat its round. Faust hands on no record meanwhile, and
        the group waits. If the partitions may be lost already, or it takes longer than half a
        session, they are given up at once.
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
    """Whether one of the agent's next records is of this partition."""
    events = client_internals.next_events(stream, _PEEKED_EVENTS)
    return any(event.message.partition == partition for event in events)
