"""What every worker has to do; suites that have a program of a worker take these tests over.

A suite has a fixture `program` of the module, the command of a worker that serves the insight
`CONTRACT_INSIGHT` with the handlers of `contract_worker.py`. It runs in processes of its own,
against one of every part on real servers, with an API that asks who calls.
"""

import asyncio
import json
import signal
from contextlib import AsyncExitStack

import pytest
from deadlines import scaled, within
from tcp_proxy import TcpProxy
from worker_world import WITHIN_S, operation, system, world

from pop_stream.model import references


async def test_operations_run_in_order_of_their_references_and_results_are_kept(world):
    async with world.worker() as worker:
        await world.submit(
            operation("last", "echo", "@<middle.out::/0> of @<pop.agendaId>"),
            operation("middle", "echo", ["@<first.out::/size>", {"in": "@<first.out>"}]),
            operation("first", "echo", {"size": 12, "text": "@@<b", "none": None}),
            operation("beside", "echo"),
        )
        summary = await world.comes_to("succeeded")
        found = await world.operations()
        first = {"size": 12, "text": "@<b", "none": None}
        assert {name: one["result"] for name, one in found.items()} == {
            "first": first,
            "middle": [12, {"in": first}],
            "last": f"12 of {world.id}",
            "beside": None,
        }
        assert (summary["attempt"], found["last"]["percent"]) == (1, 100)
        await worker.drained()


REFERENCES = [
    "@<a.out>", "@<a.out::/>", "@<a.out::rows/0>", "@< a.out ::/rows/1/deep~1er/~0>",
    "@<a.out::/no?>", "@<a.out::/no?else>", "@<a.out::/rows/9?none>", "@<a.out::/rows/01?x>",
    "@<a.out::/text/x?y?z>", "is @<a.out::/n>, @<a.out::/yes>, @<a.out::/none>", "@< <a> @<",
    "@@<a.out> @@@<a.out::/n> @@@@<a", "a@b<c> @<a.out::/text>", "@<a.out::/:://?x>", "",
    "@<a.out::/text>@<pop.customerId>@<pop.operationName>",
]  # fmt: skip


async def test_references_are_read_as_the_puller_reads_them(world):
    value = {
        "rows": [1, {"deep/er": {"~": "found"}}],
        "n": 1.5,
        "yes": True,
        "none": None,
        "text": "@<a.out> <&>",
    }
    names = {
        "a.out": value,
        "pop.agendaId": world.id,
        "pop.customerId": "acme",
        "pop.operationName": "b",
    }
    async with world.worker():
        given = {**value, "text": references.escaped(value["text"])}
        await world.submit(operation("a", "echo", given), operation("b", "echo", REFERENCES))
        await world.comes_to("succeeded")
        found = (await world.operations())["b"]["result"]
    assert found == [references.resolve(one, names) for one in REFERENCES]


async def test_progress_of_a_running_operation_is_seen(world):
    async with world.worker(name="printer-7"):
        await world.submit(operation("hold", payload=world.files))
        path = f"/v1/agendas/{world.id}/progress"
        progress = await world.system.until(path, lambda one: one["operations"][0]["percent"])
        (one,) = progress["operations"]
        assert (one["state"], one["percent"], one["message"]) == ("running", 40, "page 2 of 5")
        assert (one["diagnostics"][0]["code"], one["started_at"]) != (None, None)
        assert one["diagnostics"][0]["detail"] == {"page": 2}
        world.until.touch()
        await world.comes_to("succeeded")


async def test_heartbeats_keep_a_long_operation_beyond_its_lease(world):
    async with world.worker():
        await world.submit(operation("hold", payload=world.files))
        await world.logged("begun 1")
        loop = asyncio.get_running_loop()
        over_s = loop.time() + 2.5 * world.lease_s
        while loop.time() < over_s:
            assert (await world.comes_to("running"))["attempt"] == 1
            await asyncio.sleep(0.1)
        world.until.touch()
        assert (await world.comes_to("succeeded"))["attempt"] == 1
    assert world.lines() == ["begun 1"]


