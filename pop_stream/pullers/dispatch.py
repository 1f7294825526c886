"""Takes agendas for workers that pull over HTTP, and hands them to the process they asked.

The processes of the API share the partitions of `pop.pulls`, so of each insight one of them is
the dispatcher. It alone joins the insight's group, for the callers of all: were each process
a member, a caller could wait at one while the next agenda lies in a partition of another.
"""

import asyncio
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from pop_stream.bus import clients
from pop_stream.bus.publisher import publish_until_acknowledged
from pop_stream.bus.share_member import MissingClientError
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import (
    AgendaHanded,
    EmittedAgenda,
    PullRefused,
    PullReturned,
    PullWanted,
    decode_pull,
    encode,
    value_of,
)
from pop_stream.core.pulls.adrift import Adrift
from pop_stream.core.pulls.demand import Demand, returned
from pop_stream.core.values.ids import HTTP_PULLER
from pop_stream.ports.clock import Clock
from pop_stream.ports.wire import Publisher, Record
from pop_stream.pullers.claims import Claimer
from pop_stream.pullers.lease import LeaseKeeper
from pop_stream.pullers.outbox import Outbox, Told
from pop_stream.pullers.pipeline import Intake
from pop_stream.pullers.reporter import Reporter
from pop_stream.pullers.supply import supply
from pop_stream.pullers.window import AttemptWindow
from pop_stream.settings import Settings

LINGER_S: Final = 15.0
"""A dispatcher stays in an insight's group for so long after the last caller: joining takes a
rebalance, and its partitions wait for callers meanwhile."""

_POLL_MS: Final = 200
_REST_MS: Final = 5_000
_RETRY_S: Final = 1.0

_log = structlog.get_logger()


