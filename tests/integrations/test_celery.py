"""Celery's tasks on the real system: what apps rely on, and the page that says how."""

import asyncio
import tomllib
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery, chain
from celery.exceptions import Ignore, Reject
from deadlines import within
from one_process import one_process
from printed_page import PrintedPage

from pop_stream.clock import WallClock
from pop_stream.integrations.celery import TASK_TYPE, celery_handlers
from pop_stream.integrations.client_thread import close_clients
from pop_stream.model.definitions import Insight, Mappers

INSIGHT = Insight(
    id="media",
    mappers=Mappers(operation_types=(TASK_TYPE,)),
    max_attempts=2,
    backoff={"first_s": 0.05, "jitter": 0},
)
RUNS = []

app = Celery(
    "shop",
    broker="memory://",
    backend="cache+memory://",
    task_cls="pop_stream.integrations.celery:PopStreamTask",
)
app.conf.update(
    pop_stream_customer="shop",
    task_routes={f"{__name__}.add": {"queue": "sums"}},
    result_extended=True,
)


@app.task
def add(x, y):
    RUNS.append((x, y))
    return x + y


@app.task
def repeat(*args, **kwargs):
    return {"args": args, "kwargs": kwargs}


@app.task
def day_after(at):
    return at + timedelta(days=1)


@app.task
def divide(x):
    return 1 / x


@app.task
def record(context, *_):
    RUNS.append(("failed", context))


@app.task(bind=True, max_retries=1)
def fails_once(self):
    if not self.request.retries:
        raise self.retry(countdown=0, exc=LookupError("not yet"))
    return self.request.retries


@app.task(bind=True, max_retries=0)
def gives_up(self):
    raise self.retry(countdown=0, exc=LookupError("never"))


@app.task
def ignored():
    raise Ignore


@app.task(bind=True)
def rejected(self):
    if not self.request.retries:
        raise Reject(requeue=True)
    return "accepted"


@app.task
def enqueue_another():
    return add.delay(20, 22).id


