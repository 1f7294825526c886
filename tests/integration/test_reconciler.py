"""Reconciliation by itself: the list it works on, and a system that loses an agenda."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest_asyncio
from agenda_rows import DAY, keep
from deadlines import within
from ledger_world import (
    NOW,
    PATIENCE_S,
    accepted,
    agenda,
    claimed,
    parts,
    running_ledger_world,
    succeeded,
)
from msgspec import Raw
from msgspec.structs import replace
from pydantic import SecretStr

from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.model.agenda import parse_agenda, routed_agenda
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import AgendaCommanded, AgendaRestarted
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.states import State
from pop_stream.postgres import open_agendas as module
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.open_agendas import PostgresOpenAgendas
from pop_stream.postgres.pool import open_pool

MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), target=16)
NOTHING = timedelta(0)


@pytest_asyncio.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield pool


async def look(agendas, quiet=NOTHING):
    """What one look finds on the list."""
    await agendas.scan(quiet)
    return [one.agenda_id async for page in agendas.listed(quiet) for one in page]


async def test_what_has_not_ended_is_listed_until_it_has(pool):
    for state in sorted(set(State), key=str):
        await keep(pool, f"is-{state.value}", state)
    await pool.execute("update agendas set accepted_at = null where state = 'refused'")
    agendas = PostgresOpenAgendas(pool)
    open_states = {one for one in State if not one.is_terminal}
    assert await look(agendas) == sorted(f"is-{one.value}" for one in open_states)
    await pool.execute("update agendas set state = 'succeeded' where agenda_id <> 'is-held'")
    await pool.execute("delete from agendas where agenda_id = 'is-held'")
    assert await look(agendas) == []
    assert await pool.fetchval("select count(*) from open_agendas") == 0


async def test_what_has_ended_is_passed_once_a_round_and_costs_nothing_else(pool, monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 10)
    monkeypatch.setattr(module, "FULL_SCAN_PER_RUN", 20)
    for number in range(50):
        state = State.READY if number == 45 else State.SUCCEEDED
        await keep(pool, f"a-{number:02}", state, accepted=(90 - number) * DAY)
    agendas = PostgresOpenAgendas(pool)
    passed, found = [], []
    for _ in range(5):
        passed.append(await agendas.scan(NOTHING))
        found.append([one.agenda_id async for page in agendas.listed(NOTHING) for one in page])
    assert passed == [20, 20, 10, 20, 20]  # then it begins anew
    assert found == [[], [], ["a-45"], ["a-45"], ["a-45"]]


async def test_what_is_new_is_listed_at_once_however_much_there_is(pool, monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 10)
    monkeypatch.setattr(module, "FULL_SCAN_PER_RUN", 10)
    for number in range(40):
        await keep(pool, f"old-{number:02}", State.SUCCEEDED)
    agendas = PostgresOpenAgendas(pool)
    assert await look(agendas) == []
    await keep(pool, "new", State.READY)
    await pool.execute("update agendas set accepted_at = now() where agenda_id = 'new'")
    assert await look(agendas) == ["new"]
    assert await look(agendas, timedelta(hours=1)) == []  # it is not quiet for so long


async def test_a_long_list_is_looked_at_in_turns(pool, monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 2)
    monkeypatch.setattr(module, "LISTED_PER_RUN", 4)
    for number in range(7):
        await keep(pool, f"a-{number}", State.READY)
    agendas = PostgresOpenAgendas(pool)
    looks = [await look(agendas) for _ in range(3)]
    assert looks == [
        ["a-0", "a-1", "a-2", "a-3"],
        ["a-4", "a-5", "a-6"],
        ["a-0", "a-1", "a-2", "a-3"],
    ]


async def test_one_process_at_a_time_has_the_turn(pool, settings):
    async with open_pool(settings) as other:
        first, second = PostgresOpenAgendas(pool), PostgresOpenAgendas(other)
        async with first.try_lock() as mine, second.try_lock() as theirs:
            assert (mine, theirs) == (True, False)
        async with second.try_lock() as theirs:
            assert theirs


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    port = next(one for one in PORTS if is_free_port(one))
    changes = {
        "reconcile_every": timedelta(seconds=2),
        "http_port": port,
        "signing_secrets": (SecretStr("s" * 32), SecretStr("t" * 32)),
    }
    async with running_ledger_world(
        settings.model_copy(update=changes), tmp_path, MEDIA
    ) as world:
        yield world


async def run_shown_rollup(settings, stop):
    """The rollup alone shows metrics, at the port that no API takes here."""
    await run_rollup(settings.model_copy(update={"metrics_port": settings.http_port}), stop)


async def counted(settings):
    url = f"http://127.0.0.1:{settings.http_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        lines = (await response.text()).splitlines()
    values = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in values}


async def looked(settings, times):
    """Wait until so many looks were complete."""
    async with within(PATIENCE_S):
        while True:
            known = await counted(settings)
            if known.get('pop_reconciliations_total{result="complete"}', 0) >= times:
                return known
            await asyncio.sleep(0.1)


async def test_what_nobody_has_is_placed_again_once_without_a_hand(world):
    runs = (run_ingest, run_scheduler, run_shown_rollup)
    async with parts(world.settings, *runs):
        await world.submit("fine")
        await world.until_known("fine", states={State.EMITTED})
        now = datetime.now(UTC)  # noqa: TID251  # acceptance, as ingest would tell it
        await world.tell(accepted("old"), accepted("died"), claimed("died"))
        await world.tell(accepted("new", at=now))
        await world.until_known("old", "died", "new", states={State.EMITTED})
        known = await looked(world.settings, 4)
        attempts = sorted((one.agenda_id, one.attempt) for one in await world.emitted())
    # One that was claimed may still run somewhere: the next attempt outdates it.
    assert attempts == [("died", 2), ("fine", 1), ("new", 1), ("old", 1)]
    assert known["pop_agendas_requeued_total"] == 3
    assert await world.ledger._pool.fetchval("select count(*) from open_agendas") == 4


FORGERS = (RecordSigner(), RecordSigner([b"f" * 32]))


async def letters(world):
    topic = world.names.dead_letters
    return [json.loads(one.value) async for one in read_topic(world.settings, topic)]


async def test_what_nobody_has_signed_is_done_in_nobodys_name(world):
    """Pullers write to the topic of the lifecycle, and so may whoever has their password."""
    before = RecordSigner([b"t" * 32])
    at = {"at": NOW, "insight_id": "media"}
    again = routed_agenda(
        parse_agenda(json.dumps(agenda("done"))), json.dumps(agenda("done")).encode(),
        agenda_id="done", accepted_at=NOW,
    )  # fmt: skip
    forged = (
        AgendaRestarted(
            **at, agenda_id="done", attempt=2, routed=Raw(encode(replace(again, attempt=2)))
        ),
        AgendaCommanded(**at, agenda_id="fine", action="cancel"),
    )
    async with parts(world.settings, run_ingest, run_scheduler, run_shown_rollup):
        await world.submit("fine", "done")
        await world.until_known("fine", "done", states={State.EMITTED})
        await world.tell(claimed("done"), succeeded("done"))
        await world.until_known("done", states={State.SUCCEEDED})
        for number, forger in enumerate(FORGERS):
            await world.tell(accepted(f"forged-{number}"), *forged, signer=forger)
        await world.tell(accepted("old"), signer=before)
        await world.until_known("old", states={State.EMITTED})
        known = await looked(world.settings, 4)
        emitted = sorted((one.agenda_id, one.attempt) for one in await world.emitted())
        states = await world.ledger.states(["forged-0", "forged-1", "fine", "done"])
    assert emitted == [("done", 1), ("fine", 1), ("old", 1)]
    assert known["pop_agendas_requeued_total"] == 1
    found = {one: state.state for one, state in states.items()}
    assert found == {"fine": State.EMITTED, "done": State.SUCCEEDED}
    refused = [(one["code"], one["part"]) for one in await letters(world)]
    assert refused == [("unauthenticated", "rollup")] * 3 * len(FORGERS)