class _Slots:
    """As many as there are callers who wait; see `pipeline.Slots`."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._held = 0
        self._any = asyncio.Event()

    @property
    def free(self) -> int:
        return max(0, self._demand.room - self._held)

    @property
    def idle(self) -> int:
        return self.free

    async def some(self) -> None:
        while not self.free:
            self._any.clear()
            await self._any.wait()

    def take(self, most: int) -> int:
        taken = min(most, self.free)
        self._held += taken
        return taken

    def give_back(self, count: int = 1) -> None:
        self._held -= count
        self.look_again()

    def note_claim(self, seconds: float) -> None:
        """Callers wait anyway; nothing is claimed ahead of them."""

    def look_again(self) -> None:
        self._any.set()


@dataclass(slots=True)
class _Counter:
    """Where the agendas of one insight are handed out."""

    demand: Demand
    slots: _Slots
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    wanted_s: float = 0.0
    unserved: str = ""


class Dispatcher:
    """One per process of the API.

    Args:
        settings: Where the cluster is.
        publisher: For claims and handouts.
        clock: For the instants in them.

    Attributes:
        adrift: What counters that are closed have left.
    """

    def __init__(self, settings: Settings, publisher: Publisher, clock: Clock) -> None:
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._claimer = Claimer(
            publisher, self._topics, clock, puller_id=HTTP_PULLER, window=AttemptWindow()
        )
        self._reporter = Reporter(publisher, self._topics.agenda_events)
        # Once handed out, an agenda is its worker's to keep alive.
        self._leases = LeaseKeeper(
            (),
            self._claimer,
            self._reporter,
            clock,
            puller_id=HTTP_PULLER,
            heartbeat=settings.heartbeat,
            news=self._claimer.news,
        )
        self._counters: dict[str, _Counter] = {}
        self.adrift = Adrift()
        self._outbox = Outbox()

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
        """Leave all insights: whoever owns the partitions next will hear who wants what."""
        self.adrift.unsettle()
        for counter in self._counters.values():
            counter.stop.set()
            self.adrift.add(counter.demand.take_all_returned())
        self._counters.clear()

    async def _consume(self, feeds: asyncio.TaskGroup) -> None:
        consumer = clients.consumer(
            self._settings,
            client_id="dispatcher",
            group_id=self._topics.group("pulls"),
            # Nothing is committed: what was wanted earlier is wanted no more, or said again.
            auto_offset_reset="latest",
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        )
        async with clients.started(consumer):
            while self._topics.pulls not in await clients.undisturbed(consumer.topics()):  # noqa: ASYNC110  # no event
                await asyncio.sleep(_RETRY_S)
            consumer.subscribe([self._topics.pulls], listener=_Revocation(self))
            while True:
                await self._hear(consumer, feeds)
                self._tidy(monotonic())

    async def _hear(self, consumer: AIOKafkaConsumer, feeds: asyncio.TaskGroup) -> None:
        # Who wants nothing need not be looked after in between.
        rest_ms = _POLL_MS if self._counters or self.adrift.has_some else _REST_MS
        fetched = await consumer.getmany(timeout_ms=rest_ms)
        for record in (one for records in fetched.values() for one in records):
            told = _decoded(record)
            if told is None:
                continue
            counter = self._counters.get(told.insight_id) or self._open(told.insight_id, feeds)
            if isinstance(told, PullWanted):
                counter.demand.hear(told, monotonic())
                counter.wanted_s = monotonic() if told.wanted else counter.wanted_s
                if told.wanted and counter.unserved:
                    self._refuse(told.insight_id, counter.unserved)
            else:
                counter.demand.put_back(told.emitted, monotonic())
            while (emitted := counter.demand.take_returned()) is not None:
                self._hand(counter, emitted)
            counter.slots.look_again()

    def _open(self, insight_id: str, feeds: asyncio.TaskGroup) -> _Counter:
        # A name of its own: counts of an earlier counter are none of this one.
        demand = Demand(secrets.token_hex(6))
        counter = _Counter(demand, _Slots(demand), wanted_s=monotonic())
        self._counters[insight_id] = counter
        starter = _Starter(self, counter)
        intake = Intake(self._claimer, starter, self._outbox, counter.slots)
        feeds.create_task(self._supply(insight_id, intake, counter))
        _log.info("counter.opened", insight_id=insight_id)
        return counter

    async def _supply(self, insight_id: str, intake: Intake, counter: _Counter) -> None:
        try:
            await supply(self._settings, insight_id, intake, counter.stop)
        except* MissingClientError as missing:
            # The callers of other insights are served all the same.
            counter.unserved = f"no process of the API can serve it: {missing.exceptions[0]}"
            _log.error("counter.unserved", insight_id=insight_id, reason=counter.unserved)
            self._refuse(insight_id, counter.unserved)

    def _refuse(self, insight_id: str, reason: str) -> None:
        self._outbox.put(PullRefused(insight_id=insight_id, reason=reason))

    def _tidy(self, now_s: float) -> None:
        for insight_id, counter in [*self._counters.items()]:
            counter.demand.forget_silent(now_s)
            if now_s - counter.wanted_s > LINGER_S and not counter.demand.has_returned:
                counter.stop.set()
                del self._counters[insight_id]
                _log.info("counter.closed", insight_id=insight_id)
        for returning in self.adrift.take_due(now_s):
            self._outbox.put(returning)

    def start(self, counter: _Counter, emitted: EmittedAgenda) -> None:
        """Hand out an agenda whose claim is committed."""
        counter.slots.give_back()
        self._hand(counter, emitted)

    def _hand(self, counter: _Counter, emitted: EmittedAgenda) -> None:
        api_id = counter.demand.next_process()
        if api_id is None:
            if counter.stop.is_set():
                self.adrift.add([returned(emitted, monotonic())])
            else:
                counter.demand.put_back(emitted, monotonic())
            return
        by = counter.demand.dispatcher_id
        self._outbox.put(AgendaHanded(api_id=api_id, dispatcher_id=by, emitted=emitted))

    async def _publish(self) -> NoReturn:
        while True:
            batch = await self._outbox.take()
            records = [self._record(one) for one in batch]
            await publish_until_acknowledged(self._publisher, records)
            self._outbox.forget(batch)

    def _record(self, told: Told) -> Record:
        topics = self._topics
        topic = topics.pulls if isinstance(told, PullReturned) else topics.handouts
        key = told.emitted.agenda_id if isinstance(told, AgendaHanded) else told.insight_id
        return Record(topic, key.encode(), encode(told))


@dataclass(frozen=True, slots=True)
class _Starter:
    """What a feed starts agendas with; see `pipeline.Starter`."""

    dispatcher: Dispatcher
    counter: _Counter

    def start(self, emitted: EmittedAgenda, *, claimed_s: float) -> None:  # the protocol's
        self.dispatcher.start(self.counter, emitted)


class _Revocation(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped here
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before the group is joined again; those who want say so every second."""
        if revoked:
            self._dispatcher.close_all()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called once the group has settled."""
        self._dispatcher.adrift.settle(monotonic())
        _log.info("dispatcher.assigned", partitions=sorted(tp.partition for tp in assigned))


def _decoded(record: ConsumerRecord) -> PullWanted | PullReturned | None:
    try:
        return decode_pull(value_of(record))
    except UnreadableRecordError as error:
        _log.warning("pull.unreadable", offset=record.offset, reason=str(error))
        return None