async def test_a_failure_is_tried_again_and_what_succeeded_is_kept(world):
    async with world.worker():
        await world.submit(
            operation("count", payload=world.files),
            operation("flaky", payload={"attempts": 1}, depends_on=["count"]),
        )
        assert (await world.comes_to("succeeded"))["attempt"] == 2
        found = await world.operations()
    assert found["flaky"]["result"] == {"attempt": 2, "tries": 1}
    assert world.lines() == ["ran"]


async def test_an_operation_is_tried_again_within_its_attempt(world):
    async with world.worker():
        backoff = {"first_s": 0.01}
        payload = {"tries": 2}
        await world.submit(operation("flaky", payload=payload, max_attempts=3, backoff=backoff))
        assert (await world.comes_to("succeeded"))["attempt"] == 1
        (one,) = (await world.operations()).values()
    assert one["result"] == {"attempt": 1, "tries": 3}
    assert [note["detail"]["try"] for note in one["diagnostics"]] == [1, 2]


async def test_a_final_failure_ends_the_agenda_with_its_reason(world):
    async with world.worker():
        await world.submit(operation("refuse"), operation("echo", depends_on=["refuse"]))
        summary = await world.comes_to("failed")
        found = await world.operations()
    assert summary["attempt"] == 1
    assert "operation 'refuse' failed: no such codec" in summary["message"]
    assert (found["refuse"]["state"], found["echo"]["state"]) == ("failed", "waiting")


@pytest.mark.parametrize(
    ("kind", "says"), [("large", "300002 bytes, at most 262144"), ("unheard-of", "no handler")]
)
async def test_what_cannot_be_done_is_a_reason(world, kind, says):
    async with world.worker():
        await world.submit(operation("count", payload=world.files), operation(kind))
        summary = await world.comes_to("failed")
    assert (summary["attempt"], says in summary["message"]) == (1, True)


async def test_a_try_that_takes_too_long_is_stopped_and_may_be_repeated(world):
    async with world.worker():
        hold = operation("hold", payload=world.files, timeout_s=scaled(0.5))
        await world.submit(hold, max_attempts=1)
        summary = await world.comes_to("failed")
    assert "it ran longer" in summary["message"]
    assert world.lines()[0] == "begun 1"


async def test_appended_operations_run_with_their_results(world):
    async with world.worker():
        more = [
            operation("two", "echo", references.escaped("@<one.out>")),
            operation("one", "echo", {"from": references.escaped("@<before.out>")}),
        ]
        scan = operation("scan", payload={"operations": more}, depends_on=["before"])
        await world.submit(operation("before", "echo", 7), scan)
        await world.comes_to("succeeded")
        found = await world.operations()
    assert (found["scan"]["result"], found["two"]["result"]) == (2, {"from": 7})
    assert found["one"]["appended_by"] == "scan"


async def test_an_unsound_operation_is_refused_and_its_handler_fails(world):
    async with world.worker():
        more = [operation("one", "echo", depends_on=["missing"])]
        await world.submit(operation("scan", payload={"operations": more}))
        summary = await world.comes_to("failed")
        found = await world.operations()
    assert ("missing" in summary["message"], [*found]) == (True, ["scan"])


async def test_a_cancelled_agenda_s_handler_is_stopped(world):
    async with world.worker():
        await world.submit(
            operation("count", payload=world.files),
            operation("hold", payload=world.files, depends_on=["count"]),
        )
        await world.logged("begun 1")
        await world.system.post(f"/v1/agendas/{world.id}/cancel", {})
        await world.logged("stopped cancelled")
        await world.comes_to("cancelled")
        found = await world.operations()
        assert (found["count"]["state"], found["count"]["result"]) == ("succeeded", 1)


async def test_a_killed_worker_s_agenda_goes_on_where_it_was(world):
    hold = operation("hold", payload=world.files, depends_on=["scan"])
    more = [operation("appended", "echo", 3, depends_on=["hold"])]
    async with world.worker(name="first") as first:
        scan = operation("scan", payload={"operations": more}, depends_on=["count"])
        await world.submit(operation("count", payload=world.files), scan, hold)
        await world.logged("begun 1")
        path = f"/v1/agendas/{world.id}/operations/scan"
        await world.system.until(path, lambda one: one["state"] == "succeeded")
        await first.killed()
    async with world.worker(name="second"):
        await world.logged("begun 2")
        world.until.touch()
        assert (await world.comes_to("succeeded"))["attempt"] == 2
        found = await world.operations()
    assert world.lines() == ["ran", "begun 1", "begun 2"]
    assert (found["count"]["result"], found["hold"]["result"]) == (1, {"held": 2})
    assert found["appended"]["result"] == 3


