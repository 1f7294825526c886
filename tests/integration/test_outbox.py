"""A service's outbox: what is committed runs, whoever is killed, and nothing else does."""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from deadlines import within
from one_process import one_process
from pydantic import SecretStr

from pop_stream import outbox
from pop_stream.api_models.problems import Problem
from pop_stream.api_models.submissions import SubmissionResult, SubmissionResults
from pop_stream.client import (
    ApiRateLimitedError,
    ApiRefusedError,
    ApiUnauthenticatedError,
    ApiUnavailableError,
)
from pop_stream.composition.outbox import run_outbox
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.errors import Issue, SubmissionError, UnavailableError
from pop_stream.outbox.reader import BATCH_BYTES, OutboxReader
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.submission_outbox import SubmissionOutbox
from pop_stream.puller import Handlers
from pop_stream.settings import Settings

PAGE = Path(__file__).parents[2] / "docs/how-to/outbox.md"
DIE = "os.kill(os.getpid(), signal.SIGKILL)"
SERVICE = f"""
import asyncio, os, signal, sys
import asyncpg
from pop_stream import outbox

dsn, point = sys.argv[1:]

async def main():
    connection = await asyncpg.connect(dsn)
    for number in range(5):
        agenda_id = f"{{point}}-{{number}}"
        operations = [{{"name": "only", "type": "noop"}}]
        agenda = {{"id": agenda_id, "customer_id": "acme", "operations": operations}}
        async with connection.transaction():
            await connection.execute("insert into orders values ($1)", agenda_id)
            if (number, point) == (3, "stored"): {DIE}
            await outbox.asubmit(connection, agenda)
            if (number, point) == (3, "submitted"): {DIE}
        if (number, point) == (3, "committed"): {DIE}

asyncio.run(main())
"""  # noqa: S608  # the parameters are marks
READER = f"""
import os, signal, sys
from pop_stream.__main__ import main
from pop_stream.client import Client
from pop_stream.postgres.submission_outbox import LockedAgendas

point = sys.argv.pop()

def dying(owner, name, *, before):
    call = getattr(owner, name)
    async def wrapped(*arguments):
        if before: {DIE}
        await call(*arguments)
        {DIE}
    setattr(owner, name, wrapped)

if point == "read": dying(Client, "submit_many", before=True)
if point == "sent": dying(Client, "submit_many", before=False)
if point == "deleted": dying(LockedAgendas, "delete", before=False)
main()
"""


@pytest_asyncio.fixture
async def shop(dsn):
    """A connection to the service's database, which has an outbox."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("create table orders (id text primary key)")
    async with open_outbox(dsn) as opened:
        await opened.create()
        await opened.create()
    yield connection
    await connection.close()


@asynccontextmanager
async def open_outbox(dsn):
    async with open_pool(Settings(postgres_dsn=SecretStr(dsn))) as pool:
        yield SubmissionOutbox(pool)


def agenda(agenda_id, customer="acme", **fields):
    operations = [{"name": "only", "type": "noop", **fields}]
    return {"id": agenda_id, "customer_id": customer, "operations": operations}


async def run(program, *arguments, **environment):
    """Run a program to its end; its exit code."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, env=os.environ | environment
    )
    async with within(60):
        return await started.wait()


