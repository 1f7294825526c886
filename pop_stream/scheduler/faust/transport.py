"""Faust's Kafka transport with a hardened client and commits that no missing record holds up.

Faust makes the transport, the transport the consumer, the consumer a thread with an event loop,
and that thread the client of aiokafka. Each step is overridden here for what the next one
needs.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from pop_stream.kafka.hardening.commit_guard import guard_commits
from pop_stream.kafka.hardening.fetcher import harden_fetcher, use_adaptive_fetch_wait
from pop_stream.scheduler.faust import client_internals

_SWITCH_INTERVAL_S: Final = 0.0005
"""Between the threads of the process. Python's own 5 ms would be waited several times for each
fetch while the agent's thread is busy."""

_CONSUMED_WITHIN_S: Final = 0.5
"""For so long fetched records may lie in the client: Faust leaves those of paused
partitions."""


class _FaustConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]  # Faust is untyped here
    def _create_consumer(self, loop: Any) -> Any:  # noqa: ANN401  # Faust is untyped
        """Called by Faust before the client starts; there is no other access to it by then."""
        consumer = super()._create_consumer(loop)
        self.transport.skip_silent_brokers(client_internals.client_of(consumer))
        return consumer

    async def on_start(self) -> None:
        """Called by Faust in the consumer's thread; starts the client and hardens it."""
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        await self.transport.evict_own_predecessor()
        await super().on_start()
        consumer, tables = self._consumer, self.transport.app.tables
        harden_fetcher(consumer, within_s=_CONSUMED_WITHIN_S)
        guard_commits(consumer)
        client_internals.restrict_fetches(
            client_internals.fetcher_of(consumer),
            lambda tp: tp.topic not in tables.changelog_topics,
        )
        use_adaptive_fetch_wait(consumer)
        coordinator = client_internals.coordinator_of(consumer)
        self.transport.track_coordinator(coordinator)
        client_internals.report_heartbeats(coordinator, self.transport.on_heartbeat)
        client_internals.report_expulsion(coordinator, self.transport.on_expelled)
        client_internals.rejoin_on_error(coordinator)


class _FaustConsumer(driver.Consumer):  # type: ignore[misc]  # Faust is untyped here
    def _new_offset(self, tp: Any) -> int | None:  # noqa: ANN401  # Faust is untyped
        """Called by Faust with each commit: the offset after the last acknowledged record.

        Records before it that Faust lost have been read beside it and handled first.
        """
        newest = client_internals.take_newest_acknowledged(self, tp)
        return None if newest is None else newest + 1

    async def _add_gap(self, tp: Any, offset_from: int, offset_to: int) -> None:  # noqa: ANN401
        """Called by Faust for offsets that are missing, which `_new_offset` has no use for.

        Faust's own bookkeeping costs time quadratic in their number.
        """

    def _new_consumer_thread(self) -> _FaustConsumerThread:
        """Called by Faust once; the thread has an event loop of uvloop."""
        thread = _FaustConsumerThread(
            self, loop=self.loop, thread_loop=uvloop.new_event_loop(), beacon=self.beacon
        )
        client_internals.close_loop_with_thread(thread)
        return thread


class HardenedTransport(driver.Transport):  # type: ignore[misc]  # Faust is untyped here
    """The transport of the scheduler's application.

    The four callbacks are set before it starts. They are called in the consumer's thread.

    Attributes:
        on_heartbeat: Called with the moment, on the monotonic clock, at which a heartbeat was
            sent that the group then acknowledged.
        on_expelled: Called when the group has expelled this member, before partitions are
            revoked.
        evict_own_predecessor: Awaited before this member joins its group.
        skip_silent_brokers: Called with the client before it starts.
    """

    Consumer: Any = _FaustConsumer
    on_heartbeat: Callable[[float], None]
    on_expelled: Callable[[], None]
    evict_own_predecessor: Callable[[], Awaitable[None]]
    skip_silent_brokers: Callable[[Any], None]
    _coordinator: Any = None

    def track_coordinator(self, coordinator: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
        """Remember the client's coordinator; called in the consumer's thread when it starts."""
        self._coordinator = coordinator

    def end_offset(self, topic: str, partition: int) -> int | None:
        """The offset after a partition's last record; None before its first fetch."""
        if self._coordinator is None:
            return None
        return client_internals.highwater(self._coordinator, TP(topic, partition))

    def generation(self) -> int:
        """The group's generation, which grows with each rebalance; 0 before the first."""
        if self._coordinator is None:
            return 0
        return max(0, int(self._coordinator.generation))
