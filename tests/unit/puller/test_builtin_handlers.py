"""The handlers that come with the library, run as a puller runs them."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from socket import AF_INET
from urllib.parse import urlencode

import msgspec
import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver
from aiohttp.test_utils import TestServer
from deadlines import within
from puller_fakes import node, run_of

from pop_stream import ssrf_guard
from pop_stream.puller.execution.operation_retrier import RESULT_BYTES
from pop_stream.puller.handlers import command as command_module
from pop_stream.puller.handlers.builtin import builtin
from pop_stream.puller.handlers.command import OUTPUT_BYTES
from pop_stream.puller.handlers.http import BODY_BYTES
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.handlers.waiting import sleep
from pop_stream.settings import Settings

PYTHON = sys.executable
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
async def bounded():
    async with within(20):
        yield


@pytest.fixture
async def handlers():
    registry = builtin(
        Settings(
            allowed_commands=(PYTHON, SHELL, "/no/such/program"),
            http_networks=("127.0.0.1/32",),
        )
    )
    yield registry
    await registry.close()


async def result_of(handlers, kind, payload, **fields):
    run = run_of(handlers, node("a", kind=kind, payload=payload), **fields)
    failure = await run.run()
    assert failure is None, failure
    return msgspec.json.decode(run.take_changes().operations[0].result)


async def failure_of(handlers, kind, payload):
    failure = await run_of(handlers, node("a", kind=kind, payload=payload)).run()
    assert failure is not None
    return failure


async def test_noop_returns_its_payload(handlers):
    assert await result_of(handlers, "noop", {"x": [1]}) == {"x": [1]}


async def test_append_adds_the_operations_of_an_earlier_result(handlers):
    @handlers.handler("planner")
    async def plan(_):
        return [node("x", kind="noop", payload=1), node("y", kind="noop", payload="@<x.out>")]

    run = run_of(
        handlers,
        node("plan", kind="planner"),
        node("grow", kind="append", payload={"operations": "@<plan.out>"}),
    )
    assert await run.run() is None
    changes = run.take_changes()
    results = {one.name: msgspec.json.decode(one.result) for one in changes.operations}
    assert results["grow"] == {"appended": ["x", "y"]}
    assert {one.by for one in changes.appended} == {"grow"}
    assert (results["x"], results["y"]) == (1, 1)


@pytest.mark.parametrize(
    ("operations", "reported"),
    [("x", "payload.operations"), ([{"name": "x"}], "type"), ([node("a")], "taken")],
)
async def test_what_cannot_be_appended_fails_for_good(handlers, operations, reported):
    failure = await failure_of(handlers, "append", {"operations": operations})
    assert reported in failure.message
    assert not failure.retryable


async def test_sleep_reports_how_far_it_is():
    reports = []
    call = OperationCall(
        name="a",
        type="sleep",
        payload={"seconds": 0.02},
        params={},
        agenda_id="a1",
        customer_id="acme",
        insight_id="media",
        attempt=1,
        report_to=lambda percent, message: reports.append(percent),
    )
    await sleep(call)
    assert reports[-1] == 100


@pytest.mark.parametrize(
    ("kind", "payload", "says"),
    [
        ("sleep", {"seconds": -1}, "payload.seconds = -1: Input should be greater than"),
        ("sleep", {}, "payload.seconds = {}: Field required; fields are seconds"),
        ("sleep", None, "payload = None"),
        (
            "http",
            {"url": "file:///etc/passwd"},
            "payload.url = 'file:///etc/passwd': write http",
        ),
        ("http", {"url": "http://"}, "payload.url"),
        ("http", {"url": "http://x/", "json": 1, "body": "b"}, "payload.body"),
        ("http", {"url": "http://x/", "verb": "GET"}, "fields are url, method, headers, json"),
        ("http", {"url": "http://x/", "headers": {"a": "b\r\nc: d"}}, "payload.headers.a ="),
        ("command", {"program": "rm", "args": ["-r"]}, "'rm': is not allowed here"),
        ("command", {"program": "/no/such/program"}, "cannot be started here"),
    ],
)
async def test_wrong_payload_fails_finally_and_says_what_is_wrong(
    handlers, kind, payload, says
):
    failure = await failure_of(handlers, kind, payload)
    assert says in failure.message
    assert not failure.retryable


async def test_no_command_is_allowed_by_default():
    failure = await failure_of(builtin(Settings()), "command", {"program": PYTHON})
    assert "POP_ALLOWED_COMMANDS" in failure.message


async def answer_headers(request):
    return web.json_response({k.lower(): v for k, v in request.headers.items()})


async def answer(request):
    match request.match_info["what"]:
        case "echo":
            return web.json_response(
                {"method": request.method, "body": await request.text()},
                headers={"X-Seen": request.headers.get("X-Ask", "")},
            )
        case "large":
            return web.Response(body=b"\xff" * 1_000_000)
        case "never":
            await asyncio.Event().wait()
        case "not-json":
            return web.Response(text="{", content_type="application/json")
        case "nul":
            return web.json_response("a\0b")
        case "redirect":
            raise web.HTTPTemporaryRedirect(request.query["to"])
        case "cookie":
            response = web.Response(text=str(len(request.cookies)))
            response.set_cookie("a", "b")
            return response
    return web.Response(status=int(request.match_info["what"]), text="because")


@asynccontextmanager
async def server(host="127.0.0.1"):
    app = web.Application()
    app.router.add_get("/headers", answer_headers)
    app.router.add_route("*", "/{what}", answer)
    async with TestServer(app, host=host) as one:
        yield lambda what: str(one.make_url(f"/{what}"))


async def test_http_sends_json_and_returns_the_answer(handlers):
    async with server() as url:
        payload = {
            "url": url("echo"),
            "method": "post",
            "json": {"a": 1},
            "headers": {"X-Ask": "7"},
        }
        result = await result_of(handlers, "http", payload)
        await handlers.close()
    assert result["status"] == 200
    assert result["headers"]["x-seen"] == "7"
    assert result["body"] == {"method": "POST", "body": '{"a": 1}'}


async def test_http_sends_the_trace_of_its_operation_unless_the_payload_states_one(handlers):
    trace = {"traceparent": PARENT, "tracestate": "a=1", "correlation_id": "c"}
    async with server() as url:
        plain = {"url": url("headers")}
        got = (await result_of(handlers, "http", plain, trace=trace))["body"]
        assert (got["traceparent"], got["tracestate"]) == (PARENT, "a=1")
        assert "x-correlation-id" not in got
        own = plain | {"headers": {"Traceparent": "00-own"}}
        got = (await result_of(handlers, "http", own, trace=trace))["body"]
        assert got["traceparent"] == "00-own"
        assert "tracestate" not in got
        assert "traceparent" not in (await result_of(handlers, "http", plain))["body"]
        await handlers.close()


async def test_http_answer_that_is_no_json_is_text(handlers):
    async with server() as url:
        assert (await result_of(handlers, "http", {"url": url("not-json")}))["body"] == "{"
        assert (await result_of(handlers, "http", {"url": url("nul")}))["body"] == '"a\\u0000b"'
        await handlers.close()


async def test_http_body_is_capped_so_that_it_fits_a_result(handlers):
    async with server() as url:
        result = await result_of(handlers, "http", {"url": url("large")})
        await handlers.close()
    assert result["truncated"]
    assert 0 < len(result["body"].encode()) <= BODY_BYTES < RESULT_BYTES


async def test_http_keeps_no_cookies_from_one_operation_to_the_next(handlers):
    async with server() as url:
        for _ in range(2):
            assert (await result_of(handlers, "http", {"url": url("cookie")}))["body"] == "0"
        await handlers.close()


@pytest.mark.parametrize(
    ("what", "more", "retryable"),
    [
        ("404", {}, False),
        ("429", {}, True),
        ("503", {}, True),
        ("200", {"expect_status": 201}, False),
        ("500", {"expect_status": [201, 202]}, True),
        ("never", {"timeout_s": 0.05}, True),
    ],
)
async def test_http_failure_is_retryable_unless_the_request_is_at_fault(
    handlers, what, more, retryable
):
    async with server() as url:
        failure = await failure_of(handlers, "http", {"url": url(what), **more})
        await handlers.close()
    assert failure.retryable is retryable
    assert ("because" in failure.message) is (what != "never")


async def test_http_status_that_is_expected_is_no_failure(handlers):
    async with server() as url:
        payload = {"url": url("404"), "expect_status": [200, 404]}
        assert (await result_of(handlers, "http", payload))["body"] == "because"
        await handlers.close()


@asynccontextmanager
async def secret_server(host="127.0.0.2"):
    """A server of our own network; what it is asked is kept."""
    asked = []

    async def tell(request):
        asked.append(request.path)
        return web.Response(text="5ecret")

    app = web.Application()
    app.router.add_route("*", "/{what}", tell)
    async with TestServer(app, host=host) as one:
        yield one.port, asked


def expect_refused(failure):
    assert not failure.retryable
    assert "POP_HTTP_NETWORKS" in failure.message
    assert "5ecret" not in failure.message


@pytest.mark.parametrize(
    "host",
    ["127.0.0.2", "127.2", "2130706434", "0x7f.2", "127.0.0.2.", "[::ffff:127.0.0.2]",
     "[::ffff:7f00:2]", "localhost"],
)  # fmt: skip
async def test_http_calls_no_internal_address_however_it_is_spelt(host):
    handlers = builtin(Settings())
    address = "127.0.0.1" if host == "localhost" else "127.0.0.2"
    async with secret_server(address) as (port, asked):
        url = f"http://{host}:{port}/x"
        expect_refused(await failure_of(handlers, "http", {"url": url}))
        await handlers.close()
    assert asked == []


@pytest.mark.parametrize(
    "host", ["127.0.0.2", "127.2", "2130706434", "[::ffff:127.0.0.2]", "inside.example"]
)
async def test_http_follows_no_redirect_to_an_internal_address(handlers, host, monkeypatch):
    names = Names({"inside.example": ["127.0.0.2"]})
    monkeypatch.setattr(ssrf_guard, "ThreadedResolver", lambda: names)
    async with server() as url, secret_server() as (port, asked):
        inside = f"http://{host}:{port}/x"
        twice = url("redirect") + "?" + urlencode({"to": inside})
        for first in (twice, url("redirect") + "?" + urlencode({"to": twice})):
            failure = await failure_of(handlers, "http", {"url": first})
            assert not failure.retryable
            assert "POP_HTTP_NETWORKS" in failure.message or "IPv4" in failure.message
        await handlers.close()
    assert asked == []


async def test_http_follows_a_redirect_to_where_it_may_go(handlers):
    async with server() as url, server() as other:
        to = urlencode({"to": other("echo")})
        result = await result_of(handlers, "http", {"url": f"{url('redirect')}?{to}"})
        await handlers.close()
    assert result["body"]["method"] == "GET"


class Names:
    """A resolver of names that have another address each time they are looked up."""

    def __init__(self, addresses):
        self._addresses = addresses
        self.asked = 0

    async def resolve(self, host, port=0, family=0):
        self.asked += 1
        known = self._addresses.get(host)
        if known is None:
            return await ThreadedResolver().resolve(host, port, family)
        address = known.pop(0) if len(known) > 1 else known[0]
        return [
            {"hostname": host, "host": address, "port": port, "family": AF_INET, "proto": 0,
             "flags": 0}
        ]  # fmt: skip

    async def close(self):
        pass


async def test_http_connects_to_the_address_that_was_checked_and_no_other(
    handlers, monkeypatch
):
    names = Names({"turns.example": ["127.0.0.1", "127.0.0.2"]})
    monkeypatch.setattr(ssrf_guard, "ThreadedResolver", lambda: names)
    async with secret_server("127.0.0.1") as (port, asked):
        payload = {"url": f"http://turns.example:{port}/x", "headers": {"Connection": "close"}}
        assert (await result_of(handlers, "http", payload))["body"] == "5ecret"
        assert names.asked == 1  # once for each connection
        expect_refused(await failure_of(handlers, "http", payload))
        await handlers.close()
    assert len(asked) == 1


async def test_http_connects_to_no_address_that_nobody_checked(monkeypatch):
    unchecked = Names({"turns.example": ["127.0.0.1"]})
    monkeypatch.setattr(ssrf_guard, "GuardedResolver", lambda _: unchecked)
    handlers = builtin(Settings())
    async with secret_server("127.0.0.1") as (port, asked):
        payload = {"url": f"http://turns.example:{port}/x"}
        expect_refused(await failure_of(handlers, "http", payload))
        await handlers.close()
    assert asked == []


async def test_http_server_that_is_not_there_is_worth_a_retry(handlers):
    async with server() as url:
        gone = url("echo")
    failure = await failure_of(handlers, "http", {"url": gone})
    assert failure.retryable
    assert "ClientConnectorError" in failure.message


def script(code, **more):
    return {"program": PYTHON, "args": ["-c", code], **more}


async def test_command_gets_its_input_and_returns_its_output(handlers):
    code = "import sys; print(sys.stdin.read().upper()); print('w', file=sys.stderr)"
    result = await result_of(handlers, "command", script(code, stdin="hello é"))
    assert result == {"exit_code": 0, "stdout": "HELLO É\n", "stderr": "w\n"}


async def test_command_sees_no_shell_and_no_secrets(handlers, monkeypatch):
    monkeypatch.setenv("POP_KAFKA_PASSWORD", "hunter2")
    payload = script("import os, sys; print(sys.argv[1:], os.environ)")
    payload["args"].append("$(id); rm")
    stdout = (await result_of(handlers, "command", payload))["stdout"]
    assert stdout.startswith("['$(id); rm'] ")
    assert "hunter2" not in stdout


async def test_command_gets_the_trace_of_its_operation_and_no_other(handlers, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setenv("TRACEPARENT", "the puller's")
    payload = script("import json, os; print(json.dumps(dict(os.environ)))")
    without = json.loads((await result_of(handlers, "command", payload))["stdout"])
    assert "TRACEPARENT" not in without
    assert without["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in without
    trace = {"traceparent": PARENT, "tracestate": "a=1", "correlation_id": "c"}
    given = await result_of(handlers, "command", payload, trace=trace)
    environment = json.loads(given["stdout"])
    assert (environment["TRACEPARENT"], environment["TRACESTATE"]) == (PARENT, "a=1")
    assert not {"X-CORRELATION-ID", "x-correlation-id"} & {*environment}


async def test_command_that_reads_no_input_is_no_failure(handlers):
    result = await result_of(handlers, "command", script("pass", stdin="x" * 1_000_000))
    assert result["exit_code"] == 0


async def test_command_output_is_capped(handlers):
    code = "import os; os.write(1, b'\\xff' * 1_000_000); os.write(2, b'\\x01' * 1_000_000)"
    result = await result_of(handlers, "command", script(code))
    assert result["truncated"]
    assert 0 < len(result["stdout"].encode()) <= OUTPUT_BYTES


async def test_exit_code_other_than_0_is_a_failure_with_the_end_of_what_was_said(handlers):
    code = "import sys; sys.exit('no space left')"
    failure = await failure_of(handlers, "command", script(code))
    assert failure.message.endswith("ended with exit code 1: no space left")
    assert failure.retryable


SHELL = "/bin/sh"
FAMILY = 'exec 9>"$0"; sleep 60 & echo begun >&9; wait'


@pytest.fixture
def family(tmp_path):
    """A command with a child, and a pipe that ends when both have."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    return {"program": SHELL, "args": ["-c", FAMILY, str(pipe)]}, pipe


