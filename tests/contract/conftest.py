"""Each port's adapters, side by side, for the suites that hold them to one contract."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from memory_summaries import MemorySummaries

from pop_stream.ports.summaries import FoldedBatch, SummaryReader, SummaryStore
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.postgres.summary_reader import PostgresSummaryReader
from pop_stream.settings import Settings

TOPIC = "pop.agenda-events"


@dataclass
class Summaries:
    """Both ports on one set of summaries, and where partition 0 is read on."""

    store: SummaryStore
    reader: SummaryReader
    offset: int = 0

    async def fold(self, *lifecycle) -> FoldedBatch:
        start, self.offset = self.offset, self.offset + 1
        return await self.store.fold(TOPIC, {0: (start, self.offset)}, lifecycle)


@pytest.fixture
def memory_summaries() -> Summaries:
    memory = MemorySummaries()
    return Summaries(memory, memory)


@pytest_asyncio.fixture
async def postgres_summaries(settings: Settings) -> AsyncIterator[Summaries]:
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield Summaries(PostgresSummaries(pool), PostgresSummaryReader(pool))


@pytest.fixture(params=["memory_summaries", "postgres_summaries"])
def summaries(request: pytest.FixtureRequest) -> Summaries:
    return request.getfixturevalue(request.param)