@pytest.fixture(scope="module")
async def system(module_settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("celery")
    async with one_process(
        module_settings, folder, [INSIGHT], celery_handlers(app), within_s=600
    ) as opened:
        app.conf.pop_stream_url = opened.url
        yield opened
        close_clients()


async def in_thread(work, *arguments, **options):
    async with within(60):
        return await asyncio.to_thread(work, *arguments, **options)


async def run_was_seen(is_it):
    async with within(30):
        while not any(map(is_it, RUNS)):  # noqa: ASYNC110  # another thread tells
            await asyncio.sleep(0.05)


async def value(result):
    """What a task returned, by Celery's result backend."""
    return await in_thread(result.get, interval=0.05)


async def test_a_task_runs_and_its_result_is_in_the_backend_and_in_the_agenda(system):
    odd = {"text": "@<a.out> and @@<b", "list": [None, 1.5]}
    result = await in_thread(repeat.delay, odd, to=odd)

    assert await value(result) == {"args": [odd], "kwargs": {"to": odd}}
    summary = await system.state(result.id, "succeeded")
    assert (summary["customer_id"], summary["title"]) == ("shop", f"{__name__}.repeat")
    operations = await system.operations(result.id)
    assert operations["task"]["result"] == {"args": [odd], "kwargs": {"to": odd}}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert await value(await in_thread(day_after.delay, at)) == at + timedelta(days=1)


async def test_a_failure_is_final_and_its_reason_is_everywhere(system):
    result = await in_thread(divide.apply_async, (0,), link_error=record.s())
    with pytest.raises(ZeroDivisionError):
        await value(result)
    summary = await system.state(result.id, "failed")
    assert (summary["attempt"], "division by zero" in summary["message"]) == (1, True)
    (task,) = (await system.operations(result.id)).values()
    assert "return 1 / x" in task["diagnostics"][0]["detail"]["traceback"]
    await run_was_seen(lambda one: one[0] == "failed")


async def test_a_retry_waits_without_a_runner_and_knows_which_it_is(system):
    result = await in_thread(fails_once.delay)
    assert await value(result) == 1
    summary = await system.state(result.id, "succeeded")
    assert summary["history"][0]["outcome"] == "deferred"

    given_up = await in_thread(gives_up.delay)
    with pytest.raises(LookupError, match="never"):
        await value(given_up)
    await system.state(given_up.id, "failed")


async def test_what_is_ignored_ends_well_and_what_is_rejected_may_come_again(system):
    ignore, reject = await in_thread(ignored.delay), await in_thread(rejected.delay)
    await system.state(ignore.id, "succeeded")
    assert (await system.state(reject.id, "succeeded"))["attempt"] == 2


async def test_chains_and_links_go_on(system):
    result = await in_thread(chain(add.s(1, 2), add.s(3)).apply_async)
    assert await value(result) == 6
    await in_thread(add.apply_async, (100, 1), link=add.s(1_000))
    await run_was_seen(lambda one: one == (101, 1_000))


async def test_a_task_that_enqueues_another_does_so_for_its_own_customer(system):
    result = await in_thread(enqueue_another.apply_async, customer="acme")
    inner = await value(result)
    assert (await system.state(inner, "succeeded"))["customer_id"] == "acme"


async def test_when_how_urgent_and_where_are_the_agendas(system):
    later, limit = WallClock().now() + timedelta(days=1), timedelta(days=2)
    result = await in_thread(
        add.apply_async,
        (1, 1),
        eta=later,
        expires=later + limit,
        priority=9,
        time_limit=60,
        task_id="chosen",
    )
    summary = await system.state("chosen", "waiting")
    agenda = summary["agenda"]
    assert result.id == "chosen"
    assert datetime.fromisoformat(agenda["not_before"]) == later
    assert datetime.fromisoformat(agenda["expires_at"]) == later + limit
    assert (agenda["priority"], agenda["params"]) == (1, {"queue": "sums"})
    assert agenda["operations"][0]["timeout_s"] == 60
    await in_thread(add.apply_async, (1, 1), priority=0, countdown=3_600, task_id="least")
    assert (await system.state("least", "waiting"))["agenda"]["priority"] == 9


async def test_what_cannot_be_enqueued_or_run_is_explained(system):
    with pytest.raises(ValueError, match="arguments must be JSON"):
        await in_thread(repeat.delay, object())
    with pytest.raises(TypeError):
        await in_thread(add.delay, 1)
    unknown = {"task": "gone", "queue": "", "headers": {}, "body": "[]"}
    await system.submit("unknown", {"name": "task", "type": TASK_TYPE, "payload": unknown})
    await system.submit("forged", {"name": "task", "type": TASK_TYPE, "payload": 3})
    others = {**unknown, "task": add.name, "headers": {"id": "unknown"}}
    await system.submit("another", {"name": "task", "type": TASK_TYPE, "payload": others})
    assert "is not known here" in (await system.state("unknown", "failed"))["message"]
    assert "is written by" in (await system.state("forged", "failed"))["message"]
    assert "the id of its agenda" in (await system.state("another", "failed"))["message"]


async def test_the_customer_may_be_said_by_a_function(system, monkeypatch):
    monkeypatch.setitem(app.conf, "pop_stream_customer", lambda task, args, _: f"c{args[0]}")
    result = await in_thread(add.delay, 7, 1)
    assert (await system.state(result.id, "succeeded"))["customer_id"] == "c7"
    monkeypatch.setitem(app.conf, "pop_stream_customer", None)
    with pytest.raises(ValueError, match="no customer: set pop_stream_customer"):
        await in_thread(add.delay, 7, 1)


def test_eager_apps_run_their_tasks_in_place(monkeypatch):
    monkeypatch.setitem(app.conf, "task_always_eager", True)
    assert add.delay(2, 3).get() == 5


async def test_the_page_works_as_printed(settings, tmp_path):
    page = PrintedPage("how-to/coming-from-celery.md", tmp_path / "shop")
    page.write("letters.py", "app = Celery")
    found = tomllib.loads(page.block("[insights.celery]", "toml"))["insights"]
    insights = [Insight(id=name, **fields) for name, fields in found.items()]
    async with one_process(settings, tmp_path, insights) as system:
        environment = page.environment(settings, system.url)
        (pull,) = page.commands("pop-stream pull")[-1:]
        worker = await asyncio.create_subprocess_shell(
            f"exec {pull}", cwd=page.folder, env=environment
        )
        try:
            (enqueue,) = page.commands("print_letter.delay")
            called = await asyncio.create_subprocess_shell(
                enqueue, cwd=page.folder, env=environment, stdout=asyncio.subprocess.PIPE
            )
            async with within(60):
                task_id = (await called.communicate())[0].decode().strip()
            await system.state(task_id, "succeeded")
            operations = await system.operations(task_id)
            assert operations["task"]["result"] == "Dear you"
        finally:
            worker.terminate()
            async with within(30):
                assert await worker.wait() == 0
