"""What the port of lists of agendas promises, on the fake and on Postgres."""

import msgspec
import pytest
import pytest_asyncio
from lifecycle_events import (
    accepted,
    at,
    claimed,
    emitted,
    operation,
    progressed,
    succeeded,
)
from memory_summaries import MemorySummaries

from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.agendas import AgendaCount, AgendaCursor, AgendaFilter, PayloadMatch
from pop_stream.postgres.agendas import PostgresAgendas
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.postgres.summary_reader import PostgresSummaryReader

TOPIC = "pop.agenda-events"


def params(text):
    return msgspec.Raw(b'{"id": "a", "params": %b}' % text.encode())


TRACED = msgspec.Raw(
    b'{"id": "a", "params": {"external_id": "ticket-9"}, "trace": {"correlation_id": "req-7"}, '
    b'"template": {"id": "night@acme", "version": 2}}'
)


STORY = [
    accepted(
        1,
        agenda_id="a1",
        link_id="night",
        agenda=params('{"externalId": "caf\u00e9 @ \\"9\\""}'),
    ),
    progressed(3, operation("fetch", "running", percent=25), agenda_id="a1"),
    accepted(  # as only a foreign program writes it
        2,
        agenda_id="a2",
        customer_id="bolt",
        link_id=None,
        agenda=params('{"external_id": "\\ud800", "x": "\\u0000"}'),
    ),
    accepted(2, agenda_id="a3", insight_id="video", agenda=params('{"external_id": 9}')),
    claimed(3, agenda_id="a3"),
    accepted(4, agenda_id="a4", agenda=TRACED),
    emitted(5, agenda_id="a4"),
    succeeded(9, operation("fetch", "succeeded"), agenda_id="a4"),
    emitted(9, agenda_id="a5"),
]


@pytest_asyncio.fixture
async def memory_agendas():
    memory = MemorySummaries()
    await memory.fold(TOPIC, {0: (0, 1)}, STORY)
    return memory


