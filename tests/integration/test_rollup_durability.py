"""What a crash of the database costs a rollup that does not wait for the disk: nothing."""

import asyncio
import os
import signal
from contextlib import suppress
from itertools import count

import psutil
import pytest
from deadlines import within
from lifecycle_events import accepted
from pydantic import SecretStr

from pop_stream.devserver.folder import DataFolder
from pop_stream.devserver.postgres import Postgres
from pop_stream.model.errors import UnavailableError
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.settings import Settings

pytestmark = pytest.mark.timeout(180)

TOPIC = "pop.agenda-events"


async def fold_until_it_breaks(store, well_under_way):
    """One agenda a batch; the number of batches whose commit was answered."""
    for number in count():
        event = accepted(agenda_id=f"a{number}")
        try:
            await store.fold(TOPIC, {0: (number, number + 1)}, [event])
        except UnavailableError:
            return number
        if number == 200:
            well_under_way.set()
    raise AssertionError


def kill(postgres):
    """As a loss of the machine would end it: all of its processes, none of them asked."""
    server = psutil.Process(postgres.pid)
    for process in [*server.children(recursive=True), server]:
        with suppress(ProcessLookupError):  # the first to die takes others with it
            os.kill(process.pid, signal.SIGKILL)


async def test_a_crash_of_the_database_takes_rows_and_offsets_together(tmp_path):
    with DataFolder(tmp_path / "servers") as folder:
        postgres = Postgres(folder)
        await postgres.start()
        try:
            await migrate(postgres.dsn)
            settings = Settings(postgres_dsn=SecretStr(postgres.dsn))
            async with open_pool(settings, for_rollup=True) as pool:
                store = PostgresSummaries(pool)
                well_under_way = asyncio.Event()
                folding = asyncio.create_task(fold_until_it_breaks(store, well_under_way))
                async with within(60):
                    await well_under_way.wait()
                kill(postgres)
                answered = await folding
                await postgres.stop()
                await postgres.start()
                rows = await pool.fetchval("SELECT count(*) FROM agendas")
                offsets = await store.next_offsets(TOPIC)
        finally:
            await postgres.stop()
    assert answered >= 200
    # All of it may be lost: nothing waits for the disk.
    assert offsets == ({0: rows} if rows else {})
