"""The dispatcher: claims agendas for HTTP workers, and delivers them to API processes."""

import asyncio
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NoReturn

import structlog

from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaConsumer, RebalanceListener, RoundRobinAssignor
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.hardening.cancellation import shield_until_answered
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.share_consumer import MissingClientError
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_poll_demand, encode
from pop_stream.model.events.pull import (
    AgendaDelivered,
    DeliveryEvent,
    DeliveryReturned,
    PollRejected,
    PollWanted,
)
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.ids import HTTP_PULLER
from pop_stream.policy.http_pull import OrphanedDeliveries, PollDemand, returned_delivery
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.puller.claiming.claims import AttemptWindow, Claimer
from pop_stream.puller.claiming.pipeline import ClaimContext
from pop_stream.puller.consuming.subscription import run_subscription
from pop_stream.puller.reporting.lease_renewer import LeaseRenewer
from pop_stream.puller.reporting.reporter import Reporter
from pop_stream.settings import Settings

MAX_PENDING_BYTES: Final = 32 * 1024 * 1024
"""Of agendas that Kafka has not acknowledged; from there on none is claimed. Callers ask for a
number of agendas, each of which may have 300 bytes or nearly a megabyte."""

DispatchEvent = DeliveryEvent | DeliveryReturned


class DispatchOutbox:
    """Events that Kafka has not acknowledged, counted in bytes; one reader."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[DispatchEvent] = asyncio.Queue()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further agenda should be claimed; see `pipeline.Outlet`."""
        return self._bytes >= MAX_PENDING_BYTES

    def put(self, event: DispatchEvent) -> None:
        """Add an event; always accepted, since what is claimed must be delivered."""
        self._waiting.put_nowait(event)
        self._bytes += _size(event)

    async def take(self) -> list[DispatchEvent]:
        """All that wait, once there is one."""
        batch = [await self._waiting.get()]
        while not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        return batch

    def acknowledge(self, batch: list[DispatchEvent]) -> None:
        """These are in Kafka: they count no more."""
        self._bytes -= sum(map(_size, batch))


def _size(event: DispatchEvent) -> int:
    return 0 if isinstance(event, PollRejected) else len(event.emitted.agenda)


LINGER_S: Final = 15.0
"""A dispatcher stays in an insight's group for so long after the last caller: joining takes a
rebalance, during which callers wait."""

_POLL_MS: Final = 200
_IDLE_POLL_MS: Final = 5_000
_RETRY_S: Final = 1.0

_log = structlog.get_logger()


class _DemandSlots:
    """As many slots as agendas are wanted and not claimed; see `pipeline.SlotPool`."""

    def __init__(self, demand: PollDemand) -> None:
        self._demand = demand
        self._held = 0
        self._is_free = asyncio.Event()

    @property
    def free(self) -> int:
        return max(0, self._demand.capacity - self._held)

    @property
    def idle_runners(self) -> int:
        return self.free

    async def wait_free(self) -> None:
        while not self.free:
            self._is_free.clear()
            await self._is_free.wait()

    def acquire(self, most: int) -> int:
        taken = min(most, self.free)
        self._held += taken
        return taken

    def release_slots(self, count: int = 1) -> None:
        self._held -= count
        self.wake()

    def note_claim(self, seconds: float) -> None:
        """Nothing: callers wait anyway, so none is claimed ahead of them."""

    def wake(self) -> None:
        self._is_free.set()


@dataclass(slots=True)
class _InsightDispatch:
    """One insight whose agendas this process hands out.

    Attributes:
        demanded_s: When a caller last wanted any, on the monotonic clock.
        unserved: Why its agendas cannot be claimed; empty if they can.
    """

    demand: PollDemand
    slots: _DemandSlots
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    demanded_s: float = 0.0
    unserved: str = ""


