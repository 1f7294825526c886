"""Lists of agendas on Postgres: windows, capped counts, and what they cost."""

import pytest
import pytest_asyncio
from lifecycle_events import accepted, claimed, emitted, failed, succeeded

from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.agendas import AgendaCount, AgendaFilter
from pop_stream.postgres import agenda_search, agendas
from pop_stream.postgres.agendas import PostgresAgendas
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries

TOPIC = "pop.agenda-events"
CUSTOMERS = ("acme", "bolt", "carl")


@pytest_asyncio.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as opened:
        yield opened


@pytest_asyncio.fixture
async def lists(pool):
    story = [
        accepted(
            number,
            agenda_id=f"a{number:02}",
            customer_id=CUSTOMERS[number % 3],
            title="rare" if number % 10 == 7 else "usual",
        )
        for number in range(40)
    ]
    await PostgresSummaries(pool).fold(TOPIC, {0: (0, 1)}, story)
    return PostgresAgendas(pool)


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(agenda_search, "WINDOW_AGENDAS", 6)
    monkeypatch.setattr(agenda_search, "_LEAST_OF_A_VALUE", 2)


async def pages(lists, wanted, *, newest_first):
    found, after = [], None
    while True:
        page = await lists.page(wanted, limit=2, after=after, newest_first=newest_first)
        found.append([one.summary.agenda_id for one in page.agendas])
        after = page.next
        if after is None:
            return found


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize(
    "wanted",
    [
        {"titles": ("rare",)},
        {"titles": ("rare",), "customer_ids": ("acme",)},
        {"titles": ("rare",), "customer_ids": ("bolt", "carl", "nobody")},
        {"titles": ("nothing",), "customer_ids": CUSTOMERS},
        {"customer_ids": CUSTOMERS},
        {"states": (State.READY,), "insight_ids": ("files",)},
    ],
)
async def test_short_pages_put_together_are_the_whole_list(
    lists, small_windows, wanted, newest_first
):
    whole = await lists.find(AgendaFilter(**wanted), limit=100, newest_first=newest_first)
    paged = await pages(lists, AgendaFilter(**wanted), newest_first=newest_first)
    assert [one for page in paged for one in page] == [one.agenda_id for one in whole]


async def test_a_page_looks_at_its_window_only_and_a_count_says_so(lists, small_windows):
    page = await lists.page(AgendaFilter(titles=("nothing",)), limit=2)
    assert page.agendas == []
    assert page.next.agenda_id == "a34"
    assert await lists.count(AgendaFilter(titles=("rare",))) == AgendaCount(1, is_capped=True)
    exact = AgendaCount(13, is_capped=False)
    assert await lists.count(AgendaFilter(customer_ids=("bolt",))) == exact


async def test_counts_end_at_their_most(lists, monkeypatch):
    monkeypatch.setattr(agendas, "MAX_COUNTED", 20)
    assert await lists.count(AgendaFilter()) == AgendaCount(20, is_capped=True)
    two = AgendaFilter(customer_ids=("bolt", "carl"))
    assert await lists.count(two) == AgendaCount(20, is_capped=True)


async def test_an_agenda_that_succeeds_is_updated_without_touching_an_index(lists, pool):
    summaries = PostgresSummaries(pool)
    ids = [f"a{number:02}" for number in range(40)]
    for offset, step in enumerate((emitted, claimed, succeeded), 1):
        events = [step(50 + offset, agenda_id=one) for one in ids]
        await summaries.fold(TOPIC, {0: (offset, offset + 1)}, events)
    query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'agendas'"
    async with pool.acquire() as connection:
        await connection.execute("select pg_stat_force_next_flush()")
        updated, hot = await connection.fetchrow(query)
    assert updated >= 120
    assert hot >= 0.9 * updated


async def test_what_needs_a_look_is_found_by_its_state(lists, pool):
    await PostgresSummaries(pool).fold(
        TOPIC, {0: (1, 2)}, [emitted(50, agenda_id="a03"), failed(51, agenda_id="a03")]
    )
    [one] = await lists.find(AgendaFilter(states=(State.RETRYING, State.FAILED)), limit=9)
    assert one.agenda_id == "a03"
