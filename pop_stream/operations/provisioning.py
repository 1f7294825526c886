"""Schema, topics and definitions, brought up to date."""

import asyncio
import tomllib
from contextlib import suppress
from datetime import timedelta
from typing import Final

from pop_stream.kafka import connections, topics
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.topics import Topics, fetch_retention
from pop_stream.model.definitions import Definition, definition_key, parse_definitions_file
from pop_stream.model.errors import DefinitionError
from pop_stream.model.identity import ALL_ROLES, Principal
from pop_stream.model.revisions import Author, put
from pop_stream.operations.definition_outbox import DefinitionsOutboxRelay
from pop_stream.postgres.definitions import PostgresDefinitionOutbox, PostgresDefinitions
from pop_stream.postgres.migrate import ensure_database
from pop_stream.postgres.migrate import migrate as apply_migrations
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

MIGRATION_AUTHOR: Final = Author(
    principal=Principal("migrate", None, ALL_ROLES), request_id="pop-stream migrate"
)
"""Who the audit log says has changed what a file changed."""

_READ_WITHIN_S: Final = 5.0
"""How long to wait for what this process published itself."""


async def migrate(settings: Settings) -> list[str]:
    """Bring schema, topics and definitions up to date; says what was done, one line each."""
    dsn = settings.postgres_dsn.get_secret_value()
    created = await ensure_database(dsn)
    applied = await apply_migrations(dsn)
    topics_created = await ensure_topics(settings)
    published = await import_definitions(settings)
    return [
        *(["created the database"] if created else []),
        *(f"applied migration {name}" for name in applied),
        *(f"created topic {name}" for name in topics_created),
        *(f"published definition {key}" for key in published),
    ]


async def ensure_topics(settings: Settings) -> list[str]:
    """Create the fixed topics that are missing; returns their names."""
    specs = topics.catalog(Topics(settings.topic_prefix))
    async with connections.admin_client(settings) as admin:
        return await topics.ensure(admin, specs, replication_factor=settings.replication_factor)


async def topic_errors(settings: Settings) -> list[str]:
    """What is wrong with topics, in words; empty when all is well."""
    names = Topics(settings.topic_prefix)
    async with connections.admin_client(settings) as admin:
        found = await topics.find_topic_errors(admin, topics.catalog(names))
        return [*found, *await topics.find_insight_topic_errors(admin, names)]


async def has_topic(settings: Settings, name: str) -> bool:
    """Whether there is such a topic."""
    async with connections.admin_client(settings) as admin:
        return name in await admin.list_topics()


async def event_retention(settings: Settings) -> timedelta | None:
    """How long the live topic of the lifecycle keeps events; None if there is no topic."""
    async with connections.admin_client(settings) as admin:
        return await fetch_retention(admin, Topics(settings.topic_prefix).agenda_events)


async def import_definitions(settings: Settings) -> list[str]:
    """Import definitions that only the topic has, then the file's; returns the keys published.

    What the topic alone knows was written there by hand, or before Postgres had definitions.

    Raises:
        ValueError: If the file is wrong, or asks for what cannot be.
    """
    wanted = definitions_in_file(settings)
    async with (
        DefinitionFollower(settings, client_id="migrate") as follower,
        connections.publisher(settings, client_id="migrate") as publish,
        open_pool(settings) as pool,
    ):
        outbox = PostgresDefinitionOutbox(pool)
        known = {row.key for row in await outbox.latest_versions()}
        found = [one for one in follower.current.all() if definition_key(one) not in known]
        store = PostgresDefinitions(pool)
        try:
            await store.change([put(one) for one in found], MIGRATION_AUTHOR)
            await store.change([put(one) for one in wanted], MIGRATION_AUTHOR)
        except DefinitionError as error:
            raise ValueError(str(error)) from None
        publication = DefinitionsOutboxRelay(outbox, publish, Topics(settings.topic_prefix))
        published = await publication.drain()
        if published:
            await _until_read(follower)
        return [*published, *await publication.repair(follower.versions_by_key)]


async def _until_read(follower: DefinitionFollower) -> None:
    """Wait for what was published just now, which would else be taken for missing."""
    end = await follower.end_offset()
    with suppress(TimeoutError):
        async with asyncio.timeout(_READ_WITHIN_S):
            while follower.read_up_to < end:  # noqa: ASYNC110  # it is read by another task
                await asyncio.sleep(0.02)


def definitions_in_file(settings: Settings) -> tuple[Definition, ...]:
    """The definitions of `POP_DEFINITIONS_FILE`; none if it is not set.

    Raises:
        ValueError: If the file is no TOML or a definition in it is wrong.
        OSError: If it cannot be read.
    """
    if settings.definitions_file is None:
        return ()
    return parse_definitions_file(tomllib.loads(settings.definitions_file.read_text()))
