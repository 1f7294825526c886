"""A run that is divided, on real servers: its puller killed in the middle, and cancelled."""

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager

import aiohttp
import pytest
from deadlines import scaled, within
from parts_in_process import all_but_pullers

from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_emitted
from pop_stream.operations import provisioning

PATIENCE_S = 90
CHILDREN = 120
LEASE_MS = int(scaled(3) * 1000)
TEMPLATE = {
    "id": "reports",
    "agenda": {
        "customer_id": "acme",
        "operations": [{"name": "sum", "type": "noop", "payload": "@<pop.payload::/stores>"}],
    },
    "split": {"attributes": ["store"]},
}
PAYLOAD = {"stores": [*range(CHILDREN)], "isolate_stores": True}
DEFINITIONS = (
    Insight(
        id="splits",
        mappers=Mappers(operation_types=("split",)),
        lease_ms=LEASE_MS,
        max_attempts=20,
    ),
    Insight(id="reports", mappers=Mappers(operation_types=("noop",)), partitions=1),
    # Slowly enough that a puller can be killed while it submits.
    Customer(id="acme", max_submit_per_s=40, submit_burst=10),
)


class Api:
    def __init__(self, session, url):
        self._session, self.url = session, url

    async def call(self, method, path, body=None):
        async with self._session.request(method, f"{self.url}{path}", json=body) as response:
            return response.status, await response.json(content_type=None)

    async def until(self, path, is_met):
        async with within(PATIENCE_S):
            while True:
                status, answer = await self.call("GET", path)
                if status == 200 and is_met(answer):
                    return answer
                await asyncio.sleep(0.02)


@pytest.fixture
async def known(settings, tmp_path):
    made = settings.model_copy(update={"scheduler_data": tmp_path / "scheduler"})
    await provisioning.migrate(made)
    async with connections.publisher(made, client_id="test") as publisher:
        topics = Topics(made.topic_prefix)
        await publish_definitions(publisher, topics, DEFINITIONS, Definitions())
    return made


@pytest.fixture
async def api(known):
    async with (
        all_but_pullers(known, within_s=2 * PATIENCE_S) as url,
        aiohttp.ClientSession() as session,
    ):
        made = Api(session, url)
        status, answer = await made.call("POST", "/v1/agenda-templates", TEMPLATE)
        assert status == 201, answer
        yield made


@asynccontextmanager
async def pulling(settings, api, *insights):
    """A puller in a process of its own, killed at the end."""
    named = [part for one in insights for part in ("--insight", one)]
    variables = {
        "POP_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "POP_TOPIC_PREFIX": settings.topic_prefix,
        "POP_API_URL": api.url,
    }
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pop_stream", "pull", *named), env=os.environ | variables
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGKILL)
        await started.wait()


def submitted(link):
    return sum(link["counts"].values())


async def test_split_whose_puller_is_killed_in_the_middle_yields_each_child_once(known, api):
    run = "/v1/agenda-templates/reports/run"
    async with pulling(known, api, "splits") as first:
        status, answer = await api.call("POST", run, {"payload": PAYLOAD, "id": "night"})
        assert status == 202, answer
        link = "/v1/links/night/summary"
        some = await api.until(link, lambda one: submitted(one) >= CHILDREN // 6)
        assert submitted(some) < CHILDREN
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with pulling(known, api, "splits", "reports"):
        ended = await api.until(link, lambda one: one["counts"].get("succeeded") == CHILDREN)
        parent = await api.until("/v1/agendas/night", lambda one: one["state"] == "succeeded")
    assert ended["total"] == CHILDREN
    assert parent["attempt"] >= 2
    _, progress = await api.call("GET", "/v1/agendas/night/progress")
    assert progress["operations"][0]["result"] == {"children": CHILDREN, "link_id": "night"}
    _, third = await api.call("GET", "/v1/agendas/night.3")
    assert (third["agenda"]["parent_id"], third["customer_id"]) == ("night", "acme")
    assert third["agenda"]["operations"][0]["payload"] == [2]
    topic = Topics(known.topic_prefix).insight("reports")
    emitted = [decode_emitted(one.value) async for one in read_topic(known, topic)]
    starts = Counter(one.agenda_id for one in emitted)
    assert starts == {f"night.{number}": 1 for number in range(1, CHILDREN + 1)}


async def test_split_is_cancelled_by_its_link(known, api):
    body = {"payload": PAYLOAD, "id": "day", "link_id": "today"}
    async with pulling(known, api, "splits"):
        status, answer = await api.call("POST", "/v1/agenda-templates/reports/run", body)
        assert status == 202, answer
        await api.until("/v1/links/today/summary", lambda one: submitted(one) > 5)
        cancel = {"action": "cancel", "filter": {"link_id": ["today"]}}
        status, answer = await api.call("POST", "/v1/commands", cancel)
        assert status == 202, answer
        parent = await api.until(
            "/v1/agendas/day", lambda one: one["state"] in {"cancelled", "succeeded"}
        )
        assert parent["state"] == "cancelled"
        # Children that were accepted while the first call ran are cancelled by a second one.
        async with within(PATIENCE_S):
            while True:
                await api.call("POST", "/v1/commands", cancel)
                _, link = await api.call("GET", "/v1/links/today/summary")
                if set(link["counts"]) == {"cancelled"}:
                    break
                await asyncio.sleep(0.1)
    assert 5 < submitted(link) < CHILDREN
