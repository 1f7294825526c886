"""Faust's transport, which tells of heartbeats, and lets no partition wait for another."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

import structlog
import uvloop
from faust.transport.drivers import aiokafka as driver

from pop_stream.kafka.hardening.commit_guard import guard_commits
from pop_stream.kafka.hardening.fetcher import harden_fetcher, use_adaptive_fetch_wait
from pop_stream.ports.records import TopicPartition

_AGAIN_AFTER_S: Final = 0.5

_SWITCH_S: Final = 0.0005

_CONSUMED_WITHIN_S: Final = 0.5
"""Faust leaves records of partitions that it has paused lying there."""

_log = structlog.get_logger()


class _FaustConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]  # Faust is untyped here
    def _create_consumer(self, loop: Any) -> Any:  # noqa: ANN401  # Faust is untyped
        made = super()._create_consumer(loop)
        self.transport.skip_silent_brokers(made._client)  # noqa: SLF001  # no other way to it
        return made

    async def on_start(self) -> None:
        """Called by Faust, in the consumer's thread."""
        # Several times for each fetch, this thread would wait 5 ms for a busy one to let it on.
        sys.setswitchinterval(_SWITCH_S)
        await self.transport.evict_own_predecessor()
        await super().on_start()
        harden_fetcher(self._consumer, within_s=_CONSUMED_WITHIN_S)
        guard_commits(self._consumer)
        fetcher = self._consumer._fetcher  # noqa: SLF001
        tables = self.transport.app.tables
        restrict_fetches(fetcher, lambda tp: tp.topic not in tables.changelog_topics)
        use_adaptive_fetch_wait(self._consumer)
        coordinator = self._consumer._coordinator  # noqa: SLF001
        self.transport.follow(coordinator)
        _report_membership(coordinator, self.transport)
        rejoin_on_error(coordinator)


def _report_membership(coordinator: Any, transport: "HardenedTransport") -> None:  # noqa: ANN401
    """Nothing of the client's tells when the group has last known this member, or forgot it."""
    beat, forget = coordinator._do_heartbeat, coordinator.reset_generation  # noqa: SLF001

    async def heartbeat() -> bool:
        asked_at = monotonic()
        is_known: bool = await beat()
        if is_known:
            transport.on_heartbeat(asked_at)
        return is_known

    def reset() -> None:
        transport.on_expelled()
        forget()

    coordinator._do_heartbeat = heartbeat  # noqa: SLF001
    coordinator.reset_generation = reset


def restrict_fetches(fetcher: Any, is_wanted: Callable[[Any], bool]) -> None:  # noqa: ANN401
    """Have a client's fetcher ask for these partitions only, whatever it is assigned.

    Faust has the table's changelog assigned to it, and each request would ask for it too,
    though it is read beside Faust.
    """
    look: Callable[[Any], Any] = fetcher._get_actions_per_node  # noqa: SLF001

    def actions_of_wanted(assignment: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
        wanted = [tp for tp in assignment.tps if is_wanted(tp)]
        return look(SimpleNamespace(tps=wanted, state_value=assignment.state_value))

    fetcher._get_actions_per_node = actions_of_wanted  # noqa: SLF001


def rejoin_on_error(coordinator: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
    """What the client cannot mend it hands to its reader, and waits for that to take it.

    Faust reads past the part of the client that hands it on, so it would wait for ever.
    """

    async def join_again(error: BaseException) -> None:
        _log.warning("group.rejoining", error=repr(error))
        await asyncio.sleep(_AGAIN_AFTER_S)
        coordinator.request_rejoin()

    coordinator._push_error_to_user = join_again  # noqa: SLF001


class _FaustConsumer(driver.Consumer):  # type: ignore[misc]  # Faust is untyped here
    def _new_offset(self, tp: Any) -> int | None:  # noqa: ANN401  # Faust is untyped
        """What may be committed: all up to the last record that was acknowledged.

        Called by Faust. Left to itself, it waits for every record in between, and some never
        come: what a rebalance drops from its queues it neither hands on nor takes note of, and
        it would commit nothing of the partition ever again. The records in between have been
        read beside it, and handled first.
        """
        acknowledged: list[int] = self._acked[tp]
        newest = max(acknowledged, default=None)
        acknowledged.clear()
        self._acked_index[tp].clear()
        return None if newest is None else newest + 1

    async def _add_gap(self, tp: Any, offset_from: int, offset_to: int) -> None:  # noqa: ANN401
        """Called by Faust; what is missing is of no interest, see above."""

    def _new_consumer_thread(self) -> _FaustConsumerThread:
        loop = uvloop.new_event_loop()
        thread = _FaustConsumerThread(
            self, loop=self.loop, thread_loop=loop, beacon=self.beacon
        )
        thread._close_thread_loop_on_stop = True  # noqa: SLF001  # as of a loop of its own
        return thread


class HardenedTransport(driver.Transport):  # type: ignore[misc]  # Faust is untyped here
    """See `harden_fetcher` and `use_adaptive_fetch_wait`.

    Attributes:
        on_heartbeat: Told when a heartbeat was sent that the group then answered; called in
            the consumer's thread.
        on_expelled: Told that the group has expelled this member; called in that thread, and
            before Faust waits for the record under way.
        evict_own_predecessor: Called before this member joins its group; in that thread.
        skip_silent_brokers: Given the client before it starts; in that thread.
    """

    Consumer: Any = _FaustConsumer
    on_heartbeat: Callable[[float], None]
    on_expelled: Callable[[], None]
    evict_own_predecessor: Callable[[], Awaitable[None]]
    skip_silent_brokers: Callable[[Any], None]
    _coordinator: Any = None

    def follow(self, coordinator: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
        """The client's part that keeps membership; called in the consumer's thread."""
        self._coordinator = coordinator

    def end_offset(self, topic: str, partition: int) -> int | None:
        """The offset after the last record, as the newest fetch told; None before the first."""
        subscribed = self._coordinator and self._coordinator._subscription.subscription  # noqa: SLF001
        if not subscribed or subscribed.assignment is None:
            return None
        state = subscribed.assignment.state_value(TopicPartition(topic, partition))
        end: int | None = None if state is None else state.highwater
        return end

    def generation(self) -> int:
        """By which every settling of the group is greater than the one before; 0 before any."""
        if self._coordinator is None:
            return 0
        return max(0, int(self._coordinator.generation))
