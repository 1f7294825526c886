"""Both servers of one data folder, started together and stopped together."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from pop_stream.embedded.errors import ServerStartError
from pop_stream.embedded.folder import DataFolder
from pop_stream.embedded.jars import default_cache, kafka_jars
from pop_stream.embedded.kafka import Kafka
from pop_stream.embedded.postgres import Postgres


class EmbeddedServers:
    """Kafka and PostgreSQL in `folder`, for as long as the context is open.

    Enter once; enter a new instance to start again on the same data. An error or a
    cancellation while starting leaves nothing running and the folder unlocked.

    Attributes:
        bootstrap: Kafka's `host:port`, once entered.
        dsn: PostgreSQL's, with its password, once entered.
    """

    def __init__(self, folder: Path, *, cache: Path | None = None) -> None:
        self.bootstrap = ""
        self.dsn = ""
        self._folder = DataFolder(folder)
        self._cache = cache if cache is not None else default_cache()
        self._owned = ExitStack()
        self._started: list[Kafka | Postgres] = []

    async def __aenter__(self) -> Self:
        """Start both and wait until both serve.

        Raises:
            FolderLockedError: If another process owns the folder.
            JarsUnavailableError: If Kafka is neither cached nor to be fetched.
            ServerStartError: If a server does not come up.
        """
        self._owned.enter_context(self._folder)
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
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def processes(self) -> Mapping[str, int]:
        """The process ids of the servers that run, by `kafka` and `postgres`."""
        return {
            type(server).__name__.lower(): server.pid
            for server in self._started
            if server.pid is not None
        }

    async def failed(self) -> ServerStartError:
        """Wait until either server ends by itself, and tell which and why."""
        watches = [asyncio.create_task(server.ended()) for server in self._started]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for watch in watches:
                watch.cancel()

    async def _start_kafka(self) -> None:
        cancelled = threading.Event()
        try:
            jars = await asyncio.to_thread(kafka_jars, self._cache, cancelled=cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        kafka = Kafka(self._folder, jars)
        self._started.append(kafka)
        await kafka.start()
        self.bootstrap = kafka.bootstrap

    async def _start_postgres(self) -> None:
        postgres = Postgres(self._folder)
        self._started.append(postgres)
        await postgres.start()
        self.dsn = postgres.dsn

    async def _stop(self) -> None:
        # Asked first and awaited second: cancelled meanwhile, both still end.
        for server in self._started:
            server.request_stop()
        try:
            for server in self._started:
                await server.stop()
        finally:
            self._owned.close()