class Dispatcher:
    """One per process of the API.

    Args:
        settings: Where the cluster is.
        publisher: For claims and deliveries.
        clock: For the instants in them.

    Attributes:
        orphaned: What closed dispatches have claimed and not delivered.
    """

    def __init__(self, settings: Settings, publisher: Publisher, clock: Clock) -> None:
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._claimer = Claimer(
            publisher, self._topics, clock, puller_id=HTTP_PULLER, window=AttemptWindow()
        )
        self._reporter = Reporter(publisher, self._topics.agenda_events)
        # Once an agenda is delivered, its worker renews the lease.
        self._leases = LeaseRenewer(
            (),
            self._claimer,
            self._reporter,
            clock,
            puller_id=HTTP_PULLER,
            heartbeat=settings.heartbeat,
            claimed_event=self._claimer.claimed_event,
        )
        self._dispatches: dict[str, _InsightDispatch] = {}
        self.orphaned = OrphanedDeliveries()
        self._outbox = DispatchOutbox()

    async def run(self) -> NoReturn:
        """Dispatch until cancelled; outlives any fault of Kafka."""
        async with asyncio.TaskGroup() as feeds:
            feeds.create_task(self._publish())
            feeds.create_task(self._reporter.run())
            feeds.create_task(self._leases.run())
            while True:
                try:
                    await self._consume(feeds)
                except (KafkaError, OSError) as error:
                    _log.warning("dispatcher.interrupted", error=repr(error))
                    self.close_all()
                    await asyncio.sleep(_RETRY_S)

    def close_all(self) -> None:
        """Leave all insights: the partitions' next owners read who wants what."""
        self.orphaned.rebalance_started()
        for dispatch in self._dispatches.values():
            dispatch.stop.set()
            self.orphaned.add(dispatch.demand.take_all_returned())
        self._dispatches.clear()

    async def _consume(self, feeds: asyncio.TaskGroup) -> None:
        consumer = clients.consumer(
            self._settings,
            client_id="dispatcher",
            group_id=self._topics.group("pulls"),
            # Nothing is committed: what is still wanted is published again every second.
            auto_offset_reset="latest",
            partition_assignment_strategy=(RoundRobinAssignor,),
        )
        async with consumer:
            while not await _exists(consumer, self._topics.poll_demand):  # noqa: ASYNC110  # no event
                await asyncio.sleep(_RETRY_S)
            consumer.subscribe(
                [self._topics.poll_demand], listener=_DispatchRebalanceListener(self)
            )
            while True:
                await self._poll(consumer, feeds)
                self._expire(monotonic())

    async def _poll(self, consumer: KafkaConsumer, feeds: asyncio.TaskGroup) -> None:
        # Without demand nothing expires between two records.
        poll_ms = _POLL_MS if self._dispatches or self.orphaned.has_any else _IDLE_POLL_MS
        fetched = await consumer.getmany(timeout_ms=poll_ms)
        for record in (one for records in fetched.values() for one in records):
            event = _decoded(record)
            if event is None:
                continue
            dispatch = self._dispatches.get(event.insight_id) or self._open(
                event.insight_id, feeds
            )
            if isinstance(event, PollWanted):
                dispatch.demand.update(event, monotonic())
                dispatch.demanded_s = monotonic() if event.wanted else dispatch.demanded_s
                if event.wanted and dispatch.unserved:
                    self._refuse(event.insight_id, dispatch.unserved)
            else:
                dispatch.demand.put_back(event.emitted, monotonic())
            while (emitted := dispatch.demand.take_returned()) is not None:
                self._deliver(dispatch, emitted)
            dispatch.slots.wake()

    def _open(self, insight_id: str, feeds: asyncio.TaskGroup) -> _InsightDispatch:
        # An id of its own, so that processes do not count for it what an earlier one sent.
        demand = PollDemand(secrets.token_hex(6))
        dispatch = _InsightDispatch(demand, _DemandSlots(demand), demanded_s=monotonic())
        self._dispatches[insight_id] = dispatch
        starter = _DispatchStarter(self, dispatch)
        claim_context = ClaimContext(self._claimer, starter, self._outbox, dispatch.slots)
        feeds.create_task(self._run_subscription(insight_id, claim_context, dispatch))
        _log.info("dispatch.opened", insight_id=insight_id)
        return dispatch

    async def _run_subscription(
        self, insight_id: str, claim_context: ClaimContext, dispatch: _InsightDispatch
    ) -> None:
        try:
            await run_subscription(self._settings, insight_id, claim_context, dispatch.stop)
        except* MissingClientError as missing:
            # The callers of other insights are served all the same.
            dispatch.unserved = f"no process of the API can serve it: {missing.exceptions[0]}"
            _log.error("dispatch.unserved", insight_id=insight_id, reason=dispatch.unserved)
            self._refuse(insight_id, dispatch.unserved)

    def _refuse(self, insight_id: str, reason: str) -> None:
        self._outbox.put(PollRejected(insight_id=insight_id, reason=reason))

    def _expire(self, now_s: float) -> None:
        for insight_id, dispatch in [*self._dispatches.items()]:
            dispatch.demand.expire_silent(now_s)
            if now_s - dispatch.demanded_s > LINGER_S and not dispatch.demand.has_returned:
                dispatch.stop.set()
                del self._dispatches[insight_id]
                _log.info("dispatch.closed", insight_id=insight_id)
        for returning in self.orphaned.pop_due(now_s):
            self._outbox.put(returning)

    def start(self, dispatch: _InsightDispatch, emitted: EmittedAgenda) -> None:
        """Hand out an agenda whose claim is committed."""
        dispatch.slots.release_slots()
        self._deliver(dispatch, emitted)

    def _deliver(self, dispatch: _InsightDispatch, emitted: EmittedAgenda) -> None:
        api_id = dispatch.demand.next_process()
        if api_id is None:
            if dispatch.stop.is_set():
                self.orphaned.add([returned_delivery(emitted, monotonic())])
            else:
                dispatch.demand.put_back(emitted, monotonic())
            return
        by = dispatch.demand.dispatcher_id
        self._outbox.put(AgendaDelivered(api_id=api_id, dispatcher_id=by, emitted=emitted))

    async def _publish(self) -> NoReturn:
        while True:
            batch = await self._outbox.take()
            records = [self._record(one) for one in batch]
            await publish_until_acknowledged(self._publisher, records)
            self._outbox.acknowledge(batch)

    def _record(self, event: DispatchEvent) -> Record:
        topics = self._topics
        topic = topics.poll_demand if isinstance(event, DeliveryReturned) else topics.deliveries
        key = (
            event.emitted.agenda_id if isinstance(event, AgendaDelivered) else event.insight_id
        )
        return Record(topic, key.encode(), encode(event))


@dataclass(frozen=True, slots=True)
class _DispatchStarter:
    """What a consumer starts attempts with; see `pipeline.AttemptStarter`."""

    dispatcher: Dispatcher
    dispatch: _InsightDispatch

    def start(self, emitted: EmittedAgenda, *, claimed_s: float) -> None:  # the protocol's
        self.dispatcher.start(self.dispatch, emitted)


class _DispatchRebalanceListener(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped here
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before the group is joined again; demand is published again every second."""
        if revoked:
            self._dispatcher.close_all()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called once the group has settled."""
        self._dispatcher.orphaned.rebalance_ended(monotonic())
        _log.info("dispatcher.assigned", partitions=sorted(tp.partition for tp in assigned))


async def _exists(consumer: KafkaConsumer, topic: str) -> bool:
    existing: Collection[str] = await shield_until_answered(consumer.topics())
    return topic in existing


def _decoded(record: ConsumedRecord) -> PollWanted | DeliveryReturned | None:
    try:
        return decode_poll_demand(checked_value(record))
    except UnreadableRecordError as error:
        skip_unreadable(record, error)
        return None
