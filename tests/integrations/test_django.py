"""Django's tasks on the real system, by Django's test clients; and the page that says how."""

import asyncio
import subprocess
import sys
import tomllib
from datetime import timedelta

import django_site
import pytest
from deadlines import within
from one_process import one_process
from printed_page import PrintedPage

from pop_stream.integrations.client_thread import close_clients
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.puller import FinalError

django_site.set_up()

from django.core.exceptions import ImproperlyConfigured  # noqa: E402  # needs settings
from django.test import AsyncClient, Client, override_settings  # noqa: E402
from django.utils import timezone  # noqa: E402
from django_site import work  # noqa: E402

from pop_stream.integrations.django import (  # noqa: E402
    PopStreamBackend,
    on_behalf_of,
    task_handlers,
)
from pop_stream.integrations.django.framework import (  # noqa: E402
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from pop_stream.integrations.django.task_payload import TASK_TYPE, task_at  # noqa: E402

INSIGHT = Insight(
    id="media",
    mappers=Mappers(operation_types=(TASK_TYPE,)),
    max_attempts=2,
    backoff={"first_s": 0.05, "jitter": 0},
)
JSON = "application/json"
ODD = {"text": "@<a.out> and @@<b", "number": 1.5, "list": [None, True]}


@pytest.fixture(scope="module")
async def system(module_settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("django")
    async with one_process(
        module_settings, folder, [INSIGHT], task_handlers(), concurrency=1, within_s=600
    ) as opened:
        yield opened
        close_clients()


@pytest.fixture
def site(system):
    with override_settings(TASKS=django_site.tasks(system.url)):
        yield system


async def ended(result_id):
    """The result, once the task has ended."""
    async with within(30):
        while True:
            result = await work.repeat.get_backend().aget_result(result_id)
            if result.is_finished:
                return result
            await asyncio.sleep(0.05)


async def post(**letter):
    client = Client()
    return await asyncio.to_thread(client.post, "/letters", letter, content_type=JSON)


async def test_a_task_goes_once_its_transaction_is_committed_and_its_result_comes_back(site):
    answer = (await post(id="committed", to=ODD)).json()

    assert (answer["sent_inside"], answer["sent"]) == (False, True)
    result = await ended(answer["id"])
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == {"args": ["committed"], "kwargs": {"to": ODD}}
    assert (result.args, result.kwargs) == (["committed"], {"to": ODD})
    assert result.task == work.repeat
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert (result.attempts, result.errors) == (1, [])


async def test_a_task_of_a_transaction_that_is_rolled_back_is_never_sent(site):
    with pytest.raises(ZeroDivisionError):
        await post(id="rolled-back", to=1, fails=True)
    after = (await post(id="after", to=1)).json()

    await ended(after["id"])
    listed = await site.get("/v1/agendas?limit=500")
    assert "rolled-back" not in str(listed)
    assert [args for args, _ in work.RUNS if args[0] in {"rolled-back", "after"}] == [
        ("after",)
    ]


async def test_an_asynchronous_view_enqueues_an_asynchronous_task(site):
    response = await AsyncClient().post("/async-letters", {"to": "you"}, content_type=JSON)

    assert (await ended(response.json()["id"])).return_value == "YOU"
    with override_settings(TASKS=django_site.tasks(site.url, ON_COMMIT=False)):
        result = await work.repeat_later.aenqueue("me")
        assert result.enqueued_at is not None
        assert (await ended(result.id)).return_value == "ME"
        await result.arefresh()
        assert result.status == TaskResultStatus.SUCCESSFUL


async def test_what_a_task_raises_is_in_its_result(site):
    final, retried = await work.fail.aenqueue(True), await work.fail.aenqueue(False)
    first, second = await ended(final.id), await ended(retried.id)

    assert first.status == second.status == TaskResultStatus.FAILED
    assert [one.exception_class for one in first.errors] == [FinalError]
    assert {one.exception_class for one in second.errors} == {ZeroDivisionError}
    assert "return 1 / 0" in second.errors[-1].traceback
    assert (first.attempts, second.attempts) == (1, 2)
    with pytest.raises(ValueError, match="failed"):
        _ = first.return_value


async def test_a_task_is_tried_again_and_knows_which_attempt_it_is(site):
    result = await ended((await work.fail_first.aenqueue()).id)

    assert (result.return_value, result.attempts) == (2, 2)
    assert [one.exception_class for one in result.errors] == [LookupError]


async def test_a_task_after_an_instant_waits_and_can_be_cancelled(site):
    later = timezone.now() + timedelta(days=1)
    result = await work.repeat.using(run_after=later, priority=60).aenqueue("later")
    await site.state(result.id, "waiting")

    known = await work.repeat.aget_result(result.id)
    assert (known.status, known.task.priority) == (TaskResultStatus.READY, 50)
    await site.post(f"/v1/agendas/{result.id}/cancel", {}, status=202)
    known = await ended(result.id)
    assert known.status == TaskResultStatus.FAILED
    assert known.errors[0].exception_class.__name__ == "AgendaEndedError"
    assert known.errors[0].traceback.startswith("cancelled")


async def test_a_task_that_enqueues_another_does_so_for_its_own_customer(site):
    with on_behalf_of("acme"):
        result = await work.enqueue_another.aenqueue()
    customer, inner, thread = (await ended(result.id)).return_value

    assert (customer, thread.partition("_")[0]) == ("acme", "operation")
    await ended(inner)
    for one in (result.id, inner):
        assert (await site.get(f"/v1/agendas/{one}"))["customer_id"] == "acme"


async def test_connections_are_closed_after_a_task_as_after_a_request(site):
    first = await work.count_rows.aenqueue()
    assert (await ended(first.id)).return_value is True
    second = await work.has_open_connection.aenqueue()
    assert (await ended(second.id)).return_value is False


async def test_what_is_no_task_is_neither_run_nor_found(site):
    payload = {"task": "os.system", "backend": "default", "queue": "q", "args": ["true"]}
    await site.submit(
        "forged",
        {"name": "task", "type": TASK_TYPE, "payload": payload | {"kwargs": {}}},
    )
    await site.submit("other", {"name": "task", "type": TASK_TYPE, "payload": 3})

    forged = await site.state("forged", "failed", "succeeded")
    assert "'os' belongs to no installed app" in forged["message"]
    other = await site.state("other", "failed", "succeeded")
    assert "payload of an operation of type 'django-task'" in other["message"]
    with pytest.raises(TaskResultDoesNotExist):
        await work.repeat.aget_result("never-enqueued")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("os.system", "add its app to INSTALLED_APPS"),
        ("django_site.work.gone", "deploy the worker with the code that enqueues"),
        ("django_site.gone.work", "deploy the worker with the code that enqueues"),
        ("django_site.work.no_task", "is a function; decorate it"),
    ],
)
def test_a_path_that_leads_to_no_task_is_explained(path, says):
    with pytest.raises(FinalError, match=says):
        task_at(path)


