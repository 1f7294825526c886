"""Agendas for HTTP workers: demand on `pop.poll-demand`, agendas on `pop.deliveries`.

A process of the API publishes how many agendas its callers wait for. A dispatcher, the owner of
the insight's partition of `pop.poll-demand`, claims that many and addresses each to a process.
Every process reads all deliveries and takes its own; one whose caller has gone meanwhile is
given to another caller here, or returned to the dispatcher. Whatever is lost on the way comes
back when its lease ends.
"""

import asyncio
import secrets
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, NoReturn, Self

import structlog

from pop_stream.background import ExitReason, background
from pop_stream.kafka.attempt_stops import follow_controls
from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnavailableError, UnreadableRecordError, UnservedError
from pop_stream.model.events.codec import decode_delivery, encode
from pop_stream.model.events.lifecycle import StopReason
from pop_stream.model.events.pull import (
    AgendaDelivered,
    DeliveryReturned,
    PollRejected,
    PollWanted,
)
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.events.schema_version import checked_value
from pop_stream.policy.attempt_stops import StopRegistry
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings

_DEMAND_INTERVAL_S: Final = 1.0
_BATCH_LINGER_S: Final = 0.02
_CONNECTION_CHECK_S: Final = 0.5
_DISPATCHERS: Final = 8
_REJECTION_TTL_S: Final = 3.0
_REPLAYED_STOPS: Final = 5_000
"""Earlier stops that a process reads when it begins: their workers may report to it."""

MAX_RETURNED_BYTES: Final = 32 * 1024 * 1024
"""Beyond it, agendas whose callers have gone are left to the end of their leases."""

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Poller:
    count: int
    got: list[EmittedAgenda] = field(default_factory=list)
    some: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def wanted(self) -> int:
        return self.count - len(self.got)


