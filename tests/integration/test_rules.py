"""Rules on real servers: what fits is run once, whoever dies meanwhile."""

import asyncio
import json
import signal
from collections import Counter
from contextlib import suppress

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from aiokafka.admin import NewTopic
from deadlines import within
from ledger_world import parts, running_ledger_world
from part_processes import process
from parts_in_process import all_but_pullers
from puller_world import serving

from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import definition_record, publish_definitions
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import (
    Customer,
    Definitions,
    Insight,
    Mappers,
    encode_definition,
)
from pop_stream.model.rule import Rule
from pop_stream.model.template import AgendaTemplate
from pop_stream.ports.publisher import Record
from pop_stream.ports.records import TopicPartition
from pop_stream.puller import Puller

PATIENCE_S = 60
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), partitions=1)
LARGE = {"type": "object", "required": ["size"], "properties": {"size": {"minimum": 10}}}
TEMPLATE = AgendaTemplate(
    id="scan",
    agenda={
        "customer_id": "acme",
        "operations": [{"name": "a", "type": "noop", "payload": "@<pop.payload::>"}],
    },
)


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA) as world:
        yield world


@pytest_asyncio.fixture
async def topic(world):
    name = f"files-{world.settings.topic_prefix.strip('.')}"
    await create(world, name)
    return name


async def create(world, name):
    admin = clients.admin(world.settings, client_id="test")
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    finally:
        await admin.close()


def rule(topic, **fields):
    submission = {
        "template_id": "scan",
        "customer_id": "acme",
        "payload": "@<pop.event::/value>",
    }
    defaults = {"start": "earliest", "max_per_s": 100, "where": LARGE, "submission": submission}
    return Rule.model_validate({"id": "big", "topic": topic, **defaults, **fields})


async def define(world, *definitions):
    async with connections.publisher(world.settings, client_id="test") as publisher:
        names = Topics(world.settings.topic_prefix)
        await publish_definitions(publisher, names, [*definitions], Definitions())


async def write(world, topic, sizes, headers=()):
    async with connections.publisher(world.settings, client_id="test") as publisher:
        await publisher.publish(
            [
                Record(
                    topic,
                    str(one).encode(),
                    json.dumps({"size": one}).encode(),
                    one % 2,
                    headers,
                )
                for one in sizes
            ]
        )


class Scanned:
    """A puller that keeps what it ran: the size that each agenda is about."""

    def __init__(self, settings):
        self.runs = []
        self.puller = Puller("media", settings=settings)
        self.puller.handler("noop")(self.run)

    async def run(self, call):
        self.runs.append((call.agenda_id, call.payload["size"]))

    async def until(self, count):
        async with within(PATIENCE_S):
            while len(self.runs) < count:  # noqa: ASYNC110  # the puller runs beside
                await asyncio.sleep(0.02)


async def test_what_fits_runs_a_template_once_also_if_it_is_fired_again(world, topic):
    """The crash between firing and commit: what was fired is fired again, and placed once."""
    seen = Scanned(world.settings)
    await write(world, topic, [1, 10, 2, 11, 12])
    async with parts(world.settings, run_scheduler, run_rollup), serving(seen.puller):
        await define(world, TEMPLATE, rule(topic))
        async with process("run_ingest", world.settings):
            await seen.until(3)
        group = Topics(world.settings.topic_prefix).group("rule.big")
        await rewind(world, topic, group)
        async with process("run_ingest", world.settings):
            await write(world, topic, [20, 21])
            await seen.until(5)
    assert sorted(size for _, size in seen.runs) == [10, 11, 12, 20, 21]
    assert all(agenda_id.startswith("big.") for agenda_id, _ in seen.runs)


async def rewind(world, topic, group, count=2):
    """Take back what the group has committed, as if it had crashed before."""
    reader = clients.consumer(world.settings, client_id="test", group_id=group)
    partitions = [TopicPartition(topic, number) for number in range(count)]
    async with reader:
        reader.assign(partitions)
        async with within(PATIENCE_S):
            while [await reader.committed(one) for one in partitions] != [0] * count:
                with suppress(KafkaError):  # until the killed member has left the group
                    await reader.commit(dict.fromkeys(partitions, 0))
                await asyncio.sleep(0.1)