async def test_on_sigterm_nothing_new_begins_and_what_runs_may_end(world):
    async with world.worker() as worker:
        await world.submit(operation("hold", payload=world.files))
        await world.logged("begun 1")
        worker.process.send_signal(signal.SIGTERM)
        async with within(WITHIN_S):
            while "stopping" not in worker.log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        after = f"{world.id}-after"
        await world.submit(operation("echo"), agenda_id=after)
        world.until.touch()
        assert await worker.ended() == 0
    assert (await world.comes_to("succeeded"))["attempt"] == 1
    async with world.worker():
        assert (await world.comes_to("succeeded", agenda_id=after))["attempt"] == 1


async def test_what_outlives_the_grace_is_stopped_and_follows_elsewhere(world):
    async with world.worker(grace_s=1) as worker:
        await world.submit(operation("hold", payload=world.files))
        await world.logged("begun 1")
        await worker.drained()
    assert "stopped puller_stopping" in world.lines()
    async with world.worker():
        await world.logged("begun 2")
        world.until.touch()
        summary = await world.comes_to("succeeded")
    assert "puller stopped" in json.dumps(summary["history"])


async def test_an_operation_that_waits_holds_no_runner_and_costs_no_attempt(world):
    async with world.worker():
        later = operation("later", payload=world.files)
        await world.submit(operation("count", payload=world.files), later, max_attempts=1)
        summary = await world.comes_to("waiting")
        assert (summary["waiting_for"], "not there" in summary["message"]) == ("not_yet", True)
        world.until.touch()
        assert (await world.comes_to("succeeded"))["attempt"] > 1
    assert world.lines() == ["ran"]


async def test_an_operation_is_completed_elsewhere(world):
    async with world.worker():
        await world.submit(
            operation("hand-over", payload=world.files),
            operation("echo", None, "@<hand-over.out>"),
        )
        await world.comes_to("waiting")
        (token,) = world.lines()
        body = {"token": token, "result": {"frames": 12}}
        await world.system.post("/v1/completions", body)
        await world.comes_to("succeeded")
        found = await world.operations()
    assert (found["echo"]["result"], world.lines()) == ({"frames": 12}, [token])


@pytest.mark.parametrize(("whose", "says"), [("nobody", "401"), ("stranger", "404")])
async def test_a_foreign_token_is_refused_and_the_worker_says_so(world, whose, says):
    async with world.worker(whose=whose) as worker:
        assert await worker.ended() == 1
        last = worker.log.read_text()
    assert says in last
    assert world.tokens[whose] not in last


async def test_while_the_api_is_away_work_goes_on_and_its_end_is_reported_later(world):
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TcpProxy(f"{world.system.url}/").listening())
        worker = await stack.enter_async_context(world.worker(url=proxy.dsn.rstrip("/")))
        await world.submit(operation("hold", payload=world.files))
        await world.logged("begun 1")
        proxy.close()
        world.until.touch()
        async with within(WITHIN_S):
            while "api.unavailable" not in worker.log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        proxy.open()
        assert (await world.comes_to("succeeded"))["attempt"] == 1
        await worker.drained()


OF_HTTP = {
    "test_a_foreign_token_is_refused_and_the_worker_says_so",
    "test_while_the_api_is_away_work_goes_on_and_its_end_is_reported_later",
}
"""What only workers that pull over HTTP can do."""

FIXTURES = {"system": system, "world": world}
HTTP_TESTS = {name: one for name, one in globals().items() if name.startswith("test_")}
"""All of them, for the namespace of a module that has a fixture `program`."""

TESTS = {name: one for name, one in HTTP_TESTS.items() if name not in OF_HTTP}
"""Those for workers of any kind."""
