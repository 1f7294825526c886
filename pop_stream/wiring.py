"""The composition root: which adapter stands behind which port, for each part."""

import asyncio
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient

from pop_stream.bus import clients, topics
from pop_stream.bus.definitions import DefinitionFollower, publish_definitions
from pop_stream.bus.lag import KafkaLagProbe
from pop_stream.bus.publisher import KafkaPublisher
from pop_stream.bus.topics import Topics
from pop_stream.clock import WallClock
from pop_stream.core.definitions import Definition, Insight, definitions_from
from pop_stream.intake.intake import Intake
from pop_stream.intake.relay import Relay
from pop_stream.scheduler.app import Scheduler
from pop_stream.settings import Settings


@asynccontextmanager
async def admin_client(
    settings: Settings, *, client_id: str = "admin"
) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client, closed at the end."""
    admin = clients.admin(settings, client_id=client_id)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def publisher(settings: Settings, *, client_id: str) -> KafkaPublisher:
    """A publisher of its own for a part; enter it to start it."""
    producer = clients.producer(settings, client_id=client_id)
    return KafkaPublisher(producer, give_up_after=settings.publish_timeout)


async def run_intake(settings: Settings, stop: asyncio.Event) -> None:
    """Intake and relay until `stop`; ends at once when either fails."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        definitions = await enter(DefinitionFollower(settings, client_id="intake"))
        publish = await enter(publisher(settings, client_id="intake"))
        relay_publish = await enter(publisher(settings, client_id="relay"))
        intake = Intake(settings, publish, definitions, WallClock())
        relay = Relay(settings, relay_publish)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(intake.run(stop))
            tasks.create_task(relay.run(stop))


async def run_scheduler(settings: Settings, stop: asyncio.Event) -> None:
    """The scheduler until `stop`."""
    names = Topics(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        definitions = await enter(DefinitionFollower(settings, client_id="scheduler"))
        publish = await enter(publisher(settings, client_id="scheduler-emit"))
        admin = await enter(admin_client(settings, client_id="scheduler-admin"))
        offsets = clients.consumer(settings, client_id="scheduler-lag", group_id=None)
        await enter(offsets)
        scheduler = Scheduler(
            settings=settings,
            publisher=publish,
            definitions=definitions,
            probe=KafkaLagProbe(names, admin, offsets),
            clock=WallClock(),
            create_topic=_topic_creator(settings, admin),
            partitions=await publish.partitions(names.ready),
        )
        await scheduler.run(stop)


async def ensure_topics(settings: Settings) -> list[str]:
    """Create the fixed topics that are missing; returns their names."""
    specs = topics.catalog(Topics(settings.topic_prefix))
    async with admin_client(settings) as admin:
        return await topics.ensure(admin, specs, replication_factor=settings.replication_factor)


async def topic_faults(settings: Settings) -> list[str]:
    """What is wrong with the fixed topics, in words; empty when all is well."""
    specs = topics.catalog(Topics(settings.topic_prefix))
    async with admin_client(settings) as admin:
        return await topics.faults(admin, specs)


async def publish_definitions_file(settings: Settings) -> list[str]:
    """Publish the definitions of the file that differ from those in force; their keys."""
    wanted = definitions_in_file(settings)
    if not wanted:
        return []
    async with (
        DefinitionFollower(settings, client_id="migrate") as follower,
        publisher(settings, client_id="migrate") as publish,
    ):
        names = Topics(settings.topic_prefix)
        return await publish_definitions(publish, names, wanted, follower.current)


def definitions_in_file(settings: Settings) -> tuple[Definition, ...]:
    """The definitions of `POP_DEFINITIONS_FILE`; none if it is not set.

    Raises:
        ValueError: If the file is no TOML or a definition in it is wrong.
        OSError: If it cannot be read.
    """
    if settings.definitions_file is None:
        return ()
    return definitions_from(tomllib.loads(settings.definitions_file.read_text()))


def _topic_creator(
    settings: Settings, admin: AIOKafkaAdminClient
) -> Callable[[Insight], Awaitable[None]]:
    names = Topics(settings.topic_prefix)

    async def create(insight: Insight) -> None:
        spec = topics.insight_spec(names, insight.id, insight.partitions)
        await topics.ensure(admin, [spec], replication_factor=settings.replication_factor)

    return create
