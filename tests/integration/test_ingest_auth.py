"""Who may submit over Kafka and HTTP, on real servers: keys, their ends, and Postgres away."""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec
import pytest
from aiokafka import TopicPartition
from deadlines import within
from parts_in_process import ending_in_order
from pydantic import SecretStr

from pop_stream.composition.api import run_api
from pop_stream.composition.ingest import run_ingest
from pop_stream.kafka import clients, connections, topics
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record

WITHIN_S = 30
ACTS_WITHIN_S = 3.0
"""Two seconds that a key is believed without asking, and one for a slow machine."""

DEFINITIONS = """
[insights.media]
mappers = { operation_types = ["work"] }
"""
WORK = [{"name": "only", "type": "work"}]
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass
class World:
    settings: object
    session: aiohttp.ClientSession
    urls: list
    publisher: object
    seen: dict

    async def key(self, *arguments):
        """Run `pop-stream key …`; its JSON."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pop_stream", "key", *arguments, "--json",
            stdout=asyncio.subprocess.PIPE,
            env=os.environ
            | {"POP_POSTGRES_DSN": self.settings.postgres_dsn.get_secret_value()},
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0
        return json.loads(out.splitlines()[-1])

    async def create(self, customer, *roles):
        whom = ["--operator"] if customer is None else ["--customer", customer]
        return await self.key("create", *whom, *(f"--role={one}" for one in roles))

    async def call(self, method, path, token, body=None, process=0):
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.urls[process]}{path}"
        async with self.session.request(method, url, json=body, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def produce(self, agenda, token=None, **got):
        headers = [(name, value.encode()) for name, value in got.items()]
        if token is not None:
            headers.append(("authorization", f"Bearer {token}".encode()))
        names = Topics(self.settings.topic_prefix)
        value = json.dumps(agenda).encode()
        await self.publisher.publish([Record(names.submissions, None, value, headers=headers)])

    async def read(self, topic, decode):
        """All of a topic's events, those read before included."""
        known, offsets = self.seen.setdefault(topic, ([], {}))
        async with clients.consumer(self.settings, client_id="t", group_id=None) as consumer:
            names = Topics(self.settings.topic_prefix)
            [spec] = [one for one in topics.catalog(names) if one.name == topic]
            partitions = [TopicPartition(topic, one) for one in range(spec.partitions)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            for one in partitions:
                consumer.seek(one, offsets.get(one, 0))
            while any(offsets.get(one, 0) < end for one, end in ends.items()):
                for one, records in (await consumer.getmany(timeout_ms=200)).items():
                    offsets[one] = records[-1].offset + 1
                    for record in records:
                        known += decode(record.value)
        return known

    async def accepted(self):
        names = Topics(self.settings.topic_prefix)
        got = await self.read(names.agenda_events, decode_lifecycle)
        return [one for one in got if type(one).__name__ == "AgendaAccepted"]

    async def letters(self):
        names = Topics(self.settings.topic_prefix)

        def decode(value):
            return [msgspec.json.decode(value, type=RecordRefused)]

        return await self.read(names.dead_letters, decode)


async def until(look):
    async with within(WITHIN_S):
        while not (found := await look()):  # noqa: ASYNC110  # no event reaches a client
            await asyncio.sleep(0.1)
        return found


@asynccontextmanager
async def running(part, *arguments):
    stop = asyncio.Event()
    async with ending_in_order(stop, part(*arguments[:1], stop, *arguments[1:])):
        yield


@asynccontextmanager
async def serving(settings):
    url = asyncio.get_running_loop().create_future()
    async with running(run_api, settings, url.set_result):
        yield await url


@pytest.fixture
async def prepared(settings, tmp_path):
    file = tmp_path / "definitions.toml"
    file.write_text(DEFINITIONS)
    settings = settings.model_copy(
        update={
            "definitions_file": file,
            "auth": "required",
            "ingest_auth": "required",
            "signing_secrets": (SecretStr("s" * 32),),
        }
    )
    await provisioning.migrate(settings)
    return settings


@pytest.fixture
async def world(prepared):
    """Two processes' worth of the API, each with what it knows of keys."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        session = await enter(aiohttp.ClientSession())
        publisher = await enter(connections.publisher(prepared, client_id="producer"))
        urls = [await enter(serving(prepared)) for _ in range(2)]
        yield World(prepared, session, urls, publisher, {})


async def test_records_are_accepted_by_their_sender_and_the_rest_is_refused_with_the_reason(
    world,
):
    acme, beta = [await world.create(one, "submit") for one in ("acme", "beta")]
    ended = await world.create("acme", "submit")
    await world.key("revoke", ended["id"])
    reader = await world.create("acme", "read")
    cases = {
        "own": (acme["token"], "acme", None),
        "same id": (beta["token"], "beta", None),
        "none": (None, "acme", "unauthenticated"),
        "noise": ("nonsense", "acme", "unauthenticated"),
        "ended": (ended["token"], "acme", "unauthenticated"),
        "another's": (acme["token"], "beta", "forbidden"),
        "no role": (reader["token"], "acme", "forbidden"),
    }
    async with running(run_ingest, world.settings):
        for token, customer, _ in cases.values():
            agenda = {"id": "k1", "customer_id": customer, "operations": WORK}
            await world.produce(agenda, token, traceparent=TRACE)
        wish = {"id": "h1", "customer_id": "beta", "operations": WORK}
        status, got = await world.call("POST", "/v1/agendas", beta["token"], wish)
        assert (status, got["id"]) == (202, "h1")  # sealed on its way to ingest
        refused = [code for _, _, code in cases.values() if code]

        async def all_decided():
            return len(await world.accepted()) + len(await world.letters()) == len(cases) + 1

        await until(all_decided)
    found = {(one.agenda_id, one.customer_id) for one in await world.accepted()}
    assert found == {("k1@acme", "acme"), ("k1@beta", "beta"), ("h1@beta", "beta")}
    by_kafka = [one for one in await world.accepted() if one.agenda_id.startswith("k1")]
    traces = [json.loads(bytes(one.agenda))["trace"] for one in by_kafka]
    assert traces == [{"traceparent": TRACE}] * 2
    letters = await world.letters()
    assert sorted(one.code for one in letters) == sorted(refused)
    assert all(one.reason for one in letters)


async def test_keys_begin_and_end_everywhere_within_seconds_however_they_are_changed(world):
    admin = (await world.create(None, "admin"))["token"]
    by_command = await world.create("acme", "submit", "read")
    _, by_api = await world.call(
        "POST", "/v1/keys", admin, {"customer_id": "acme", "roles": ["submit", "read"]}
    )

    async def works(token, process):
        status, _ = await world.call("GET", "/v1/agendas", token, process=process)
        assert status in {200, 401}
        return status == 200

    for made in (by_command, by_api):
        assert [await works(made["token"], one) for one in (0, 1)] == [True, True]
    new = await world.key("rotate", by_command["id"], "--grace-minutes", "0")
    status, _ = await world.call("POST", f"/v1/keys/{by_api['id']}/revoke", admin, process=1)
    assert status == 200
    async with within(ACTS_WITHIN_S):
        for made in (by_command, by_api):
            for process in (0, 1):
                while await works(made["token"], process):  # noqa: ASYNC110  # no event
                    await asyncio.sleep(0.05)
    assert [await works(new["token"], one) for one in (0, 1)] == [True, True]
    _, audit = await world.call("GET", "/v1/audit?kind=key&limit=3", admin)
    actions = [one["action"] for one in audit["entries"]]
    assert actions == ["revoked", "rotated", "created"]


async def test_who_starts_while_postgres_is_away_takes_submissions_all_the_same(
    world, unused_tcp_port
):
    acme = await world.create("acme", "submit")
    ended = await world.create("acme", "submit")
    await world.key("revoke", ended["id"])
    away = world.settings.model_copy(
        update={"postgres_dsn": SecretStr(f"postgresql://127.0.0.1:{unused_tcp_port}/none")}
    )

    async def are_reported():
        """Whether both keys, and the end of one, are on the topic: the API took them there."""
        async with DefinitionFollower(world.settings, client_id="look") as follower:
            known = [follower.api_key(one["id"]) for one in (acme, ended)]
        return all(known) and known[1].revoked_at is not None

    await until(are_reported)
    agenda = {"customer_id": "acme", "operations": WORK}
    async with running(run_ingest, away), serving(away) as url:
        world.urls.append(url)
        await world.produce({**agenda, "id": "k1"}, acme["token"])
        await world.produce({**agenda, "id": "k2"}, ended["token"])
        for token, expected in ((acme["token"], 202), (ended["token"], 401)):
            wish = {**agenda, "id": "h1"}
            status, got = await world.call("POST", "/v1/agendas", token, wish, process=2)
            assert status == expected, got

        async def decided():
            return len(await world.accepted()) == 2 and await world.letters()

        await until(decided)
    assert {one.agenda_id for one in await world.accepted()} == {"k1@acme", "h1@acme"}
    assert [one.code for one in await world.letters()] == ["unauthenticated"]
