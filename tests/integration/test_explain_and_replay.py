"""The whole system in one process: why agendas wait, and that rounds can be chosen again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from deadlines import within
from parts_in_process import all_but_pullers

from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.lab.replay.decisions_log import DecisionHistory, read_history
from pop_stream.lab.replay.replay import (
    ReplayedRound,
    UnreadableRecord,
    first_inexact_round,
    replay,
)
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record
from pop_stream.puller import Puller
from pop_stream.puller.handlers.builtin import builtin
from pop_stream.scheduler import insight
from pop_stream.settings import Settings

PATIENCE_S = 60
INSIGHT = Insight(id="media", mappers=Mappers(operation_types=("noop",)), target=8, low_water=8)
HELD = Customer(id="held", paused=True)


class System:
    """All parts but pullers, and their API."""

    def __init__(self, settings: Settings, url: str, session: aiohttp.ClientSession) -> None:
        self.settings = settings
        self._url = url
        self._session = session

    async def submit(self, customer_id: str, count: int, **fields: Any) -> None:
        agendas = [
            {
                "id": f"{customer_id}-{number}",
                "customer_id": customer_id,
                "link_id": "all",
                "operations": [{"name": "only", "type": "noop"}],
                **fields,
            }
            for number in range(count)
        ]
        async with self._session.post(f"{self._url}/v1/agendas", json=agendas) as response:
            assert response.status == 202, await response.text()

    async def get(self, path: str) -> Any:
        async with self._session.get(f"{self._url}{path}") as response:
            return await response.json() if response.status == 200 else None

    async def until(self, path: str, is_met: Callable[[Any], bool]) -> Any:
        async with within(PATIENCE_S):
            while True:
                answer = await self.get(path)
                if answer is not None and is_met(answer):
                    return answer
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def system(settings: Settings, tmp_path) -> AsyncIterator[System]:
    known = settings.model_copy(update={"scheduler_data": tmp_path / "scheduler"})
    await provisioning.migrate(known)
    async with connections.publisher(known, client_id="test") as publisher:
        topics = Topics(known.topic_prefix)
        await publish_definitions(publisher, topics, [INSIGHT, HELD], Definitions())
    async with (
        all_but_pullers(known, within_s=PATIENCE_S) as url,
        aiohttp.ClientSession() as session,
    ):
        yield System(known, url, session)


class Again(NamedTuple):
    history: DecisionHistory
    rounds: list[ReplayedRound]
    missed: list[UnreadableRecord]


def chosen_again(settings: Settings) -> Again:
    history = read_history(settings, "media")
    rounds = replay(
        history.inputs, history.decisions, history.definitions_at, history.beginnings
    )
    return Again(history, [*rounds], [*history.unreadable])


async def forget_first_rounds(settings: Settings) -> int:
    """Delete decisions as their retention does; returns the first round that is left."""
    name = Topics(settings.topic_prefix).decisions
    consumer = clients.consumer(settings, name, client_id="test", group_id=None)
    async with consumer, connections.admin_client(settings) as admin:
        await consumer.seek_to_beginning()
        async for record in consumer:
            event = msgspec.json.decode(record.value)
            if event["type"] == "round.checkpoint" and event["round"] > 1:
                place = TopicPartition(name, record.partition)
                await admin.delete_records(
                    {place: RecordsToDelete(before_offset=record.offset)}
                )
                return event["round"]
    raise AssertionError(name)


async def spoil(settings: Settings) -> set[tuple[str, int, int]]:
    """Records that nobody can read, one among its rounds and one among its events."""
    topics = Topics(settings.topic_prefix)
    known = await asyncio.to_thread(chosen_again, settings)
    ready = Record(topics.ready, b"media", b"{", known.history.decisions[-1].partition)
    decision = Record(topics.decisions, b"media", b'{"type": "other"}')
    async with connections.publisher(settings, client_id="test") as publisher:
        written = await publisher.publish([ready, decision])
    return {
        (record.topic, one.partition, one.offset)
        for record, one in zip((ready, decision), written, strict=True)
    }


async def test_a_waiting_agenda_is_explained_and_its_rounds_come_out_again(system, monkeypatch):
    monkeypatch.setattr(insight, "CHECKPOINT_EVERY_S", 0.0)
    await system.submit("acme", 30)
    await system.submit("held", 2)

    queue = await system.until(
        "/v1/insights/media/queue", lambda one: (one["ready"], one["lag"]) == (24, 8)
    )
    assert {one["customer_id"]: one["held_by"] for one in queue["customers"]} == {
        "acme": None,
        "held": "paused",
    }

    answers = [await system.get(f"/v1/agendas/acme-{number}/why") for number in range(30)]
    waiting = [one for one in answers if one["position"]]
    assert sorted(one["position"] for one in waiting) == [*range(1, 23)]
    assert all(one["own_ahead"] == one["position"] - 1 for one in waiting)
    assert all("are pullers running?" in one["why"] for one in waiting)
    emitted = [one["why"] for one in answers if not one["position"]]
    in_line = (
        "next in line: one of 8 emitted agendas that pullers take; nothing is being claimed"
    )
    assert emitted == [f"{in_line} at present: are pullers running?"] * 8
    held = await system.get("/v1/agendas/held-0/why")
    assert "customer held is paused" in held["why"]

    spoiled = await spoil(system.settings)

    stop = asyncio.Event()
    puller = Puller(
        insight="media", handlers=builtin(system.settings), settings=system.settings
    )
    pulling = asyncio.create_task(puller.serve(stop))
    done = await system.until(
        "/v1/links/all/summary", lambda one: one["counts"].get("succeeded") == 30
    )
    stop.set()
    await pulling
    assert done["total"] == 32
    ended = await system.get("/v1/agendas/acme-0/why")
    assert ended["why"] == "it has ended: succeeded"

    history, rounds, missed = await asyncio.to_thread(chosen_again, system.settings)
    assert sum(len(one.recorded.chosen) for one in rounds) == 30
    assert all(one.is_same for one in rounds)
    assert {(one.topic, one.partition, one.offset) for one in missed} == spoiled
    doubtful = first_inexact_round(history.decisions, missed)
    assert doubtful is not None
    assert doubtful.round > 1

    begin = await forget_first_rounds(system.settings)
    rest, later, _ = await asyncio.to_thread(chosen_again, system.settings)
    assert rest.decisions[0].round == begin > 1
    assert later[0].recorded.round == begin
    assert all(one.is_same for one in later)
