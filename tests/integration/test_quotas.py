"""Quotas over two processes of the API, ingest and a scheduler, on a real Kafka."""

import asyncio
import json
import secrets
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec
import pytest_asyncio
from databases import database
from deadlines import scaled, within
from part_processes import process
from parts_in_process import ending_in_order
from pydantic import SecretStr

from pop_stream.composition.api import run_api
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaRefused
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record
from pop_stream.postgres.migrate import migrate
from pop_stream.settings import Settings

PATIENCE_S = 60
REPORTED_S = 1.0  # two reports and two reads
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), target=4)
LARGE = Insight(id="large", mappers=Mappers(operation_types=("bulk",)), target=4)
SMALL = Insight(id="small", mappers=Mappers(operation_types=("few",)), target=4)
SHALLOW = Insight(
    id="shallow", mappers=Mappers(operation_types=("rare",)), max_ready=10, paused=True
)


class World:
    """A system with several ingresses, and a count of what each admitted."""

    def __init__(self, settings, urls, publisher, session):
        self.settings = settings
        self.topics = Topics(settings.topic_prefix)
        self.urls = urls
        self.publisher = publisher
        self.session = session

    async def post(self, ingress, customer_id, count, kind="noop"):
        """Submit a list at an ingress; how many it admitted, and the answer."""
        body = [agenda(customer_id, kind) for _ in range(count)]
        async with self.session.post(f"{self.urls[ingress]}/v1/agendas", json=body) as response:
            got = await response.json(content_type=None)
            return got.get("accepted", 0), response.status, got, response.headers

    async def send(self, customer_id, count, kind="noop"):
        """Submit over Kafka, one record each."""
        value = json.dumps(agenda(customer_id, kind)).encode()
        record = Record(self.topics.submissions, None, value)
        await self.publisher.publish([record] * count)

    async def queue(self, insight_id="media"):
        url = f"{self.urls[0]}/v1/insights/{insight_id}/queue"
        async with self.session.get(url) as response:
            return await response.json(content_type=None)

    async def ready(self, customer_id):
        """What ingresses and schedulers have: settled, as the API shows it."""
        got = await self.queue()
        shown = {one["customer_id"]: one["ready"] for one in got.get("customers", ())}
        return shown.get(customer_id, 0)

    async def until_ready(self, customer_id, count):
        async with within(PATIENCE_S):
            while await self.ready(customer_id) != count:  # noqa: ASYNC110  # another process tells
                await asyncio.sleep(0.1)
        await asyncio.sleep(scaled(REPORTED_S))

    async def letters(self, customer_id, count):
        """So many dead letters that name the customer, as soon as they are there."""
        async with within(PATIENCE_S):
            while True:
                found = [
                    msgspec.json.decode(one.value, type=RecordRefused)
                    async for one in read_topic(self.settings, self.topics.dead_letters)
                    if customer_id.encode() in one.value
                ]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.2)


def agenda(customer_id, kind="noop"):
    return {"customer_id": customer_id, "operations": [{"name": "only", "type": kind}]}


@asynccontextmanager
async def ingresses(settings, count):
    """So many APIs; their addresses."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    urls = [loop.create_future() for _ in range(count)]
    parts = (run_api(settings, stop, on_url=url.set_result) for url in urls)
    async with ending_in_order(stop, *parts):
        yield [await url for url in urls]


@pytest_asyncio.fixture(scope="module")
async def world(servers, tmp_path_factory):
    """Two ingresses, and a scheduler; each test has customers of its own."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        settings = Settings(
            kafka_bootstrap=servers.bootstrap,
            postgres_dsn=SecretStr(await enter(database(servers.dsn))),
            topic_prefix=f"t{secrets.token_hex(4)}.",
            http_port=0,
            scheduler_data=tmp_path_factory.mktemp("quotas") / "table",
            scheduler_max_agendas=300,
        )
        await migrate(settings.postgres_dsn.get_secret_value())
        await provisioning.ensure_topics(settings)
        publisher = await enter(connections.publisher(settings, client_id="test"))
        few = [Customer(id=f"few-{n}", max_ready=20, paused=True) for n in range(3)]
        slow = Customer(id="slow", max_submit_per_s=0.001, submit_burst=10)
        defined = [MEDIA, LARGE, SMALL, SHALLOW, *few, slow]
        names = Topics(settings.topic_prefix)
        await publish_definitions(publisher, names, defined, Definitions())
        stop = asyncio.Event()
        await enter(ending_in_order(stop, run_scheduler(settings, stop)))
        urls = await enter(ingresses(settings, 2))
        yield World(settings, urls, publisher, await enter(aiohttp.ClientSession()))


async def test_a_quota_of_ready_agendas_holds_over_all_entry_points(world):
    async with process("run_ingest", world.settings):
        assert (await world.post(0, "few-0", 15))[0] == 15
        await world.until_ready("few-0", 15)
        accepted, *_ = await world.post(1, "few-0", 15)
        assert accepted == 5
        await world.until_ready("few-0", 20)
        accepted, status, got, headers = await world.post(0, "few-0", 1)
        assert (accepted, status, int(headers["Retry-After"]) > 0) == (0, 429, True)
        assert [got[one] for one in ("customer_id", "quota", "limit", "present")] == [
            "few-0", "max_ready", 20, 20,
        ]  # fmt: skip
        await world.send("few-0", 3)
        found = await world.letters("few-0", 3)
        assert {(one.code, "may have 20" in one.reason) for one in found} == {("quota", True)}
        assert (await world.post(0, "other", 5))[0] == 5
        assert await world.ready("few-0") == 20
    # An ingress that just started knows it, though nothing happens any more.
    async with ingresses(world.settings, 1) as [url]:
        world.urls.append(url)
        assert (await world.post(-1, "few-0", 1))[1] == 429