async def test_command_that_takes_too_long_is_killed_with_its_children(handlers, family):
    payload, pipe = family
    pipe_ends = asyncio.create_task(asyncio.to_thread(pipe.read_text))
    failure = await failure_of(handlers, "command", {**payload, "timeout_s": 0.7})
    assert "payload.timeout_s = 0.7" in failure.message
    assert failure.retryable
    assert await pipe_ends == "begun\n"


async def test_cancelled_command_is_killed_with_its_children(handlers, family):
    payload, pipe = family
    task = asyncio.create_task(
        run_of(handlers, node("a", kind="command", payload=payload)).run()
    )
    with await asyncio.to_thread(pipe.open) as reader:
        assert await asyncio.to_thread(reader.readline) == "begun\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(reader.read) == ""


FOREVER = 'exec 9>"$0"; echo begun >&9; while :; do sleep 0.05; done'
POLITE = f"trap 'echo swept >&9; exit 0' TERM; {FOREVER}"
STUBBORN = f"trap '' TERM; {FOREVER}"


@pytest.mark.parametrize(("program", "last_words"), [(POLITE, "swept\n"), (STUBBORN, "")])
async def test_cancelled_command_may_clean_up_but_not_stay(
    handlers, tmp_path, monkeypatch, program, last_words
):
    monkeypatch.setattr(command_module, "TERMINATE_TIMEOUT_S", 0.5)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    payload = {"program": SHELL, "args": ["-c", program, str(pipe)]}
    task = asyncio.create_task(
        run_of(handlers, node("a", kind="command", payload=payload)).run()
    )
    with await asyncio.to_thread(pipe.open) as reader:
        assert await asyncio.to_thread(reader.readline) == "begun\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(reader.read) == last_words
