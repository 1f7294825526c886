"""Every part, killed with -9 at every place between two effects, while work goes on.

One system for all places: the part in question is started with the fault, and its supervisor
starts it again once it has died there. Judged by Kafka, Postgres and the file of starts.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from pathlib import Path

import crash_points
import pytest
import pytest_asyncio
from databases import database
from deadlines import scaled, within
from pydantic import SecretStr

from pop_stream.client import Client, Retry
from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.devserver.supervisor import RestartPolicy, Supervisor, command_part
from pop_stream.kafka import connections
from pop_stream.kafka.topics import Topics
from pop_stream.lab.chaos.handlers import STARTS, WORK
from pop_stream.lab.chaos.judge import ChaosVerdict, evaluate, gather_evidence
from pop_stream.operations import provisioning
from pop_stream.operations.environment import environment_variables
from pop_stream.ports.publisher import Record
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

PATIENCE_S = 150  # far above what is promised: only loss counts
AGENDAS = 60
DEFINITIONS = """
[insights.chaos-a]
mappers = { operation_types = ["chaos.work"] }
lease_ms = LEASE
target = 12
backoff = { first_s = 0.1, most_s = 0.2 }
"""
HANDLERS = "--handlers=pop_stream.lab.chaos.handlers:handlers"
PARTS = {
    "rollup": command_part("rollup", "rollup", stage="rollup"),
    "scheduler": command_part("scheduler", "scheduler", stage="scheduler"),
    "ingest": command_part("ingest", "ingest", stage="ingest"),
    "api": command_part("api", "serve", stage="api"),
    "puller": command_part("puller", "pull", "--insight=chaos-a", HANDLERS, stage="puller"),
}
CRASH_POINTS = {
    # At which pass: the parts' own starts come by some places, and a few batches come first.
    "api.acknowledged": 1,
    "ingest.accepted": 1,
    "ingest.routed": 1,
    "relay.published": 2,
    "scheduler.emitting": 2,
    "scheduler.emitted": 2,
    "scheduler.recorded": 2,
    "scheduler.recorded_half": 2,
    "scheduler.decided": 2,
    "puller.claimed": 2,
    "puller.committed": 2,
    "puller.ran": 5,
    "rollup.folding": 1,
    "rollup.folded": 1,
}
MADE_GOOD = {"scheduler.recorded", "scheduler.recorded_half"}


@dataclass
class World:
    settings: Settings
    supervisor: Supervisor
    folder: Path
    starts: Path

    async def arm(self, place: str, passes: int) -> Path:
        """Start the part anew so that it dies at the place, once; the file that tells."""
        part = PARTS["ingest" if place.startswith("relay") else place.partition(".")[0]]
        spent = self.folder / f"spent-{place}"
        arguments = part.command[len(crash_points.command(None)) :]
        command = (*crash_points.command(f"{place}:{passes}", spent), *arguments)
        await self.supervisor.stop(part.name)
        await self.supervisor.start(replace(part, command=command))
        return spent

    async def submit(self, run: str) -> set[str]:
        """Agendas in lots of ten, every other lot over Kafka; what was acknowledged."""
        ids = [f"{run}-{number}" for number in range(AGENDAS)]
        topic = Topics(self.settings.topic_prefix).submissions
        async with (
            Client(self.settings.api_url, retry=SURE) as api,
            connections.publisher(self.settings, client_id="test") as publisher,
        ):
            for first in range(0, AGENDAS, 10):
                lot = [agenda(one) for one in ids[first : first + 10]]
                if first % 20:
                    await api.submit_many(lot)
                else:
                    values = [json.dumps(one).encode() for one in lot]
                    await publisher.publish([Record(topic, None, value) for value in values])
                await asyncio.sleep(0.1)  # so that there are batches to die between
        return set(ids)

    async def ended(self, wanted: set[str]) -> None:
        waiting = wanted
        async with open_pool(self.settings) as pool:
            ledger = PostgresSummaryScan(pool)
            async with within(PATIENCE_S):
                while waiting:
                    entries = await ledger.states([*waiting])
                    waiting = waiting - {
                        k for k, one in entries.items() if one.state.is_terminal
                    }
                    await asyncio.sleep(0.1)

    async def judged(self, run: str, accepted: set[str]) -> ChaosVerdict:
        evidence = await gather_evidence(self.settings, f"{run}-", self.starts)
        evidence.starts = [s for s in evidence.starts if s.agenda_id.startswith(f"{run}-")]
        evidence.emissions = [
            one for one in evidence.emissions if one.agenda_id.startswith(f"{run}-")
        ]
        return evaluate(evidence, dict.fromkeys(accepted, inf), [])  # reported in time or not


SURE = Retry(within=timedelta(seconds=PATIENCE_S))
"""Again with the same ids until there is a 202."""


def agenda(agenda_id: str) -> dict:
    operation = {"name": "only", "type": WORK, "payload": 0.02}
    return {"id": agenda_id, "customer_id": "a", "operations": [operation]}


async def until(seen) -> None:
    async with within(PATIENCE_S):
        while not seen():  # noqa: ASYNC110  # another process tells
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module")
async def world(servers, tmp_path_factory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("crash-windows")
    definitions = folder / "definitions.toml"
    definitions.write_text(DEFINITIONS.replace("LEASE", f"{scaled(4000.0):.0f}"))
    port = next(one for _ in PORTS if is_free_port(one := secrets.choice(PORTS)))
    async with database(servers.dsn) as dsn:
        settings = Settings(
            kafka_bootstrap=servers.bootstrap,
            postgres_dsn=SecretStr(dsn),
            topic_prefix=f"t{secrets.token_hex(4)}.",
            definitions_file=definitions,
            http_port=port,
            api_url=f"http://127.0.0.1:{port}",
            session_timeout=scaled(timedelta(seconds=3)),
            heartbeat=timedelta(seconds=1),
        )
        await provisioning.migrate(settings)
        starts = folder / "starts"
        known = {
            "kafka_bootstrap": settings.kafka_bootstrap,
            "postgres_dsn": dsn,
            "topic_prefix": settings.topic_prefix,
            "http_port": port,
            "scheduler_data": folder / "table",
            "session_timeout": settings.session_timeout,
            "heartbeat": settings.heartbeat,
        }
        async with Supervisor(
            folder / "logs",
            environment={**environment_variables(known), STARTS: str(starts)},
            policy=RestartPolicy(longest_pause=timedelta(milliseconds=250)),
        ) as supervisor:
            for part in PARTS.values():
                await supervisor.start(part)
            world = World(settings, supervisor, folder, starts)
            await world.ended(await world.submit("warm"))
            yield world


def test_every_place_is_tried_here_or_in_another_test():
    here = Path(__file__)
    others = "".join(
        path.read_text()
        for path in here.parents[1].rglob("test_*.py")
        if path not in {here, here.parents[1] / "unit" / "test_crash_points.py"}
    )
    untried = [
        one
        for one in crash_points.CRASH_POINTS
        if one not in CRASH_POINTS and one not in others
    ]
    assert not untried


@pytest.mark.timeout(400)
@pytest.mark.parametrize("place", CRASH_POINTS)
async def test_killed_between_two_effects_nothing_is_lost_and_little_is_repeated(world, place):
    spent = await world.arm(place, CRASH_POINTS[place])
    run = place.replace(".", "-")
    accepted = await world.submit(run)
    await until(spent.exists)
    await world.ended(accepted)
    judged = await world.judged(run, accepted)
    assert judged.accepted == judged.terminal == AGENDAS
    assert not judged.disagreeing
    assert not judged.unclaimed_starts
    # Once its rows are kept, a round is made good: what its topic has is not emitted again.
    assert judged.rounds_repeated <= (0 if place in MADE_GOOD else 1)
    # A round is the most that may be started again; a puller that lives drops what it saw.
    most = 12 if place.startswith(("puller", "api")) else 0
    assert judged.duplicate_starts <= most
