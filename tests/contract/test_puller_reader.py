"""What is known of pullers: written by the fold, read by the port, on fake and Postgres."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from lifecycle_events import accepted
from memory_pullers import MemoryPullers

from pop_stream.model.events.lifecycle import AgendaClaimed, AgendaHeartbeat
from pop_stream.ports.pullers import PullerCursor, SeenPuller
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.pullers import NEW_IN_A_SPAN, PostgresPullers, PullerSigns
from pop_stream.postgres.summaries import PostgresSummaries

AT = datetime(2026, 1, 1, tzinfo=UTC)
SEEN = SeenPuller(
    insight_id="files", puller_id="p1", first_seen_at=AT, last_sign_at=AT,
    last_claim_at=AT, idle=2, last_agenda_id="a1",
)  # fmt: skip


def claimed(puller_id="p1", seconds=0.0, idle=2, agenda_id="a1", insight_id="files"):
    return AgendaClaimed(
        agenda_id=agenda_id, at=AT + timedelta(seconds=seconds), insight_id=insight_id,
        attempt=1, puller_id=puller_id, lease_ms=60_000, idle=idle,
    )  # fmt: skip


def renewed(puller_id="p1", seconds=0.0, agenda_id="a1"):
    return AgendaHeartbeat(
        agenda_id=agenda_id, at=AT + timedelta(seconds=seconds), insight_id="files",
        attempt=1, puller_id=puller_id, lease_ms=60_000,
    )  # fmt: skip


@pytest_asyncio.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield pool


@pytest.fixture(params=["memory", "postgres"])
def reader(request):
    if request.param == "memory":
        return MemoryPullers()
    return PostgresPullers(request.getfixturevalue("pool"))


async def fill(reader, request, *seen):
    if isinstance(reader, MemoryPullers):
        reader.seen = [*seen]
        return
    lifecycle = [
        claimed(one.puller_id, agenda_id=one.last_agenda_id, insight_id=one.insight_id)
        for one in seen
    ]
    pool = request.getfixturevalue("pool")
    await PostgresSummaries(pool).fold("pop.agenda-events", {0: (0, 1)}, lifecycle)


async def test_pages_follow_each_other_by_insight_and_id(reader, request):
    other = replace(SEEN, insight_id="media")
    await fill(reader, request, other, replace(SEEN, puller_id="p2"), SEEN)
    first = await reader.page(insight_id=None, after=None, limit=2)
    assert first == [SEEN, replace(SEEN, puller_id="p2")]
    place = PullerCursor("files", "p2")
    assert await reader.page(insight_id=None, after=place, limit=9) == [other]
    assert await reader.page(insight_id="media", after=None, limit=9) == [other]


# ---- the fold ----


async def test_the_fold_keeps_each_pullers_last_sign(pool):
    store, reader = PostgresSummaries(pool), PostgresPullers(pool)
    folded = [
        [accepted(agenda_id="a1"), claimed(), renewed(seconds=1)],
        [renewed(seconds=2)],
        [renewed(seconds=9, agenda_id="a2"), renewed("http-worker", seconds=9)],
        [claimed("(http)", seconds=10), claimed("odd\0", seconds=10), claimed("", seconds=10)],
    ]
    for number, events in enumerate(folded):
        await store.fold("pop.agenda-events", {0: (number, number + 1)}, events)
    http, kafka = await reader.page(insight_id=None, after=None, limit=9)
    assert (kafka.puller_id, kafka.last_sign_at) == ("p1", AT + timedelta(seconds=9))
    assert (kafka.first_seen_at, kafka.last_claim_at, kafka.idle) == (
        AT + timedelta(seconds=1), AT + timedelta(seconds=1), 2
    )  # fmt: skip
    assert (http.puller_id, http.last_claim_at, http.idle) == ("http-worker", None, None)


async def test_a_puller_that_works_all_the_time_is_written_seldom():
    signs = PullerSigns()
    written = [len(signs.due([renewed(seconds=one / 10)])) for one in range(100)]
    assert sum(written) == 2


async def test_ids_that_somebody_makes_up_are_few_in_a_span():
    signs = PullerSigns()
    flood = [renewed(f"made-up-{one}") for one in range(3 * NEW_IN_A_SPAN)]
    assert len(signs.due(flood)) == NEW_IN_A_SPAN
    assert len(signs.due([renewed("honest", seconds=1)])) == 0
    assert len(signs.due([renewed("honest", seconds=6)])) == 1


async def test_those_that_are_silent_are_forgotten(pool):
    store, reader = PostgresSummaries(pool), PostgresPullers(pool)
    await store.fold("pop.agenda-events", {0: (0, 1)}, [claimed(), claimed("p2", seconds=60)])
    retention = PostgresRetention(pool)
    assert await retention.remove_silent_pullers(AT + timedelta(seconds=9), dry_run=True) == 1
    assert await retention.remove_silent_pullers(AT + timedelta(seconds=9)) == 1
    [left] = await reader.page(insight_id=None, after=None, limit=9)
    assert left.puller_id == "p2"
