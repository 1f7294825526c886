"""What is counted by hour on a real Postgres: exact, whatever is repeated or cut off."""

import random
from datetime import timedelta

import msgspec
import pytest
from lifecycle_events import START, accepted, at, claimed, emitted, failed, refused, succeeded

from pop_stream.policy.lifecycle.stats import Measures
from pop_stream.ports.stats import StatsQuery
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.stats import PostgresStats
from pop_stream.postgres.summaries import PostgresSummaries

TOPIC = "pop.agenda-events"
AGENDAS = 30


class CrashError(Exception):
    """Stands for a process that is killed."""


@pytest.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as opened:
        yield opened


def story(agenda_id, customer_id):
    """Accepted, failed after 1.5 s of work, succeeded after 2.25 s, and all of it repeated."""
    body = msgspec.Raw(b'{"template": {"id": "nightly"}}')
    first = [
        accepted(0, agenda_id, customer_id=customer_id, agenda=body),
        emitted(1, 1, agenda_id),
        claimed(2, 1, agenda_id),
        failed(5, agenda_id=agenda_id, spent_s={"http": 1.5}),
    ]
    second = [
        emitted(10, 2, agenda_id),
        claimed(11, 2, agenda_id),
        succeeded(15, agenda_id=agenda_id, attempt=2),
    ]
    second[-1] = msgspec.structs.replace(second[-1], spent_s={"http": 2.0, "sql": 0.25})
    return [first, second]


def delivered(chance, agenda_id, customer_id):
    """The story as it may arrive: what precedes an attempt's end in any order, all repeated."""
    events = []
    for *begun, ended in story(agenda_id, customer_id):
        again = [*begun, *chance.choices(begun, k=2)]
        chance.shuffle(again)
        events += [*again, ended, *chance.choices([*begun, ended], k=3)]
    return [*events, *chance.choices(events, k=3)]


async def fold_all_of(store, waiting, chance, offsets, partition):
    """Fold in batches of any size until nothing waits; a batch that fails is folded again."""
    while waiting:
        batch = []
        for agenda_id in chance.sample(sorted(waiting), k=min(7, len(waiting))):
            count = chance.randint(1, 4)
            batch += waiting[agenda_id][:count]
            waiting[agenda_id] = waiting[agenda_id][count:]
            if not waiting[agenda_id]:
                del waiting[agenda_id]
        start = offsets.get(partition, 0)
        for _ in range(10):
            try:
                await store.fold(TOPIC, {partition: (start, start + len(batch))}, batch)
            except CrashError:
                continue
            break
        offsets[partition] = start + len(batch)


def query(**changes):
    known = {"from_at": START, "before_at": START + timedelta(days=1)}
    return StatsQuery(**(known | changes))


async def test_counts_are_exact_whatever_is_repeated_shuffled_or_cut_off(pool, monkeypatch):
    chance = random.Random(11)
    add = PostgresSummaries._add_stats

    async def add_or_crash(*given):
        await add(*given)
        if chance.random() < 0.3:
            raise CrashError  # all is written, nothing is committed

    monkeypatch.setattr(PostgresSummaries, "_add_stats", add_or_crash)
    offsets = {}
    for partition in (0, 1):  # two processes, of which each has a partition
        ids = {f"a{partition}-{one}": ("acme", "globex")[one % 2] for one in range(AGENDAS)}
        waiting = {one: delivered(chance, one, whose) for one, whose in ids.items()}
        await fold_all_of(PostgresSummaries(pool), waiting, chance, offsets, partition)
    [whole] = await PostgresStats(pool).sums(query())
    total = 2 * AGENDAS
    assert whole.measures.ends == [total, 0, 0, 0, 0]
    assert whole.measures.attempts == 2 * total
    assert whole.measures.worker_us == total * 3_750_000
    assert (whole.measures.wait_us, whole.measures.run_us) == (
        total * 2_000_000,
        total * 4_000_000,
    )
    assert sum(whole.measures.waits) == sum(whole.measures.runs) == total
    by_type = await PostgresStats(pool).sums(query(groups=("customer_id", "operation_type")))
    found = {
        tuple(one.values): (one.measures.attempts, one.measures.worker_us) for one in by_type
    }
    assert found == {
        (customer, kind): (count * AGENDAS, micros * AGENDAS)
        for customer in ("acme", "globex")
        for kind, count, micros in (("http", 2, 3_500_000), ("sql", 1, 250_000))
    }


async def test_sums_are_grouped_filtered_and_paged(pool):
    store, reader = PostgresSummaries(pool), PostgresStats(pool)
    events = [one for part in story("a1", "acme") for one in part]
    await store.fold(TOPIC, {0: (0, 8)}, [*events, refused(7_200)])
    events = [one for part in story("b1", "globex") for one in part]
    await store.fold(TOPIC, {0: (8, 15)}, events)
    hours = await reader.sums(query(groups=("hour", "customer_id", "template_id")))
    assert [one.values[:2] for one in hours] == [(START, "acme"), (START, "globex")]
    assert {one.values[2] for one in hours} == {"nightly"}
    days = await reader.sums(query(groups=("day",), customer_ids=("acme",)))
    assert [(one.values[0], one.measures.ends) for one in days] == [(START, [1, 0, 0, 0, 0])]
    assert await reader.sums(query(template_ids=("other",))) == []
    assert await reader.sums(query(insight_ids=("\0",))) == []
    [sql] = await reader.sums(query(operation_types=("sql",), groups=("operation_type",)))
    assert (sql.measures.attempts, sql.measures.worker_us) == (2, 500_000)
    page = await reader.sums(query(groups=("customer_id",), limit=1, offset=1))
    assert [one.values for one in page] == [("globex",)]
    assert await reader.sums(query(from_at=at(7_200))) == []


async def test_refusals_count_once_each(pool):
    store = PostgresSummaries(pool)
    await store.fold(TOPIC, {0: (0, 2)}, [refused(1), refused(1)])
    await store.fold(TOPIC, {0: (2, 3)}, [refused(1)])
    await store.fold(TOPIC, {0: (3, 4)}, [refused(9)])  # submitted and refused again
    [whole] = await PostgresStats(pool).sums(query())
    assert whole.measures.ends == [0, 0, 0, 0, 2]
    assert whole.measures.waits == Measures().waits


async def test_old_hours_are_removed(pool):
    store, kept = PostgresSummaries(pool), PostgresRetention(pool)
    await store.fold(TOPIC, {0: (0, 7)}, [one for part in story("a1", "acme") for one in part])
    assert await kept.remove_stats(START) == 0
    assert await kept.remove_stats(at(3_600), dry_run=True) == 3
    assert await kept.remove_stats(at(3_600)) == 3
    assert await PostgresStats(pool).sums(query()) == []
