"""The private members of Faust and of its Kafka client that the scheduler cannot do without.

Each function reaches into one of them and says which fault or lack of the client it mends. What
the scheduler overrides instead stands in the subclasses of `app.py` and `transport.py`. Nobody
promises anything about private members: the versions are pinned, and the contract tests fail
when a member is gone, is called otherwise, or when the fault behind it has been mended.

Whatever takes a consumer, a fetcher or a coordinator of aiokafka is called in the thread in
which Faust runs that client.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

import structlog
from faust.types import TP

_REJOIN_AFTER_S: Final = 0.5

_log = structlog.get_logger()


def client_of(consumer: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
    """The connections of a consumer.

    Broker timeouts have to be installed before the client starts, and the consumer has no
    parameter for them.
    """
    return consumer._client  # noqa: SLF001


def fetcher_of(consumer: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
    """The part of a consumer that decides which partitions are fetched."""
    return consumer._fetcher  # noqa: SLF001


def coordinator_of(consumer: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
    """The part of a started consumer that keeps its membership of the group."""
    return consumer._coordinator  # noqa: SLF001


def report_heartbeats(coordinator: Any, on_heartbeat: Callable[[float], None]) -> None:  # noqa: ANN401
    """Report every heartbeat that the group acknowledged, with the moment it was sent.

    The client tells nobody when the group last knew this member, and a member that was frozen
    for longer than its session has to know before it writes anything.
    """
    beat = coordinator._do_heartbeat  # noqa: SLF001

    async def heartbeat() -> bool:
        sent_at = monotonic()
        is_member: bool = await beat()
        if is_member:
            on_heartbeat(sent_at)
        return is_member

    coordinator._do_heartbeat = heartbeat  # noqa: SLF001


def report_expulsion(coordinator: Any, on_expelled: Callable[[], None]) -> None:  # noqa: ANN401
    """Report that the group has expelled this member, before Faust notices.

    Faust revokes partitions only when the record being handled is done, and that record may
    wait for the outcome of this.
    """
    reset_generation = coordinator.reset_generation

    def reset() -> None:
        on_expelled()
        reset_generation()

    coordinator.reset_generation = reset


def rejoin_on_error(coordinator: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
    """Join the group anew after an error that the client leaves to its user.

    The client waits until such an error has been raised from `getone` or `getmany`. Faust calls
    neither, so the member would wait for ever.
    """

    async def rejoin(error: BaseException) -> None:
        _log.warning("group.rejoining", error=repr(error))
        await asyncio.sleep(_REJOIN_AFTER_S)
        coordinator.request_rejoin()

    coordinator._push_error_to_user = rejoin  # noqa: SLF001


def restrict_fetches(fetcher: Any, is_wanted: Callable[[Any], bool]) -> None:  # noqa: ANN401
    """Fetch these partitions only, whatever the consumer is assigned.

    Faust has the table's changelog assigned to its consumer. The scheduler reads it beside
    Faust, and each fetch would carry its partitions for nothing.
    """
    actions_per_node: Callable[[Any], Any] = fetcher._get_actions_per_node  # noqa: SLF001

    def actions_of_wanted(assignment: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
        wanted = [tp for tp in assignment.tps if is_wanted(tp)]
        return actions_per_node(SimpleNamespace(tps=wanted, state_value=assignment.state_value))

    fetcher._get_actions_per_node = actions_of_wanted  # noqa: SLF001


def highwater(coordinator: Any, partition: TP) -> int | None:  # noqa: ANN401  # aiokafka is untyped
    """The offset after the partition's last record by the newest fetch; None if not known.

    `AIOKafkaConsumer.highwater` raises for a partition that was just revoked. This may be
    called from any thread.
    """
    subscription = coordinator._subscription.subscription  # noqa: SLF001
    if not subscription or subscription.assignment is None:
        return None
    state = subscription.assignment.state_value(partition)
    end: int | None = None if state is None else state.highwater
    return end


def take_newest_acknowledged(consumer: Any, partition: TP) -> int | None:  # noqa: ANN401
    """The highest offset acknowledged since the last call; None if there is none.

    Faust commits up to the first offset that is missing. Some never come: records that a
    rebalance drops from its queues are neither handed on nor remembered, and no later offset of
    the partition would ever be committed.
    """
    acknowledged: list[int] = consumer._acked[partition]  # noqa: SLF001
    newest = max(acknowledged, default=None)
    acknowledged.clear()
    consumer._acked_index[partition].clear()  # noqa: SLF001
    return newest


def close_loop_with_thread(thread: Any) -> None:  # noqa: ANN401  # mode is untyped
    """Have a thread close the event loop it was given; mode closes only those it made."""
    thread._close_thread_loop_on_stop = True  # noqa: SLF001


def next_events(stream: Any, most: int) -> Iterable[Any]:  # noqa: ANN401  # Faust is untyped
    """The next events that the agent will be given, up to `most`, without taking them.

    A queue of asyncio offers no way to look at what is in it.
    """
    return islice(stream.channel.queue._queue, most)  # noqa: SLF001