class KafkaHttpDeliveries:
    """The port `HttpDeliveries`; works while entered.

    Entering waits for nothing: until Kafka is reached, polls wait or fail.

    Args:
        settings: Where the cluster is.
        publisher: For demand and returns; open for as long as this object is.
    """

    def __init__(self, settings: Settings, publisher: Publisher) -> None:
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._api_id = secrets.token_hex(8)
        self._pollers: dict[str, deque[_Poller]] = defaultdict(deque)
        self._received: dict[str, OrderedDict[str, int]] = defaultdict(OrderedDict)
        self._rejected: dict[str, tuple[str, float]] = {}
        self._stops = StopRegistry()
        self._changed_insights: set[str] = set()
        self._has_changes = asyncio.Event()
        self._returned: asyncio.Queue[DeliveryReturned] = asyncio.Queue()
        self._returned_bytes = 0
        self._background = AsyncExitStack()
        self._followers = (
            TopicFollower(
                settings,
                self._topics.deliveries,
                client_id="deliveries",
                on_record=self._on_record,
            ),
            follow_controls(
                settings,
                client_id="api-controls",
                on_stop=self._stops.remember,
                replay_last=_REPLAYED_STOPS,
            ),
        )

    async def __aenter__(self) -> Self:
        deliveries, controls = self._followers
        running = background(
            deliveries=deliveries.run(),
            controls=controls.run(),
            poll_demand=self._publish_demand(),
            returned_deliveries=self._publish_returned(),
        )
        await self._background.enter_async_context(running)
        return self

    async def __aexit__(self, *reason: *ExitReason) -> None:
        await self._background.__aexit__(*reason)

    async def poll(
        self, insight_id: str, count: int, wait: timedelta, *, is_connected: Callable[[], bool]
    ) -> list[EmittedAgenda]:
        """See the port."""
        poller = _Poller(count)
        self._pollers[insight_id].append(poller)
        self._mark_changed(insight_id)
        try:
            await self._wait_for_delivery(insight_id, poller, wait, is_connected)
            return poller.got
        finally:
            self._pollers[insight_id].remove(poller)
            self._mark_changed(insight_id)

    def return_delivery(self, emitted: EmittedAgenda) -> None:
        """See the port."""
        if self._returned_bytes > MAX_RETURNED_BYTES:
            _log.warning("delivery.left_to_lease", agenda_id=emitted.agenda_id)
            return
        self._returned_bytes += len(emitted.agenda)
        returned = DeliveryReturned(insight_id=emitted.insight_id, emitted=emitted)
        self._returned.put_nowait(returned)

    def stop_reason(
        self, agenda_id: str, attempt: int, accepted_at: datetime
    ) -> StopReason | Literal["outdated"] | None:
        """See the port."""
        stop = self._stops.of(agenda_id, attempt, accepted_at)
        return None if stop is None else stop.reason

    async def _wait_for_delivery(
        self,
        insight_id: str,
        poller: _Poller,
        wait: timedelta,
        is_connected: Callable[[], bool],
    ) -> None:
        now = asyncio.get_running_loop().time
        until = now() + wait.total_seconds()
        if not self._followers[0].following.is_set() and not wait:
            msg = "agendas cannot be delivered yet: Kafka has not answered"
            raise UnavailableError(msg)
        while not poller.got and now() < until and is_connected():
            self._raise_if_rejected(insight_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_CONNECTION_CHECK_S, until - now())):
                    await poller.some.wait()
        if not poller.got:
            self._raise_if_rejected(insight_id)
        if poller.got and poller.wanted:
            # Agendas that were sent together with the first arrive a moment later.
            await asyncio.sleep(_BATCH_LINGER_S)

    def _on_record(self, record: ConsumedRecord) -> None:
        try:
            delivery = decode_delivery(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
            return
        if isinstance(delivery, PollRejected):
            self._reject(delivery)
            return
        if delivery.api_id == self._api_id:
            self._receive(delivery)

    def _receive(self, delivery: AgendaDelivered) -> None:
        insight_id = delivery.emitted.insight_id
        counts = self._received[insight_id]
        counts[delivery.dispatcher_id] = counts.pop(delivery.dispatcher_id, 0) + 1
        if len(counts) > _DISPATCHERS:
            counts.popitem(last=False)
        poller = next((one for one in self._pollers[insight_id] if one.wanted > 0), None)
        if poller is None:
            self.return_delivery(delivery.emitted)
        else:
            poller.got.append(delivery.emitted)
            poller.some.set()
        self._mark_changed(insight_id)

    def _reject(self, refused: PollRejected) -> None:
        until_s = asyncio.get_running_loop().time() + _REJECTION_TTL_S
        self._rejected[refused.insight_id] = (refused.reason, until_s)
        for poller in self._pollers.get(refused.insight_id, ()):
            poller.some.set()

    def _raise_if_rejected(self, insight_id: str) -> None:
        reason, until_s = self._rejected.get(insight_id, ("", 0.0))
        if asyncio.get_running_loop().time() < until_s:
            raise UnservedError(reason)

    def _mark_changed(self, insight_id: str) -> None:
        self._changed_insights.add(insight_id)
        self._has_changes.set()

    async def _publish_demand(self) -> NoReturn:
        """Publish demand whenever it changes, and every second while there is any."""
        # A delivery from before would not be read, and would wait for the end of its lease.
        await self._followers[0].following.wait()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DEMAND_INTERVAL_S):
                    await self._has_changes.wait()
            self._has_changes.clear()
            changed, self._changed_insights = self._changed_insights, set()
            changed.update(insight_id for insight_id, some in self._pollers.items() if some)
            if wanted := [self._wanted(insight_id) for insight_id in changed]:
                await self._publish({one.insight_id: one for one in wanted})

    def _wanted(self, insight_id: str) -> PollWanted:
        callers = self._pollers[insight_id]
        if not callers:
            del self._pollers[insight_id]
        return PollWanted(
            insight_id=insight_id,
            api_id=self._api_id,
            wanted=sum(max(0, one.wanted) for one in callers),
            received=dict(self._received[insight_id]),
        )

    async def _publish_returned(self) -> NoReturn:
        while True:
            returned = await self._returned.get()
            await self._publish({returned.insight_id: returned})
            self._returned_bytes -= len(returned.emitted.agenda)

    async def _publish(
        self, events: "dict[str, PollWanted] | dict[str, DeliveryReturned]"
    ) -> None:
        records = [
            Record(self._topics.poll_demand, insight_id.encode(), encode(event))
            for insight_id, event in events.items()
        ]
        try:
            await publish_writable(self._publisher, records)
        except UnavailableError as error:
            # Demand is published again; a return is lost, so its agenda waits for its lease.
            _log.warning("poll_demand.unpublished", error=str(error))