async def test_a_rate_holds_over_all_entry_points(world):
    async with process("run_ingest", world.settings):
        assert (await world.post(0, "slow", 15))[0] == 10
        await asyncio.sleep(scaled(REPORTED_S))
        accepted, status, got, _ = await world.post(1, "slow", 1)
        assert (accepted, status, got["quota"]) == (0, 429, "max_submit_per_s")
        await world.send("slow", 3)
        assert {one.code for one in await world.letters("slow", 3)} == {"quota"}


async def test_two_ingresses_at_once_admit_no_more_than_each_alone(world):
    async with process("run_ingest", world.settings):
        first, second = await asyncio.gather(
            world.post(0, "few-1", 40), world.post(1, "few-1", 40)
        )
        assert first[0] <= 20
        assert second[0] <= 20
        # Nothing that was accepted is refused.
        await world.until_ready("few-1", first[0] + second[0])
        assert (await world.post(0, "few-1", 1))[1] == 429


async def test_what_ingest_accepted_before_it_was_killed_is_routed_by_the_next(world):
    async with process("run_ingest", world.settings, crash_point="ingest.accepted") as dying:
        body = [agenda("few-2") for _ in range(30)]  # one record: it is read again as a whole
        value = json.dumps(body).encode()
        await world.publisher.publish([Record(world.topics.submissions, None, value)])
        async with within(PATIENCE_S):
            await dying.wait()
    got = [
        event
        async for one in read_topic(world.settings, world.topics.agenda_events)
        for event in decode_lifecycle(one.value)
    ]
    accepted = {
        one.agenda_id
        for one in got
        if isinstance(one, AgendaAccepted) and one.customer_id == "few-2"
    }
    assert accepted
    assert len(accepted) <= 20
    async with process("run_ingest", world.settings):
        # What the last batch would have refused is let in, for part of it was accepted.
        await world.until_ready("few-2", 30)
        await world.send("few-2", 2)
        found = await world.letters("few-2", 2)
    refused = {(one.partition, one.offset) for one in found if one.code == "quota"}
    assert len(refused) >= 2
    late = [
        event.agenda_id
        async for one in read_topic(world.settings, world.topics.agenda_events)
        for event in decode_lifecycle(one.value)
        if isinstance(event, AgendaRefused)
    ]
    assert not accepted & {*late}


async def test_an_insight_takes_so_many_over_all_entry_points_and_lets_priority_1_pass(world):
    async with process("run_ingest", world.settings):
        assert (await world.post(0, "one", 6, "rare"))[0] == 6
        await asyncio.sleep(scaled(REPORTED_S))
        assert (await world.post(1, "two", 6, "rare"))[0] == 4
        async with within(PATIENCE_S):
            while (await world.queue("shallow")).get("ready") != 10:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(scaled(REPORTED_S))
        _, status, got, headers = await world.post(0, "three", 1, "rare")
        assert (status, got["code"], int(headers["Retry-After"]) > 0) == (
            429, "insight_quota", True,
        )  # fmt: skip
        assert (got["insight_id"], got["limit"], got["present"]) == ("shallow", 10, 10)
        await world.send("four", 2, "rare")
        found = await world.letters("shallow", 2)  # what the reason names
        assert {one.code for one in found} == {"insight_quota"}
        urgent = agenda("three", "rare") | {"priority": 1}
        async with world.session.post(f"{world.urls[0]}/v1/agendas", json=urgent) as response:
            assert response.status == 202
        async with within(PATIENCE_S):
            while (shown := await world.queue("shallow")).get("ready") != 11:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert shown["limited_by"] == "paused"


async def test_a_reported_health_is_in_force_until_it_is_void(world):
    url = f"{world.urls[0]}/v1/insights/media/health"
    report = {"coefficient": 0, "ttl_s": scaled(3), "source": "disk", "reason": "full"}
    async with world.session.put(url, json=report) as response:
        assert response.status == 202
    async with within(PATIENCE_S):
        while (shown := await world.queue()).get("health_by") != "disk":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert (shown["health"], shown["health_reason"], shown["slots"]) == (0, "full", 0)
    async with within(PATIENCE_S):  # nobody takes it back
        while (await world.queue()).get("health") != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_full_scheduler_closes_its_large_insights(world):
    async with process("run_ingest", world.settings):
        assert (await world.post(0, "other", 310, "bulk"))[0] == 310
        async with within(PATIENCE_S):
            while (await world.post(1, "other", 1, "bulk"))[1] != 503:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        _, status, got, headers = await world.post(1, "other", 1, "bulk")
        assert (status, got["code"], "Retry-After" in headers) == (503, "insight_full", True)
        assert (got["insight_id"], got["limit"]) == ("large", 300)
        assert got["present"] >= 300
        _, status, got, _ = await world.post(1, "other", 1, "few")
        assert status == 202, got["detail"]