async def test_exactly_what_is_committed_runs_whoever_is_killed(
    settings, shop, servers, dsn, tmp_path
):
    runs, handlers = Counter(), Handlers()

    @handlers.handler("noop")
    async def note(call):
        runs[call.agenda_id] += 1

    insight = Insight(id="media", mappers=Mappers(operation_types=("noop",)))
    async with one_process(settings, tmp_path, [insight], handlers, within_s=240) as system:
        for point in ("stored", "submitted", "committed"):
            assert await run(SERVICE, dsn, point) == -signal.SIGKILL
        committed = {row["id"] for row in await shop.fetch("select id from orders")}
        assert len(committed) == 3 + 3 + 4
        for point in ("read", "sent", "deleted"):
            code = await run(READER, "outbox", "--dsn", dsn, point, POP_API_URL=system.url)
            assert code == -signal.SIGKILL
        assert await shop.fetchval("select count(*) from pop_outbox") == len(committed)
        for one in committed:  # they have ended when they are submitted once more
            await system.state(one, "succeeded")
        stop = asyncio.Event()
        at_url = settings.model_copy(update={"api_url": system.url})
        async with asyncio.TaskGroup() as tasks, within(60):
            tasks.create_task(run_outbox(at_url, SecretStr(dsn), stop))
            while await shop.fetchval("select count(*) from pop_outbox"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            async with shop.transaction():
                await outbox.asubmit(shop, agenda("last"))
            await system.state("last", "succeeded")
            stop.set()
    assert runs == dict.fromkeys(committed | {"last"}, 1)


class PlayedApi:
    """The one call of the client that the reader makes, with answers set by hand."""

    def __init__(self):
        self.sent = []
        self.answers = []

    async def submit_many(self, submissions):
        ids = [json.loads(bytes(one))["id"] for one in submissions]
        self.sent.append(ids)
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        results = [answer.get(one, result(202)) for one in ids]
        accepted = sum(one.status == 202 for one in results)
        return SubmissionResults(
            accepted=accepted, refused=len(ids) - accepted, results=results
        )


def result(status, *issues):
    return SubmissionResult(index=0, status=status, issues=issues or msgspec.UNSET)


def problem(**fields):
    known = {"type": "", "title": "", "status": 0, "detail": "", "instance": "", "code": ""}
    return Problem(**{**known, "correlation_id": "", **fields})


@pytest_asyncio.fixture
async def reader(shop, dsn):
    api = PlayedApi()
    async with open_outbox(dsn) as opened:
        made = OutboxReader(opened, api)
        made.api = api
        yield made


async def waiting(shop):
    rows = await shop.fetch(
        "select agenda_id from pop_outbox where refused_at is null order by position"
    )
    return [row["agenda_id"] for row in rows]


async def test_rows_are_sent_in_their_order_and_removed_once_accepted(shop, reader):
    for number in range(3):
        await outbox.asubmit(shop, agenda(f"a{number}"))
    assert await reader.send_batch() == 3
    assert await reader.send_batch() == 0
    assert (reader.api.sent, await waiting(shop)) == ([["a0", "a1", "a2"]], [])


async def test_what_can_never_be_accepted_stays_with_the_reason_and_holds_up_nobody(
    shop, reader
):
    for one in ("good", "bad"):
        await outbox.asubmit(shop, agenda(one))
    issue = Issue("operations", "noop", "no insight takes it; define one")
    reader.api.answers = [{"bad": result(422, issue)}]
    assert await reader.send_batch() == 2
    assert await reader.send_batch() == 0
    row = await shop.fetchrow("select * from pop_outbox")
    assert (row["agenda_id"], row["refused_at"] is None) == ("bad", False)
    assert "define one" in row["reason"]

    await shop.execute("update pop_outbox set refused_at = null")
    refused = problem(results=[result(422, issue)])
    reader.api.answers = [ApiRefusedError("none", status=422, problem=refused)]
    assert await reader.send_batch() == 1
    assert await waiting(shop) == []


async def test_a_customer_over_its_quota_waits_alone(shop, reader):
    for one, customer in (("f1", "flood"), ("q1", "quiet"), ("f2", "flood")):
        await outbox.asubmit(shop, agenda(one, customer))
    over = problem(customer_id="flood")
    reader.api.answers = [
        ApiRateLimitedError("over", status=429, problem=over, retry_after_s=3_600)
    ]
    assert await reader.send_batch() == 0
    assert await reader.send_batch() == 1
    await outbox.asubmit(shop, agenda("q2", "quiet"))
    reader.api.answers = [{"q2": result(429)}]
    assert await reader.send_batch() == 0
    assert reader.api.sent == [["f1", "q1", "f2"], ["q1"], ["q2"]]
    assert await waiting(shop) == ["f1", "f2", "q2"]


async def test_an_outage_of_the_api_leaves_the_rows_as_they_were(shop, reader):
    await outbox.asubmit(shop, agenda("one"))
    reader.api.answers = [
        ApiUnavailableError("away"),
        ApiUnauthenticatedError("who", status=401),
    ]
    for error in (ApiUnavailableError, ApiUnauthenticatedError):
        with pytest.raises(error):
            await reader.send_batch()
    assert await waiting(shop) == ["one"]


async def test_rows_that_another_reader_has_are_skipped(shop, reader, dsn):
    for one in ("mine", "yours"):
        await outbox.asubmit(shop, agenda(one))
    async with open_outbox(dsn) as other, other.batch(1) as batch:
        assert [one.agenda_id for one in batch.rows] == ["mine"]
        assert await reader.send_batch() == 1
    assert (reader.api.sent, await waiting(shop)) == ([["yours"]], ["mine"])


async def test_large_agendas_go_a_few_at_a_time(shop, reader):
    for number in range(3):
        await outbox.asubmit(shop, agenda(f"a{number}", payload="x" * (BATCH_BYTES * 2 // 5)))
    assert [await reader.send_batch() for _ in range(3)] == [2, 1, 0]


async def test_a_commit_wakes_the_reader_and_so_does_a_connection_that_breaks(shop, dsn):
    woken = asyncio.Event()
    async with open_outbox(dsn) as opened:
        async with opened.listening(woken.set) as listener:
            async with shop.transaction():
                await outbox.asubmit(shop, agenda("one"))
            async with within(10):
                await woken.wait()
            assert listener.is_open
            woken.clear()
            await shop.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and datname = current_database()"
            )
            async with within(10):
                await woken.wait()
            assert not listener.is_open
        assert await shop.fetchval("select count(*) from pop_outbox") == 1
        await shop.execute("drop table pop_outbox")
        with pytest.raises(UnavailableError, match="pop_outbox"):
            async with opened.batch(1):
                pass


async def test_what_is_not_sound_is_refused_before_it_is_written(shop):
    with pytest.raises(SubmissionError, match="customer_id"):
        await outbox.asubmit(shop, {"operations": []})
    with pytest.raises(TypeError, match="execute the statement of `insertion`"):
        outbox.submit(object(), agenda("one"))
    with pytest.raises(TypeError, match="asubmit does not know"):
        await outbox.asubmit(object(), agenda("one"))
    assert await waiting(shop) == []
    unnamed = {key: value for key, value in agenda("").items() if key != "id"}
    assert await waiting(shop) != [await outbox.asubmit(shop, unnamed)]
    assert json.loads(outbox.insertion(unnamed).agenda)["id"]


async def test_the_page_works_as_printed(shop, dsn, tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    await shop.execute("drop table orders")
    assert await run(program, SHOP_DSN=dsn) == 0
    assert await waiting(shop) == ["order-7"]
    assert await run("from pop_stream.__main__ import main; main()", "outbox", "--sql") == 0