@pytest.mark.timeout(240)
async def test_nothing_is_lost_or_run_twice_if_the_process_is_killed(world, topic):
    seen = Scanned(world.settings)
    async with parts(world.settings, run_scheduler, run_rollup), serving(seen.puller):
        await define(world, TEMPLATE, rule(topic, max_per_s=20))
        await write(world, topic, range(10, 110))
        for runs in (20, 50):
            async with process("run_ingest", world.settings) as first:
                await seen.until(runs)
                first.send_signal(signal.SIGKILL)
        async with process("run_ingest", world.settings):
            await seen.until(100)
    sizes = Counter(size for _, size in seen.runs)
    assert set(sizes) == set(range(10, 110))
    assert set(sizes.values()) == {1}


async def test_what_fails_is_refused_shown_counted_and_a_letter_of_the_rule(world, topic):
    headers = (
        ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01".encode()),
        ("tracestate", b"pop=hops:5"),
    )
    one = rule(topic)
    async with all_but_pullers(world.settings, within_s=2 * PATIENCE_S) as url:
        await define(world, TEMPLATE)
        async with ClientSession(url) as session, within(2 * PATIENCE_S):
            await create_rule(session, one)
            await write(world, topic, [10], headers)
            path = f"/v1/agendas/big.{one.source_id('0')}-0"
            while (answer := await session.get(path)).status == 404:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            body = await answer.json()
            shown = await until(lambda: progress(session), lambda one: one["failures"])
            found = await until(lambda: letters(session), bool)
    assert body["state"] == "refused"
    assert body["issues"][0]["field"] == "hops"
    assert (shown["fired"], shown["failures"]) == (0, 1)
    assert "max_hops" in shown["last_failure"]
    assert (found[0]["topic"], found[0]["part"]) == (topic, "rules")
    assert "rule 'big'" in found[0]["reason"]


async def test_a_topic_that_is_not_there_is_waited_for_and_the_rules_state_says_so(world):
    name = f"late-{world.settings.topic_prefix.strip('.')}"
    async with all_but_pullers(world.settings, within_s=2 * PATIENCE_S) as url:
        await define(world, TEMPLATE)
        async with ClientSession(url) as session, within(2 * PATIENCE_S):
            await create_rule(session, rule(name))
            shown = await until(lambda: progress(session), lambda one: one["fault"])
            assert (shown["status"], shown["fault"][:22]) == (
                "waiting",
                "there is no such topic",
            )
            await create(world, name)
            await write(world, name, [10, 11])
            shown = await until(lambda: progress(session), lambda one: one["fired"] == 2)
            assert shown["status"] == "reading"


def ours(rule_id, **fields):
    submission = {"template_id": "scan", "customer_id": "acme", "payload": {"size": 99}}
    defaults = {"max_per_s": 100}
    if not {"cancel", "release", "signal"} & fields.keys():
        defaults["submission"] = submission
    return Rule.model_validate({"id": rule_id, **defaults, **fields})


async def test_ends_and_definitions_lead_to_agendas_once_though_the_rollup_is_killed(world):
    """A chain: a customer is defined, its agenda ends, and that leads to another."""
    seen = Scanned(world.settings)
    made = {"properties": {"kind": {"const": "customer"}, "change": {"const": "created"}}}
    backfill = {"template_id": "scan", "customer_id": "@<pop.event::/value/id>"}
    backfill["payload"] = {"size": 1}
    chained = {"template_id": "scan", "customer_id": "@<pop.event::/value/customer_id>"}
    chained["payload"] = {"size": 2}
    rules = [
        ours(
            "backfill",
            on="definition.changed",
            start="earliest",
            where=made,
            submission=backfill,
        ),
        ours(
            "chain",
            on="agenda.ended",
            start="earliest",
            where={"properties": {"link_id": {"const": "backfill"}}},
            submission=chained,
        ),
        ours("own", on="agenda.ended", start="earliest", owner="acme"),
    ]
    names = [f"c{number}" for number in range(20)]
    dsn = world.settings.postgres_dsn.get_secret_value()
    async with (
        parts(world.settings, run_ingest, run_scheduler),
        serving(seen.puller),
        connections.publisher(world.settings, client_id="test") as publisher,
    ):
        topics = Topics(world.settings.topic_prefix)
        await define(world, TEMPLATE, *rules)
        async with process("run_rollup", world.settings, POP_POSTGRES_DSN=dsn) as first:
            for name in names:
                key, body = f"customer/{name}", encode_definition(Customer(id=name))
                await publisher.publish([definition_record(topics, key, body, version=1)] * 2)
            await seen.until(25)
            first.send_signal(signal.SIGKILL)
        async with process("run_rollup", world.settings, POP_POSTGRES_DSN=dsn):
            await seen.until(40)
    runs = Counter((agenda_id.partition(".")[0], size) for agenda_id, size in seen.runs)
    assert runs == {("backfill", 1): 20, ("chain", 2): 20}


