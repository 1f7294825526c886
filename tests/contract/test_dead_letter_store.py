"""What the port of dead letters promises, on the fake and on Postgres."""

from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio
from memory_dead_letters import AT, MemoryDeadLetters, dead_letter

from pop_stream.model.errors import UnstorableError
from pop_stream.model.events.base import RefusedIssue
from pop_stream.ports.dead_letters import LetterFilter
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.postgres.dead_letters import PostgresDeadLetters
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool

ISSUE = RefusedIssue(field="id", value="<b>", message="too odd \0")
REFUSED = dead_letter(
    "b" * 20, kind="refused", code="submission_refused", part="ingest", customer_id="beta",
    insight_id=None, agenda_id=None, sender_id="beta", topic="pop.submissions", partition=1,
    offset=5, key=b"\xff", value=b"\0\xff", truncated=True, issues=(ISSUE,),
    at=AT + timedelta(hours=1),
)  # fmt: skip
WEBHOOK = dead_letter(
    "c" * 20, kind="webhook", code="undelivered", webhook_id="w1", agenda_id="a9",
    url="https://acme.example/", value=b'{"a":1}', at=AT + timedelta(hours=2),
)  # fmt: skip
EXHAUSTED = dead_letter()
ALL = (EXHAUSTED, REFUSED, WEBHOOK)


@pytest_asyncio.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield pool


@pytest.fixture(params=["memory", "postgres"])
def empty(request):
    """The port, on the fake and on Postgres."""
    if request.param == "memory":
        return MemoryDeadLetters()
    return PostgresDeadLetters(request.getfixturevalue("pool"))


@pytest_asyncio.fixture
async def store(empty):
    """With one letter of each kind but one."""
    await empty.add(ALL)
    return empty


async def ids(store, limit=9, before=None, **wanted):
    page = await store.page(LetterFilter(**wanted), before=before, limit=limit)
    return [one.letter.letter_id[0] for one in page]


async def test_a_letter_is_found_as_it_was_stored(store):
    for one in ALL:
        found = await store.find(one.letter_id)
        assert (found.letter, found.state, found.settled_at) == (one, "open", None)
    assert await store.find("0" * 20) is None


async def test_a_letter_that_comes_again_changes_nothing(store):
    await store.settle(EXHAUSTED, "discarded", by="t", reason="old")
    await store.add([replace(EXHAUSTED, reason="other"), dead_letter("d" * 20)])
    found = await store.find(EXHAUSTED.letter_id)
    assert (found.state, found.letter.reason) == ("discarded", EXHAUSTED.reason)
    assert await ids(store) == ["d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "cba"),
        ({"ids": (REFUSED.letter_id, "9" * 20)}, "b"),
        ({"kinds": ("webhook", "refused")}, "cb"),
        ({"codes": ("attempts_exhausted",)}, "a"),
        ({"customer_ids": ("acme",)}, "ca"),
        ({"customer_ids": ("",)}, ""),
        ({"insight_ids": ("files",), "kinds": ("exhausted",)}, "a"),
        ({"agenda_ids": ("a9", "a1")}, "ca"),
        ({"states": ("open", "discarded")}, "cba"),
        ({"states": ("discarded",)}, ""),
        ({"states": ("open", "discarded", "redriven")}, "cba"),
        ({"from_at": AT + timedelta(hours=1)}, "cb"),
        ({"before_at": AT + timedelta(hours=1)}, "a"),
    ],
)
async def test_every_field_of_a_filter_narrows(store, wanted, found):
    assert await ids(store, **wanted) == [*found]
    counted = await store.reasons(LetterFilter(**wanted))
    assert sum(one.letters for one in counted) == len(found)


async def test_pages_follow_each_other_newest_first(store):
    first = await store.page(LetterFilter(), before=None, limit=2)
    assert [one.letter.letter_id[0] for one in first] == ["c", "b"]
    assert await ids(store, before=first[-1].number) == ["a"]
    assert first[1].letter.value == b"", "lists are without values"


async def test_reasons_are_counted_with_the_newest_as_an_example(store):
    await store.add([dead_letter("d" * 20, reason="newer", at=AT + timedelta(days=1))])
    [most, *_] = await store.reasons(LetterFilter())
    assert (most.kind, most.code, most.letters) == ("exhausted", "attempts_exhausted", 2)
    assert (most.oldest_at, most.newest_at) == (AT, AT + timedelta(days=1))
    assert most.example == "newer"


async def test_a_letter_is_settled_once(store):
    assert await store.settle(REFUSED, "redriven", by="key:a", reason="fixed")
    assert not await store.settle(REFUSED, "discarded", by="key:b", reason="no")
    found = await store.find(REFUSED.letter_id)
    assert (found.state, found.settled_by, found.settled_reason) == (
        "redriven", "key:a", "fixed"
    )  # fmt: skip
    assert found.settled_at is not None
    assert await ids(store, states=("open",)) == ["c", "a"]
    assert not await store.settle(dead_letter("9" * 20), "redriven", by="t", reason="")


# ---- on Postgres alone ----


async def _webhooks(pool):
    return await pool.fetch("select webhook_id, tries, exhausted_at, body from webhooks")


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_webhook_that_is_redriven_is_due_anew(pool, is_there):
    store = PostgresDeadLetters(pool)
    await store.add([WEBHOOK])
    if is_there:
        await pool.execute(
            "insert into webhooks (webhook_id, agenda_id, customer_id, url, body, tries,"
            " due_at, exhausted_at) values ('w1', 'a9', 'acme', 'x', '{\"a\":1}', 9,"
            " now() + interval '1 day', now())"
        )
    assert await store.settle(WEBHOOK, "redriven", by="t", reason="")
    [row] = await _webhooks(pool)
    assert (row["tries"], row["exhausted_at"], row["body"]) == (0, None, '{"a":1}')


async def test_a_webhook_that_is_discarded_is_forgotten(pool):
    store = PostgresDeadLetters(pool)
    await store.add([WEBHOOK])
    await pool.execute(
        "insert into webhooks (webhook_id, agenda_id, customer_id, url, body, exhausted_at)"
        " values ('w1', 'a9', 'acme', 'x', '{}', now())"
    )
    await store.settle(WEBHOOK, "discarded", by="t", reason="")
    assert await _webhooks(pool) == []


async def test_old_letters_and_the_oldest_of_too_many_are_removed(pool):
    store = PostgresDeadLetters(pool)
    await store.add([*ALL, *(dead_letter(f"{n:020d}", value=b"x" * 9_000) for n in range(5))])
    bounded = PostgresRetention(pool, kept_letter_bytes=25_000)
    assert await bounded.remove_dead_letters(AT, dry_run=True) == 6
    assert await bounded.remove_dead_letters(AT) == 6
    assert await ids(store) == ["0", "0"], "each counts with a kilobyte besides its value"
    assert await PostgresRetention(pool).remove_dead_letters(AT + timedelta(seconds=1)) == 2


async def test_what_no_row_can_hold_is_refused_and_leaves_nothing(pool):
    store = PostgresDeadLetters(pool)
    with pytest.raises(UnstorableError):
        await store.add([EXHAUSTED, replace(REFUSED, reason="\0")])
    assert await ids(store) == []
    assert await ids(store, customer_ids=("\0",)) == []