@pytest_asyncio.fixture
async def postgres(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        await PostgresSummaries(pool).fold(TOPIC, {0: (0, 1)}, STORY)
        yield PostgresAgendas(pool), PostgresSummaryReader(pool)


@pytest.fixture
def postgres_agendas(postgres):
    return postgres[0]


@pytest.fixture(params=["memory_agendas", "postgres_agendas"])
def agendas(request):
    return request.getfixturevalue(request.param)


async def found(agendas, limit=10, **wanted):
    return [one.agenda_id for one in await agendas.find(AgendaFilter(**wanted), limit=limit)]


async def test_all_are_listed_newest_first_and_those_never_accepted_last(agendas):
    assert await found(agendas) == ["a4", "a3", "a2", "a1", "a5"]
    oldest = await agendas.find(AgendaFilter(), limit=10, newest_first=False)
    assert [one.agenda_id for one in oldest] == ["a5", "a1", "a2", "a3", "a4"]


@pytest.mark.parametrize(
    ("wanted", "fit"),
    [
        ({"ids": ("a1", "a9", "a3")}, ["a3", "a1"]),
        ({"customer_ids": ("acme",)}, ["a4", "a3", "a1"]),
        ({"insight_ids": ("video",)}, ["a3"]),
        ({"link_ids": ("night",), "customer_ids": ("acme", "bolt")}, ["a4", "a3", "a1"]),
        ({"titles": ("Nightly \u263e", "other")}, ["a4", "a3", "a2", "a1"]),
        ({"titles": ("Nightly",)}, []),
        ({"external_ids": ('caf\u00e9 @ "9"', "ticket-9", "x")}, ["a4", "a1"]),
        ({"external_ids": ("9",)}, []),
        ({"correlation_ids": ("req-7", "req-8")}, ["a4"]),
        ({"correlation_ids": ("req",)}, []),
        ({"states": (State.READY, State.RUNNING)}, ["a3", "a2", "a1"]),
        ({"accepted_from": at(2)}, ["a4", "a3", "a2"]),
        ({"accepted_before": at(2)}, ["a1", "a5"]),
        ({"accepted_from": at(2), "accepted_before": at(4)}, ["a3", "a2"]),
        ({"template_ids": ("night@acme", "x")}, ["a4"]),
        ({"priorities": (3, 9)}, ["a4", "a3", "a2", "a1"]),
        ({"priorities": (1,)}, []),
        ({"attempts": (1,), "customer_ids": ("acme", "bolt")}, ["a4", "a3", "a2", "a1"]),
        ({"attempts": (2,)}, []),
        ({"puller_ids": ("p1",)}, ["a3"]),
        ({"waiting_for": ("retry",)}, []),
        ({"stopping": ("expired",)}, []),
        ({"states": (State.FAILED, State.REFUSED)}, []),
        ({"emitted_from": at(5), "emitted_before": at(9)}, ["a4"]),
        ({"started_from": at(3), "started_before": at(4)}, ["a3"]),
        ({"ended_from": at(9)}, ["a4"]),
        ({"ended_before": at(9)}, []),
        ({"customer_ids": ("nobody",)}, []),
        ({"ids": ("odd\0id",)}, []),
    ],
)
async def test_every_field_of_a_filter_narrows(agendas, wanted, fit):
    assert await found(agendas, **wanted) == fit
    assert await agendas.count(AgendaFilter(**wanted)) == AgendaCount(len(fit), is_capped=False)
    paged, after = [], None
    while True:
        page = await agendas.page(AgendaFilter(**wanted), limit=2, after=after)
        paged += [one.summary.agenda_id for one in page.agendas]
        after = page.next
        if after is None:
            break
    assert paged == fit


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_put_together_are_the_whole_list(agendas, newest_first):
    whole = await agendas.find(AgendaFilter(), limit=10, newest_first=newest_first)
    paged, after = [], None
    while True:
        page = await agendas.find(
            AgendaFilter(), limit=2, after=after, newest_first=newest_first
        )
        if not page:
            break
        paged += page
        after = AgendaCursor(page[-1].accepted_at, page[-1].agenda_id)
    assert paged == whole
    assert len(paged) == 5


async def test_lists_leave_bodies_and_operations_out_until_they_are_asked_for(agendas):
    (listed,) = await agendas.find(AgendaFilter(ids=("a4",)), limit=1)
    assert (listed.body, listed.operations) == (b"", {})
    (detailed,) = await agendas.load_details([listed])
    assert detailed.body
    assert set(detailed.operations) == {"fetch"}


async def test_a_page_tells_how_far_each_is_and_what_its_submitter_calls_it(agendas):
    page = await agendas.page(AgendaFilter(), limit=10, newest_first=False)
    got = [
        (one.summary.agenda_id, one.percent, one.external_id, one.correlation_id)
        for one in page.agendas
    ]
    assert [one.template_id for one in page.agendas] == [None] * 4 + ["night@acme"]
    assert page.next is None
    assert got == [
        ("a5", 0, None, None),
        ("a1", 12.5, 'caf\u00e9 @ "9"', None),
        ("a2", 0, None, None),
        ("a3", 0, None, None),
        ("a4", 100, "ticket-9", "req-7"),
    ]
    found = await agendas.find(AgendaFilter(), limit=10, newest_first=False)
    assert [one.summary for one in page.agendas] == list(found)
    second = await agendas.page(
        AgendaFilter(), limit=1, after=AgendaCursor(None, "a5"), newest_first=False
    )
    assert second.agendas == page.agendas[1:2]
    assert second.next == AgendaCursor(at(1), "a1")


async def test_only_what_has_ended_is_removed(agendas):
    [ended] = await agendas.find(AgendaFilter(ids=("a4",)), limit=1)
    assert await agendas.delete(["a1", "a3", "a4", "a9"]) == ["a4"]
    assert await found(agendas) == ["a3", "a2", "a1", "a5"]
    assert await agendas.delete(["a4"]) == []
    [gone] = await agendas.load_details([ended])
    assert (gone.body, gone.operations) == (b"", {})  # nor anything of its operations


@pytest.fixture
def memory(memory_agendas):
    return memory_agendas, memory_agendas


@pytest.fixture(params=["memory", "postgres"])
def stores(request):
    return request.getfixturevalue(request.param)


async def test_it_is_known_how_young_agendas_were_that_were_removed(stores):
    agendas, reader = stores
    assert await reader.reusable_ids(["a1", "a4"]) == (frozenset(), None)
    await agendas.delete(["a1", "a4"])
    assert await reader.reusable_ids(["a1", "a4"]) == (frozenset(), at(4))


# ---- by what is in payloads ----


def body(*payloads):
    operations = [{"name": f"o{n}", "payload": one} for n, one in enumerate(payloads)]
    return msgspec.Raw(msgspec.json.encode({"id": "p", "operations": operations}))


PAYLOADS = [
    accepted(1, agenda_id="p1", agenda=body({"boefje": {"id": "dns"}, "n": 3, "on": True})),
    accepted(2, agenda_id="p2", agenda=body("text", {"boefje": {"id": "ssl"}, "n": 3})),
    accepted(3, agenda_id="p3", agenda=body({"items": ["a", {"b": "deep"}], "none": None})),
]


@pytest_asyncio.fixture
async def memory_payloads():
    memory = MemorySummaries()
    await memory.fold(TOPIC, {0: (0, 1)}, [*STORY, *PAYLOADS])
    return memory


@pytest_asyncio.fixture
async def postgres_payloads(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        await PostgresSummaries(pool).fold(TOPIC, {0: (0, 1)}, [*STORY, *PAYLOADS])
        yield PostgresAgendas(pool)


@pytest.fixture(params=["memory_payloads", "postgres_payloads"])
def with_payloads(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ({"boefje.id": ("dns",)}, ["p1"]),
        ({"boefje.id": ("dns", "ssl")}, ["p2", "p1"]),
        ({"boefje.id": ("dns", "ssl"), "on": ("true",)}, ["p1"]),
        ({"n": ("3",)}, ["p2", "p1"]),
        ({"items.1.b": ("deep",)}, ["p3"]),
        ({"items.0": ("a",)}, ["p3"]),
        ({"none": ("null",)}, []),
        ({"boefje.name": ("dns",)}, []),
        ({"x": ("odd",)}, []),
    ],
)
async def test_a_list_is_narrowed_by_what_is_in_payloads(with_payloads, tests, expected):
    wanted = AgendaFilter(
        payload=tuple(
            PayloadMatch(tuple(path.split(".")), some) for path, some in tests.items()
        )
    )
    page = await with_payloads.page(wanted, limit=10)
    assert [one.summary.agenda_id for one in page.agendas] == expected
    counted = await with_payloads.count(wanted)
    assert (counted.agendas, counted.is_capped) == (len(expected), False)


async def test_payloads_are_looked_into_a_part_of_the_list_at_a_time(
    postgres_payloads, monkeypatch
):
    monkeypatch.setattr("pop_stream.postgres.agenda_search.WINDOW_PAYLOADS", 2)
    wanted = AgendaFilter(payload=(PayloadMatch(("boefje", "id"), ("dns",)),))
    seen, after, pages = [], None, 0
    while True:
        page = await postgres_payloads.page(wanted, limit=10, after=after)
        seen += [one.summary.agenda_id for one in page.agendas]
        after, pages = page.next, pages + 1
        if after is None:
            break
    assert seen == ["p1"]
    assert pages > 2
    assert (await postgres_payloads.count(wanted)).is_capped, "a part of the list was counted"
