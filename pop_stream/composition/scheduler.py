"""Composes the scheduler."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

from pop_stream.clock import WallClock
from pop_stream.kafka import clients, connections, share_consumer, topics
from pop_stream.kafka.clients import KafkaAdmin
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.kafka.topic_reader import read_newest, read_range, read_to_end
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.records import TopicPartition
from pop_stream.scheduler.faust.worker import Scheduler, SchedulerPorts
from pop_stream.scheduler.insight_registry import PartitionOwnership
from pop_stream.settings import Settings
from pop_stream.telemetry.server import serve_metrics


async def run_scheduler(settings: Settings, stop: asyncio.Event) -> None:
    """The scheduler until `stop`."""
    names = Topics(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        definitions = await enter(DefinitionFollower(settings, client_id="scheduler"))
        ownership = PartitionOwnership(settings.session_timeout)

        def may(topic: str, since: float) -> bool | None:
            """Whether a round may still be written that was begun at `since`."""
            return not names.is_insight_topic(topic) or ownership.held_since(since)

        publish = await enter(
            connections.publisher(settings, client_id="scheduler-emit", may=may)
        )
        admin = await enter(connections.admin_client(settings, client_id="scheduler-admin"))
        offsets = clients.consumer(settings, client_id="scheduler-lag", group_id=None)
        await enter(offsets)
        ports = SchedulerPorts(
            publisher=publish,
            definitions=definitions,
            probe=KafkaLagProbe(names, admin, offsets),
            clock=WallClock(),
            create_topic=_topic_creator(settings, admin),
            read_skipped=lambda partition, start, end: read_range(
                settings, TopicPartition(names.ready, partition), start, end
            ),
            read_to_end=partial(read_to_end, settings),
            read_newest=partial(read_newest, settings),
            partitions=await publish.partitions(names.ready),
            ownership=ownership,
        )
        scheduler = Scheduler(settings, ports)
        host, port = settings.metrics_host, settings.metrics_port
        ready = partial(_is_ready, scheduler, stop)
        await enter(serve_metrics(scheduler.registry, host, port, is_ready=ready))
        await scheduler.run(stop)


def _is_ready(scheduler: Scheduler, stop: asyncio.Event) -> bool:
    return scheduler.is_ready and not stop.is_set()


def _topic_creator(
    settings: Settings, admin: KafkaAdmin
) -> Callable[[Insight], Awaitable[None]]:
    names = Topics(settings.topic_prefix)

    async def create(insight: Insight) -> None:
        spec = topics.insight_spec(names, insight.id, insight.partitions, insight.group_type)
        try:
            if insight.group_type == "share":
                # Before the topic: who joins as soon as that is there must miss nothing.
                await share_consumer.start_at_earliest(
                    admin, names.puller_group(insight.id, insight.group_type)
                )
            await topics.ensure(admin, [spec], replication_factor=settings.replication_factor)
            await topics.add_partitions(admin, spec)
        except KafkaError as error:
            raise UnavailableError(repr(error)) from error

    return create