def test_packages_beside_installed_apps_may_be_named():
    assert isinstance(task_at("django_site.work.repeat", ()), Task)
    with pytest.raises(FinalError, match="is a function; decorate it"):
        task_at("json.dumps", ("json",))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "names no customer"),
        ({"CUSTOMER": "a", "URI": ""}, "no option 'URI'"),
        ({"CUSTOMER_FROM": "django_site.work.gone"}, "write the dotted path of a function"),
    ],
)
def test_options_that_are_of_no_use_are_refused(options, says):
    with pytest.raises(ImproperlyConfigured, match=says):
        PopStreamBackend("default", {"OPTIONS": options})


def customer_by_argument(task, args, kwargs):
    return f"{task.name}.{args[0]}.{kwargs['to']}"


@pytest.mark.parametrize(
    ("django", "ours"), [(100, 1), (60, 3), (0, 5), (-12, 5), (-13, 6), (-100, 9)]
)
def test_priorities_and_customers_are_those_of_the_task(django, ours):
    options = {"CUSTOMER_FROM": customer_by_argument, "MAX_ATTEMPTS": 3}
    backend = PopStreamBackend("default", {"OPTIONS": options})
    task = work.repeat.using(priority=django, run_after=timezone.now())
    _, agenda = backend._prepared(task, ["a"], {"to": "b"})

    assert (agenda["priority"], agenda["customer_id"]) == (ours, "repeat.a.b")
    assert (agenda["max_attempts"], agenda["not_before"]) == (3, task.run_after.isoformat())


FORKING = """
import os, sys
from pop_stream.integrations.client_thread import client_thread

def call():
    print(client_thread(sys.argv[1]).call(lambda client: client.health()).status, flush=True)

call()
pid = os.fork()
call()
if pid:
    os.waitpid(pid, 0)
"""


async def test_a_forked_process_has_a_client_of_its_own(site):
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FORKING, site.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with within(30):
        printed, complained = await started.communicate()
    assert (printed.split(), complained) == ([b"ok"] * 3, b"")


async def run(page, command, environment):
    """What a printed command prints."""
    started = await asyncio.create_subprocess_shell(
        command, cwd=page.folder, env=environment, stdout=subprocess.PIPE
    )
    printed, _ = await started.communicate()
    assert started.returncode == 0, command
    return printed.decode()


async def test_the_page_works_as_printed(settings, tmp_path):
    page = PrintedPage("how-to/django.md", tmp_path / "site")
    page.folder.mkdir()
    page.write("insights.toml", "[insights.django]", "toml")
    found = tomllib.loads((page.folder / "insights.toml").read_text())["insights"]
    insights = [Insight(id=name, **fields) for name, fields in found.items()]
    async with one_process(settings, tmp_path, insights) as system:
        environment = page.environment(settings, system.url)
        _, *start = page.commands("django-admin startproject")
        for command in start:
            await run(page, command, environment)
        page.write("shop/settings.py", "PopStreamBackend")
        page.write("letters/tasks.py", "def print_letter")
        _, serve = page.commands("pop_stream_worker")
        worker = await asyncio.create_subprocess_shell(
            f"exec {serve}", cwd=page.folder, env=environment
        )
        try:
            (enqueue,) = page.commands("print_letter.enqueue")
            result_id = (await run(page, enqueue, environment)).split()[-1]
            await system.state(result_id, "succeeded")
            operations = await system.operations(result_id)
            assert operations["task"]["result"] == "Dear you"
        finally:
            worker.terminate()
            async with within(30):
                assert await worker.wait() == 0
