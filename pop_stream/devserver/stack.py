"""Everything on this machine: the servers, migrated, and every part as a process of its own.

Entering a `Stack` returns once the API serves; leaving it stops the parts, last stage first,
then the servers. The port of its API is kept from other stacks for as long as it lasts.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final, Self

import aiohttp
from rich.markup import escape

from pop_stream.composition.client import open_client
from pop_stream.devserver.errors import DevServerError
from pop_stream.devserver.folder import is_free_port, private_files
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.servers import DevServers
from pop_stream.devserver.supervisor import Part, PartStatus, Supervisor, command_part
from pop_stream.kafka import clients, group_members
from pop_stream.operations import provisioning
from pop_stream.operations.environment import environment_variables, load_settings
from pop_stream.operations.errors import CommandError, UsageError
from pop_stream.settings import Settings

FIRST_PORT: Final = 8080
_PORTS_TRIED: Final = 100


@contextmanager
def api_port(wanted: int | None) -> Iterator[int]:
    """The wanted port, or the first free one from `FIRST_PORT` on; kept while entered.

    The API begins to listen only seconds later, and does not while it is started again. For
    that time a UDP socket of the same number, which the API has no use for, is what other
    stacks find taken: else both would choose one port, and one would talk to the other's API.

    Raises:
        CommandError: If it is taken.
    """
    candidates = [wanted] if wanted else range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED)
    with socket.socket(type=socket.SOCK_DGRAM) as held:
        for port in candidates:
            if is_free_port(port) and _try_bind(held, port):
                break
        else:
            raise CommandError(_port_taken_message(wanted))
        yield port


def _try_bind(held: socket.socket, port: int) -> bool:
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def _port_taken_message(wanted: int | None) -> str:
    if wanted:
        return f"port {wanted} is taken; choose another with --port"
    return f"no port from {FIRST_PORT} to {FIRST_PORT + _PORTS_TRIED} is free; use --port"


_PULLER_GRACE: Final = timedelta(seconds=5)
_READY_WITHIN_S: Final = 60.0
_READY_POLL_S: Final = 0.1
_SERVER_VARIABLES: Final = ("POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN")

OnProgress = Callable[[str], None]


class Stack:
    """A running system on one machine; leaving the context stops it in order.

    Servers named by POP_KAFKA_BOOTSTRAP and POP_POSTGRES_DSN are used; what is not named is
    started in the plan's folder.

    Attributes:
        settings: As every part has them, once entered.
        supervisor: Of the parts, once entered.
    """

    settings: Settings
    supervisor: Supervisor

    def __init__(self, plan: StackPlan, on_progress: OnProgress) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._servers: DevServers | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start everything; returns when the API, if it is among it, says that it is ready.

        Raises:
            DevServerError: If the servers do not start.
            CommandError: If a part does not.
        """
        insights = self._plan.insights()
        async with AsyncExitStack() as opening:
            opening.enter_context(private_files())
            overrides = await self._enter_servers(opening)
            self.settings = load_settings(overrides)
            done = await provisioning.migrate(self.settings)
            self._on_progress(
                f"schema, topics and definitions are current, {len(done)} are new"
            )
            self.supervisor = await opening.enter_async_context(
                Supervisor(
                    self._plan.folder.absolute() / "logs",
                    environment={**environment_variables(overrides), **self._plan.environment},
                    policy=self._plan.restart,
                    on_progress=self._report_status,
                    on_death=self._evict_instance,
                )
            )
            await self._start_parts(insights)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._on_progress("stopping")
        await self._open.aclose()

    def processes(self) -> Mapping[str, int]:
        """The process ids of what was started here, by part; of both servers, if they were."""
        parts = {name: one.pid for name, one in self.supervisor.status().items()}
        return {**(self._servers.processes if self._servers else {}), **parts}

    @property
    def servers(self) -> DevServers:
        """The servers that were started here.

        Raises:
            UsageError: If others are used.
        """
        if self._servers is None:
            msg = f"only servers started here can be taken down; unset {_SERVER_VARIABLES[0]}"
            raise UsageError(msg)
        return self._servers

    async def replace(self, name: str, *, grace: timedelta) -> PartStatus:
        """Stop a part in order and start a new process of it; returns once that is ready.

        Parts other than the API say so only if the plan gives them a port for metrics.

        Returns:
            How the old process ended.

        Raises:
            CommandError: If the new one is not ready within a minute.
        """
        ended = await self.supervisor.replace(name, grace=grace)
        port = self.supervisor.part(name).environment.get("POP_METRICS_PORT")
        url = self.settings.api_url if name == "api" else port and f"http://127.0.0.1:{port}"
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                await _until_ready(url)
        except TimeoutError:
            msg = f"{name} was not ready again within {_READY_WITHIN_S:g} s; its log is in "
            raise CommandError(msg + str(self.supervisor.logs)) from None
        return ended

    async def failed(self) -> Exception:
        """Wait until a server ends or a part is given up, and return which and why."""
        waits: list[asyncio.Task[Exception]] = [asyncio.create_task(self._part_failed())]
        if self._servers is not None:
            waits.append(asyncio.create_task(_server_failed(self._servers)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for wait in waits:
                wait.cancel()

    async def _enter_servers(self, opening: AsyncExitStack) -> dict[str, object]:
        folder = self._plan.folder.absolute()
        port = opening.enter_context(api_port(self._plan.port))
        overrides: dict[str, object] = {
            "scheduler_data": folder / "scheduler",
            "definitions_file": self._plan.definitions.absolute(),
            "http_host": "127.0.0.1",
            "http_port": port,
            "api_url": f"http://127.0.0.1:{port}",
            "puller_grace": _PULLER_GRACE,
            **self._plan.overrides,
        }
        self._announce_console(overrides)
        if all(os.environ.get(name) for name in _SERVER_VARIABLES):
            folder.mkdir(parents=True, exist_ok=True)
            return overrides
        self._on_progress(f"starting Kafka and PostgreSQL in {folder}")
        restart_servers = self._on_progress if self._plan.restarts_servers else None
        servers = DevServers(
            folder, brokers=self._plan.brokers, restart_servers=restart_servers
        )
        self._servers = await opening.enter_async_context(servers)
        if self._plan.brokers > 1:
            overrides["replication_factor"] = self._plan.brokers
        if not os.environ.get("POP_KAFKA_BOOTSTRAP"):
            overrides["kafka_bootstrap"] = self._servers.bootstrap
            if not os.environ.get("POP_SIGNING_SECRETS"):
                overrides.setdefault("signing_secrets", (self._servers.signing_secret,))
        if not os.environ.get("POP_POSTGRES_DSN"):
            overrides["postgres_dsn"] = self._servers.dsn
        return overrides

    def _announce_console(self, overrides: Mapping[str, object]) -> None:
        """Say first where to look; there is nothing to see without an API."""
        # The secrets that go with asking who calls come with the servers.
        settings = load_settings({**overrides, "auth": "off"})
        if settings.console and (self._plan.only is None or "api" in self._plan.only):
            self._on_progress(f"the web console will be at {settings.console_url}")

    async def _start_parts(self, insights: Sequence[str]) -> None:
        # Consumers first, so that nothing is waited for; parts stop in the reverse order.
        only = self._plan.only
        for part in self._parts(insights):
            if only is None or part.name in only:
                await self.supervisor.start(part)
        if only is not None and "api" not in only:
            return
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                await self._until_ready()
        except TimeoutError:
            logs = self.supervisor.logs
            msg = f"the API was not ready within {_READY_WITHIN_S:g} s; logs are in {logs}"
            raise CommandError(msg) from None

    def _parts(self, insights: Sequence[str]) -> list[Part]:
        handlers = [word for one in self._plan.handlers for word in ("--handlers", one)]
        pull = ("pull", *(f"--insight={one}" for one in insights), *handlers)
        parts = [
            *self._copies("rollup", "rollup"),
            *self._copies("scheduler", "scheduler"),
            *self._copies("ingest", "ingest"),
            command_part("api", "serve", stage="api"),
            *(
                command_part(f"puller-{number}", *pull, stage="pullers")
                for number in range(1, self._plan.pullers + 1)
            ),
        ]
        return [*with_metrics_ports(parts, self.settings.metrics_port)]

    def _copies(self, name: str, command: str) -> Iterator[Part]:
        """One part a process; the second is called `name-2`, and keeps its data beside."""
        yield command_part(name, command, stage=name)
        for number in range(2, self._plan.copies.get(name, 1) + 1):
            one = command_part(f"{name}-{number}", command, stage=name)
            data = self._plan.folder.absolute() / one.name
            yield replace(one, environment=environment_variables({"scheduler_data": data}))

    async def _until_ready(self) -> None:
        async with open_client(self.settings) as client:
            while not await client.is_ready():  # noqa: ASYNC110  # it is another process
                await asyncio.sleep(0.1)  # it is another process

    async def _part_failed(self) -> Exception:
        status = await self.supervisor.until_part_failed()
        log = self.supervisor.log_file(status.name)
        return CommandError(f"{_status_line(status)}\nIts log is {log}")

    async def _evict_instance(self, instance: str) -> None:
        """Remove a crashed instance from its groups, which else wait for its session's end."""
        await group_members.evict_instance(
            clients.admin(self.settings, client_id="eviction"), instance
        )

    def _report_status(self, status: PartStatus) -> None:
        self._on_progress(_status_line(status))


def with_metrics_ports(parts: Iterable[Part], first: int | None) -> Iterator[Part]:
    """Give each part a port of its own, from `first` on in their order."""
    for number, one in enumerate(parts):
        port = environment_variables({"metrics_port": first + number}) if first else {}
        yield replace(one, environment={**one.environment, **port})


@asynccontextmanager
async def failing_with(stack: Stack) -> AsyncIterator[None]:
    """Run a body that is given up, with the stack's error, as soon as the stack fails."""

    async def watch() -> None:
        raise await stack.failed()

    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            yield
            watching.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _until_ready(url: str | None) -> None:
    if not url:
        return
    async with aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(f"{url}/readyz") as answer:
                    if answer.ok:
                        return
            await asyncio.sleep(_READY_POLL_S)  # it is another process


async def _server_failed(servers: DevServers) -> DevServerError:
    return await servers.failed()


def _status_line(status: PartStatus) -> str:
    match status.state:
        case "running" if status.restarts:
            return f"{status.name} runs again as process {status.pid}"
        case "running":
            return f"{status.name} started as process {status.pid}"
        case "stopped":
            return f"{status.name} stopped"
        case "crashed":
            return f"{status.name} {_exit_text(status)}"
        case "failed":
            return f"{status.name} is given up, it {_exit_text(status)}"


def _exit_text(status: PartStatus) -> str:
    code = status.exit_code or 0
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with {code}: {escape(status.last_log_line)}"
