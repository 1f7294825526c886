"""Each part ends, and says why, when work beside it dies; whoever runs it starts it again."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.metadata import MetadataRequest
from deadlines import within
from ledger_world import running_ledger_world
from pydantic import SecretStr

from pop_stream import composition
from pop_stream.composition.api import run_api
from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka import clients
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.operations.errors import message
from pop_stream.puller import Handlers, Puller

PATIENCE_S = 60
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)))
handlers = Handlers()


@handlers.handler("noop")
async def noop(_):
    """Nothing to do."""


async def run_puller(settings, stop):
    await Puller("media", handlers=handlers, settings=settings).serve(stop)


FOLLOWER = "pop_stream.kafka.definitions.DefinitionFollower._follow"
GOSSIP = "pop_stream.kafka.quota_gossip.QuotaGossip._publish_usage"
TOPIC_FOLLOWER = "pop_stream.kafka.topic_follower.TopicFollower.run"
WORK = [
    (run_api, FOLLOWER),
    (run_api, GOSSIP),
    (run_api, TOPIC_FOLLOWER),
    (run_api, "pop_stream.operations.definition_outbox.DefinitionsOutboxRelay.run"),
    (run_api, "pop_stream.http_pull.dispatcher.Dispatcher.run"),
    (run_api, "pop_stream.http_pull.dispatcher.Dispatcher._publish"),
    (run_api, "pop_stream.kafka.queries.KafkaQueueQueries._read"),
    (run_api, "pop_stream.kafka.deliveries.KafkaHttpDeliveries._publish_demand"),
    (run_api, "pop_stream.kafka.deliveries.KafkaHttpDeliveries._publish_returned"),
    (run_api, "pop_stream.api.agendas.streams.WatchHub.run"),
    (run_ingest, FOLLOWER),
    (run_ingest, GOSSIP),
    (run_ingest, "pop_stream.ingest.ingest.Ingest.run"),
    (run_ingest, "pop_stream.relay.relay.Relay.run"),
    (run_ingest, "pop_stream.timekeeper.timekeeper.Timekeeper.run"),
    (run_ingest, "pop_stream.timekeeper.rule_runner.RuleRunner.run"),
    (run_scheduler, FOLLOWER),
    (run_scheduler, "pop_stream.scheduler.ticker.Ticker.run"),
    (run_scheduler, "pop_stream.scheduler.usage_reporter.UsageReporter.run"),
    (run_scheduler, "pop_stream.scheduler.idle_reporter.IdleReporter.run"),
    (run_scheduler, "pop_stream.scheduler.faust.table.FaustReadyTable.wait_failed"),
    (run_rollup, "pop_stream.rollup.rollup.Rollup.run"),
    (run_rollup, "pop_stream.webhooks.sender.WebhookSender.run"),
    (run_rollup, "pop_stream.composition.rollup.schedule_retention"),
    (run_rollup, "pop_stream.composition.rollup.schedule_reconciliation"),
    (run_rollup, FOLLOWER),  # the reconciler's
    (run_rollup, "pop_stream.composition.rollup.store_dead_letters"),
    (run_rollup, "pop_stream.composition.rollup.store_occurrences"),
    (run_rollup, "pop_stream.conditions.watcher.ConditionWatcher.run"),
    (run_rollup, "pop_stream.rollup.rule_actions.RuleActions.run"),
    (run_puller, "pop_stream.puller.reporting.reporter.Reporter.run"),
    (run_puller, "pop_stream.puller.reporting.lease_renewer.LeaseRenewer.run"),
    (run_puller, TOPIC_FOLLOWER),
]


TASKS = {"api.py": 0, "ingest.py": 4, "rollup.py": 9, "scheduler.py": 0}
"""How many tasks the composition of each part starts. Who adds one adds it to `WORK`, too: all
but the age of webhooks, which only a metric needs."""


def test_no_task_of_a_part_is_forgotten_here():
    folder = Path(composition.__file__).parent
    assert {name: (folder / name).read_text().count("create_task(") for name in TASKS} == TASKS


@pytest_asyncio.fixture
async def settings_of_parts(settings, tmp_path):
    known = settings.model_copy(update={"webhook_keys": (SecretStr("k" * 32),)})
    async with running_ledger_world(known, tmp_path, MEDIA) as world:
        yield world.settings


def name_of(value):
    return value.__name__ if callable(value) else ".".join(value.split(".")[-2:])


@pytest.mark.parametrize(("run", "work"), WORK, ids=name_of)
async def test_a_part_ends_when_work_beside_it_dies(settings_of_parts, monkeypatch, run, work):
    async def falls_over(*_, **__):
        await asyncio.sleep(0)
        why = "it fell over"
        raise ZeroDivisionError(why)

    monkeypatch.setattr(work, falls_over)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # alone or in a group
        async with within(PATIENCE_S):
            await run(settings_of_parts, asyncio.Event())
    assert "ZeroDivisionError: it fell over" in message(raised.value)


async def test_a_client_that_is_cancelled_while_it_connects_leaves_no_connection(
    settings, monkeypatch
):
    asked, opened = asyncio.Event(), []
    send = AIOKafkaConnection.send

    def observed(connection, request, *args, **how):
        if isinstance(request, MetadataRequest):
            opened.append(connection)
            asked.set()
        return send(connection, request, *args, **how)

    monkeypatch.setattr(AIOKafkaConnection, "send", observed)
    admin = clients.admin(settings, client_id="cancelled")
    starting = asyncio.create_task(admin.start())
    async with within(PATIENCE_S):
        await asked.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await admin.close()
    assert [one.connected() for one in opened] == [False]
