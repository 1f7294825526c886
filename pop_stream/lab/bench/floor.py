"""The floor: what bare Kafka and Postgres clients reach on the same servers, hop by hop."""

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Final

from pop_stream.kafka import connections
from pop_stream.kafka.topics import TopicSpec, ensure
from pop_stream.lab.bench.floor_hop import Hop
from pop_stream.lab.bench.results import BenchStore
from pop_stream.operations.errors import CommandError
from pop_stream.settings import Settings

HOPS: Final = 4
"""Topics that an agenda passes: submissions, ready, its insight's, agenda-events."""

_PARTITIONS: Final = 8
_READY_WITHIN_S: Final = 60.0


class Floor:
    """The running processes of the floor.

    Attributes:
        topic: Where records go in.
        processes: Ids, by hop.
    """

    def __init__(self, topic: str, hops: Sequence[asyncio.subprocess.Process]) -> None:
        self.topic = topic
        self._hops = hops
        self._ended = 0
        self.processes = {f"floor-{number}": one.pid for number, one in enumerate(hops, 1)}

    async def ended(self) -> int:
        """Records of which all rows are durable.

        Raises:
            CommandError: If a process has ended.
        """
        if any(one.returncode is not None for one in self._hops):
            msg = "a process of the floor ended by itself"
            raise CommandError(msg)
        return self._ended

    async def listen(self, sink: asyncio.subprocess.Process) -> None:
        """Read the counts that the sink prints, until cancelled."""
        while line := await _line(sink):
            self._ended = int(line["ended"])


@asynccontextmanager
async def open_floor(
    settings: Settings, store: BenchStore, *, rows: int
) -> AsyncIterator[Floor]:
    """Start one process a hop, wait until all have joined their groups, end them at the end.

    Args:
        settings: Where the servers are.
        store: Makes and drops its table.
        rows: That are written for each record.
    """
    run = f"floor-{secrets.token_hex(3)}"
    topics = [f"{settings.topic_prefix}{run}-{number}" for number in range(HOPS)]
    async with connections.admin_client(settings, client_id="bench-floor") as admin:
        specs = [TopicSpec(name, _PARTITIONS) for name in topics]
        await ensure(admin, specs, replication_factor=settings.replication_factor)
    await store.make_floor()
    relays = [Hop(one, after) for one, after in pairwise(topics)]
    hops: list[asyncio.subprocess.Process] = []
    listening: asyncio.Task[None] | None = None
    try:
        for hop in [*relays, Hop(topics[-1], rows=rows)]:
            hops.append(await _spawn(hop, settings))  # so that those begun are ended
        async with asyncio.timeout(_READY_WITHIN_S):
            for one in hops:
                await _line(one)
        floor = Floor(topics[0], hops)
        listening = asyncio.create_task(floor.listen(hops[-1]))
        yield floor
    finally:
        if listening is not None:
            listening.cancel()
        for one in hops:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            await one.wait()
        await store.drop_floor()


async def _spawn(hop: Hop, settings: Settings) -> asyncio.subprocess.Process:
    environment = {
        "POP_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "POP_POSTGRES_DSN": settings.postgres_dsn.get_secret_value(),
        "POP_TOPIC_PREFIX": settings.topic_prefix,
    }
    return await asyncio.create_subprocess_exec(
        *hop.command, stdout=asyncio.subprocess.PIPE, env=os.environ | environment
    )


async def _line(process: asyncio.subprocess.Process) -> Mapping[str, float]:
    assert process.stdout is not None  # noqa: S101  # it was opened as a pipe
    line = await process.stdout.readline()
    found: Mapping[str, float] = json.loads(line) if line else {}
    return found
