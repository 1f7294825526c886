"""The servers of one data folder, started together and stopped together."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from pop_stream.devserver.class_data_cache import with_class_data_cache
from pop_stream.devserver.errors import DevServerError, ServerStartError
from pop_stream.devserver.folder import DataFolder, private_files
from pop_stream.devserver.jars import default_cache, kafka_jars
from pop_stream.devserver.jvm import Jvm
from pop_stream.devserver.kafka import Kafka, plan_cluster
from pop_stream.devserver.postgres import Postgres

_FIRST_PAUSE_S: Final = 0.5
_MAX_PAUSE_S: Final = 5.0


class DevServers:
    """Kafka and PostgreSQL in `folder`, for as long as the context is open.

    Enter once; enter a new instance to start again on the same data. An error or a
    cancellation while starting leaves nothing running and the folder unlocked.

    Args:
        folder: Of the data; once for one broker, and another one for three.
        cache: Of Kafka's jars; the platform's if not given.
        brokers: 1, or 3 that replicate to each other and need two of them.
        restart_servers: Servers that end by themselves are started again, as often as it
            takes: a full disk ends a server, and its next starts too. Called with a line about
            every end and start.

    Attributes:
        bootstrap: Kafka's `host:port`, comma between, once entered.
        dsn: PostgreSQL's, with its password, once entered.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cache: Path | None = None,
        brokers: int = 1,
        restart_servers: Callable[[str], None] | None = None,
    ) -> None:
        self.bootstrap = ""
        self.dsn = ""
        self._folder = DataFolder(folder)
        self._cache = cache if cache is not None else default_cache()
        self._brokers = brokers
        self._restarts = restart_servers
        self._watchers: list[asyncio.Task[None]] = []
        self._locks = ExitStack()
        self._started: dict[str, Kafka | Postgres] = {}
        self._taken_down: dict[str, asyncio.Event] = {}

    async def __aenter__(self) -> Self:
        """Start all and wait until all serve.

        Raises:
            FolderLockedError: If another process owns the folder.
            JarsUnavailableError: If Kafka is neither cached nor to be fetched.
            ServerStartError: If a server does not come up.
        """
        self._locks.enter_context(private_files())
        try:
            self._locks.enter_context(self._folder)
        except BaseException:
            self._locks.close()
            raise
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_kafka())
                group.create_task(self._start_postgres())
        except BaseExceptionGroup as failures:
            await self._stop()
            raise failures.exceptions[0] from None
        except BaseException:
            await self._stop()
            raise
        if self._restarts is not None:
            kept = (self._watch_server(name, self._restarts) for name in self._started)
            self._watchers = [asyncio.create_task(one) for one in kept]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def signing_secret(self) -> str:
        """What parts that work on the data of these servers sign with."""
        return self._folder.signing_secret()

    @property
    def processes(self) -> Mapping[str, int]:
        """The process ids of the servers: `kafka`, or `kafka-1` and so on, and `postgres`."""
        return {
            name: server.pid for name, server in self._started.items() if server.pid is not None
        }

    async def take_down(self, name: str, *, orderly: bool = False) -> None:
        """End one server, by kill -9 unless orderly; to be `bring_back`ed, and no failure.

        Args:
            name: As in `processes`.
            orderly: Let it close its files and sessions.
        """
        server = self._started[name]
        self._taken_down[name] = asyncio.Event()
        if not orderly and server.pid is not None:
            os.kill(server.pid, signal.SIGKILL)
            await server.ended()
        await server.stop()

    async def bring_back(self, name: str) -> None:
        """Start a server that was taken down, on its data and its port.

        Raises:
            ServerStartError: If it does not come up.
        """
        await self._started[name].start()
        self._taken_down.pop(name).set()

    async def failed(self) -> ServerStartError:
        """Wait until a server ends by itself, unless it is kept, and return which and why."""
        if self._restarts is not None:
            await asyncio.Event().wait()
        watches = [asyncio.create_task(self._unwanted_end(name)) for name in self._started]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for watch in watches:
                watch.cancel()

    async def _watch_server(self, name: str, on_progress: Callable[[str], None]) -> None:
        while True:
            on_progress(f"{await self._unwanted_end(name)}")
            pause_s = _FIRST_PAUSE_S
            while not await self._restart_server(name, on_progress):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _restart_server(self, name: str, on_progress: Callable[[str], None]) -> bool:
        server = self._started[name]
        try:
            await server.stop()
            await server.start()
        except (DevServerError, OSError) as error:
            on_progress(f"{name} cannot be started yet: {error}")
            return False
        on_progress(f"{name} runs again as process {server.pid}")
        return True

    async def _unwanted_end(self, name: str) -> ServerStartError:
        while True:
            error = await self._started[name].ended()
            if name not in self._taken_down:
                return error
            await self._taken_down[name].wait()

    async def _start_kafka(self) -> None:
        cancelled = threading.Event()
        try:
            jars = await asyncio.to_thread(kafka_jars, self._cache, cancelled=cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        jvm = await with_class_data_cache(Jvm(jars), self._cache)
        cluster = await asyncio.to_thread(plan_cluster, self._folder, self._brokers)
        alone = self._brokers == 1
        brokers = {
            "kafka" if alone else f"kafka-{node.number}": Kafka(
                self._folder, jvm, cluster=cluster, node=node
            )
            for node in cluster.nodes
        }
        self._started |= brokers
        async with asyncio.TaskGroup() as group:  # none of three serves before another does
            for broker in brokers.values():
                group.create_task(broker.start())
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers.values())

    async def _start_postgres(self) -> None:
        postgres = Postgres(self._folder)
        self._started["postgres"] = postgres
        await postgres.start()
        self.dsn = postgres.dsn

    async def _stop(self) -> None:
        for keeper in self._watchers:
            keeper.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        # Asked first and sync_matched second: cancelled meanwhile, all still end.
        for server in self._started.values():
            server.request_stop()
        try:
            for server in self._started.values():
                await server.stop()
        finally:
            self._locks.close()
