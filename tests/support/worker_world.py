"""Workers of one program in processes of their own, and the system that they work for."""

import asyncio
import os
import secrets
import signal
from asyncio.subprocess import PIPE, STDOUT
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from databases import database
from deadlines import scaled, within
from one_process import OneProcess, one_process
from pydantic import SecretStr

from pop_stream.auth.keys import make_key
from pop_stream.clock import WallClock
from pop_stream.model.definitions import Customer, Insight, Mappers
from pop_stream.model.identity import ALL_ROLES, ANYONE, Role
from pop_stream.model.revisions import Author
from pop_stream.operations import provisioning
from pop_stream.operations.environment import environment_variables
from pop_stream.postgres.keys import PostgresKeys
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

WITHIN_S = 30
LEASE_S = 3
TYPES = ("echo", "count", "hold", "flaky", "refuse", "large", "scan", "later", "hand-over")
GRACE_S = 60


def operation(name, kind=None, payload=None, **more):
    return {"name": name, "type": kind or name, "payload": payload, **more}


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    async def ended(self) -> int:
        async with within(WITHIN_S):
            return await self.process.wait()

    async def drained(self) -> None:
        """Let it stop in order."""
        self.process.send_signal(signal.SIGTERM)
        assert await self.ended() == 0, self.log.read_text()

    async def killed(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass
class WorkerWorld:
    """The system, and workers of one program.

    Attributes:
        folder: Of the test's own, for what handlers write and wait for.
        tokens: Of a worker, of a customer that has no insight, and of nobody.
        lease_s: Of the insight.
    """

    system: OneProcess
    program: tuple[str, ...]
    folder: Path
    tokens: dict[str, str]
    lease_s: float

    def __post_init__(self) -> None:
        self.id = f"agenda-{secrets.token_hex(4)}"
        self.log = self.folder / "log"
        self.until = self.folder / "until"

    @property
    def files(self) -> dict[str, str]:
        return {"log": str(self.log), "until": str(self.until)}

    @asynccontextmanager
    async def worker(
        self, *, name="w1", whose="worker", url=None, grace_s=GRACE_S, program=None
    ):
        """A worker that runs beside the block, and is killed after it."""
        settings = self.system.settings
        known = environment_variables(
            {
                "kafka_bootstrap": settings.kafka_bootstrap,
                "topic_prefix": settings.topic_prefix,
                "api_url": url or self.system.url,
                "api_token": self.tokens[whose],
                "puller_grace": f"PT{grace_s}S",
                "signing_secrets": ("s" * 32,),
            }
        )
        contract = {
            "CONTRACT_INSIGHT": "media",
            "CONTRACT_PULLER_ID": name,
            "CONTRACT_GRACE_S": str(grace_s),
        }
        log = self.folder / f"{name}-{secrets.token_hex(2)}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(program or self.program),
                env=os.environ | known | contract,
                stdout=file,
                stderr=file,
            )
        worker = WorkerProcess(process, log)
        try:
            yield worker
        except BaseException as error:
            error.add_note(f"the worker's log:\n{log.read_text()[-4_000:]}")
            raise
        finally:
            await worker.killed()

    async def submit(self, *operations: Any, agenda_id: str | None = None, **fields: Any):
        await self.system.submit(agenda_id or self.id, *operations, **fields)

    async def comes_to(self, *states: str, agenda_id: str | None = None) -> Any:
        return await self.system.state(agenda_id or self.id, *states)

    async def operations(self) -> Any:
        return await self.system.operations(self.id)

    async def logged(self, line: str) -> None:
        """Wait until a handler has written the line."""
        async with within(WITHIN_S):
            while line not in self.lines():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.02)

    def lines(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


async def prints_a_letter(world, page, commands, root):
    """Follow a page to its last command, which starts a worker, and let that print a letter."""
    environment = os.environ | {"SOURCES": str(root)}
    *before, last = page.commands(commands)
    for command in before:
        ended = await asyncio.create_subprocess_shell(
            command, cwd=page.folder, env=environment, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await ended.communicate()
        assert ended.returncode == 0, f"{command}:\n{said.decode()}"
    start = ("bash", "-c", f"cd {page.folder} && exec {last}")
    async with world.worker(program=start) as worker:
        await world.submit(operation("print", "letter.print", {"to": "Ada"}))
        await world.comes_to("succeeded")
        (printed,) = (await world.operations()).values()
        assert printed["result"] == {"text": "Dear Ada"}
        await worker.drained()


@pytest_asyncio.fixture(scope="module")
async def system(servers, tmp_path_factory):
    async with database(servers.dsn) as dsn:
        settings = Settings(
            kafka_bootstrap=servers.bootstrap,
            postgres_dsn=SecretStr(dsn),
            topic_prefix=f"t{secrets.token_hex(4)}.",
            http_port=0,
            auth="required",
            signing_secrets=("s" * 32,),
        )
        await provisioning.migrate(settings)
        tokens = {"nobody": "pop_none_of_ours", **await _make_keys(settings)}
        lease_s = scaled(LEASE_S)
        insight = Insight(
            id="media",
            mappers=Mappers(operation_types=(*TYPES, "unheard-of")),
            max_attempts=3,
            lease_ms=int(1_000 * lease_s),
            backoff={"first_s": 0.05, "jitter": 0},
        )
        folder = tmp_path_factory.mktemp("system")
        strangers = Customer(id="stranger")
        letters = Insight(id="letters", mappers=Mappers(operation_types=("letter.print",)))
        async with one_process(
            settings, folder, [insight, letters, strangers], within_s=900
        ) as opened:
            opened.session.headers["Authorization"] = f"Bearer {tokens['operator']}"
            yield opened, tokens, lease_s


async def _make_keys(settings):
    wanted = {
        "operator": (None, ALL_ROLES),
        "worker": (None, frozenset({Role.PULL, Role.READ})),
        "stranger": ("stranger", frozenset({Role.PULL, Role.READ})),
    }
    tokens, author = {}, Author(principal=ANYONE, request_id="test")
    async with open_pool(settings) as pool:
        for name, (customer, roles) in wanted.items():
            now = WallClock().now()
            key, tokens[name] = make_key(
                customer_id=customer, roles=roles, now=now, created_by="t"
            )
            await PostgresKeys(pool).create(key, author)
    return tokens


@pytest.fixture
def world(system, program, tmp_path):
    opened, tokens, lease_s = system
    return WorkerWorld(opened, program, tmp_path, tokens, lease_s)