@pytest.mark.timeout(240)
async def test_idle_runners_lead_to_one_agenda_each_time_also_if_it_is_fired_again(world):
    """The insight never had an agenda; what the rule submits keeps it in work."""
    seen = Scanned(world.settings)
    submission = {"template_id": "scan", "customer_id": "acme", "payload": {"size": 1}}
    where = {"properties": {"insight_id": {"const": "media"}}}
    topics = Topics(world.settings.topic_prefix)
    async with parts(world.settings, run_scheduler, run_rollup), serving(seen.puller):
        await define(
            world,
            TEMPLATE,
            rule(None, id="fill", on="insight.idle", where=where, submission=submission),
        )
        async with process("run_ingest", world.settings):
            await seen.until(2)
        await rewind(world, topics.idle_insights, topics.group("rule.fill"), count=4)
        async with process("run_ingest", world.settings):
            await seen.until(4)
    ids = [agenda_id for agenda_id, _ in seen.runs]
    assert len(ids) == len(set(ids))
    positions = [int(one.rpartition("-")[2]) for one in ids]
    assert positions == sorted(positions)
    assert all(one.startswith("fill.") for one in ids)


async def test_a_rule_cancels_and_releases_by_link_and_gives_a_signal(world, topic):
    def of(kind):
        return {"type": "object", "required": ["is"], "properties": {"is": {"const": kind}}}

    link = {"customer_id": "acme", "link_id": "file-@<pop.event::/value/id>"}
    rules = [
        ours("drop", topic=topic, start="earliest", where=of("deleted"), cancel=link),
        ours("go", topic=topic, start="earliest", where=of("ready"), release=link),
        ours(
            "tell",
            topic=topic,
            start="earliest",
            where=of("paid"),
            signal={"customer_id": "acme", "name": "paid-@<pop.event::/value/id>"},
        ),
    ]

    def held(agenda_id, link_id, customer_id="acme"):
        operations = [{"name": "a", "type": "noop"}]
        common = {"customer_id": customer_id, "link_id": link_id, "hold": True}
        return {"id": agenda_id, "operations": operations, **common}

    async with (
        all_but_pullers(world.settings, within_s=3 * PATIENCE_S) as url,
        ClientSession(url) as session,
        within(3 * PATIENCE_S),
    ):
        await define(world, *rules)
        agendas = [
            held("gone", "file-7"),
            held("freed", "file-8"),
            held("another", "file-9"),
            held("betas", "file-7", "beta"),
        ]
        async with session.post("/v1/agendas", json=agendas) as answer:
            assert answer.status == 202, await answer.text()
        await until(lambda: states(session), lambda one: list(one.values()) == ["held"] * 4)
        await write_values(
            world,
            topic,
            [{"is": "deleted", "id": 7}, {"is": "ready", "id": 8}, {"is": "paid", "id": 9}],
        )
        found = await until(
            lambda: states(session),
            lambda one: (one["gone"], one["freed"] != "held") == ("cancelled", True),
        )
        assert (found["another"], found["betas"]) == ("held", "held")
        kept = await until(lambda: signals(session), bool)
        assert (kept[0]["name"], kept[0]["given_by"]) == ("paid-9", "rule:tell")


async def states(session):
    async with session.get("/v1/agendas") as answer:
        return {one["id"]: one["state"] for one in (await answer.json())["agendas"]}


async def signals(session):
    async with session.get("/v1/signals") as answer:
        return (await answer.json())["signals"]


async def write_values(world, topic, values):
    async with connections.publisher(world.settings, client_id="test") as publisher:
        records = [Record(topic, None, json.dumps(one).encode(), 0) for one in values]
        await publisher.publish(records)


async def until(ask, holds):
    while not holds(found := await ask()):  # noqa: ASYNC110  # other parts work on it
        await asyncio.sleep(0.05)
    return found


async def create_rule(session, one):
    content = one.model_dump(mode="json", exclude_defaults=True)
    async with session.post("/v1/rules", json=content) as answer:
        assert answer.status == 201, await answer.text()


async def progress(session):
    async with session.get("/v1/rules/big/progress") as answer:
        return await answer.json()


async def letters(session):
    async with session.get("/v1/dead-letters") as answer:
        return (await answer.json())["letters"]
