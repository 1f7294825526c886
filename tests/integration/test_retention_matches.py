"""What topics keep and what Postgres keeps, held against each other on real servers."""

import asyncio
from datetime import timedelta

import pytest_asyncio
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from deadlines import within
from ledger_world import PATIENCE_S, parts, running_ledger_world

from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka import connections
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import catalog
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.policy.lifecycle.states import OUTCOMES, State
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.puller import Handlers, Puller
from pop_stream.rollup.retention import remove_expired, retention_from

MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), partitions=1)
handlers = Handlers()


@handlers.handler("noop")
async def noop(call):
    """Do nothing."""


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA) as world:
        yield world


async def puller(settings, stop):
    await Puller("media", handlers=handlers, settings=settings).serve(stop)


async def kept(world, topic):
    """By key, what a compacted topic comes to; deletions left out."""
    last = {}
    async for record in read_topic(world.settings, topic):
        last[record.key] = record.value
    return {key: value for key, value in last.items() if value is not None}


async def test_the_broker_keeps_events_no_longer_than_postgres_keeps_ends(world):
    names = [one.name for one in catalog(world.names)]
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    async with connections.admin_client(world.settings) as admin:
        answers = await admin.describe_configs(asked)
    found = {
        resource[3]: {entry[0]: entry[1] for entry in resource[4]}
        for answer in answers
        for resource in answer.resources
    }
    span = retention_from(world.settings)
    events_kept = timedelta(milliseconds=int(found[world.names.agenda_events]["retention.ms"]))
    assert events_kept <= min(span.shortest, span.refused)
    compacted = {name for name in names if found[name]["cleanup.policy"] == "compact"}
    assert compacted == {
        f"{world.names.prefix}scheduler-ready-changelog",
        world.names.definitions,
        world.names.timekeeper,
        world.names.rule_states,
    }


async def test_the_compacted_table_holds_what_postgres_says_waits_and_no_more(world):
    """Nothing that has ended stays in the changelog, with or without its row in Postgres."""
    changelog = f"{world.names.prefix}scheduler-ready-changelog"
    ids = [f"e-{number}" for number in range(40)]

    async def pages():
        found = await kept(world, changelog)
        return b"".join(value for key, value in found.items() if b"/page/" in key)

    async with parts(world.settings, run_ingest, run_scheduler, run_rollup):
        await world.submit(*ids)
        await world.until_known(*ids, states={State.EMITTED, State.READY})
        async with parts(world.settings, puller):
            await world.until_known(*ids, states=OUTCOMES)
            async with within(PATIENCE_S):
                while b"e-" in await pages():  # noqa: ASYNC110  # the topic tells
                    await asyncio.sleep(0.2)
        await world.submit("waits")  # and nobody is there to pull it
        await world.until_known("waits", states={State.READY, State.EMITTED})
        removed = await remove_expired(
            PostgresRetention(world.pool),
            retention_from(world.settings),
            await world.pool.fetchval("select now() + interval '91 days'"),
        )
        gone = {name: count for name, count in removed.items() if name != "pullers"}
        assert gone == {
            "succeeded": len(ids),
            "webhooks": 0,
            "dead_letters": 0,
            "stats": 0,
            "occurrences": 0,
        }
        assert {
            row["agenda_id"] for row in await world.pool.fetch("select * from agendas")
        } == {"waits"}
        async with within(PATIENCE_S):
            while b'"waits"' not in await pages():  # noqa: ASYNC110  # the topic tells
                await asyncio.sleep(0.2)
        assert b"e-" not in await pages()
