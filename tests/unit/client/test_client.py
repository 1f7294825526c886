"""The client, against a small server that answers as scripted."""

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pop_stream.api_models.pulls import ReportAcknowledgement
from pop_stream.client import (
    NO_RETRY,
    ApiConflictError,
    ApiFaultError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiPreconditionError,
    ApiRateLimitedError,
    ApiRefusedError,
    ApiUnauthenticatedError,
    ApiUnavailableError,
    ApiUnreachableError,
    BulkCommand,
    Client,
    Retry,
    Selection,
    Trace,
    tracing,
)
from pop_stream.model.agenda import Agenda
from pop_stream.model.retry import Backoff
from pop_stream.model.template import TEMPLATE_CALL
from pop_stream.policy.lifecycle.states import State

ISSUES = [
    {"field": "operations", "value": "[]", "message": "at least one"},
    {"field": "customer_id", "value": "a b", "message": "no blanks"},
]
PROBLEM = {
    "type": "urn:pop-stream:problem:submission_refused",
    "title": "Unprocessable Entity",
    "status": 422,
    "detail": "the agenda is refused for 2 reasons; see issues",
    "instance": "/v1/agendas",
    "code": "submission_refused",
    "correlation_id": "c1",
    "issues": ISSUES,
}
TOKEN = "pop_key_secret"  # noqa: S105  # opens nothing
LINKS = {"agenda": "/v1/agendas/a1", "progress": "/p", "events": "/e"}
ACCEPTED = {"id": "a1", "state": "accepted", "insight_id": "files", "links": LINKS}
NAMED = {"id": "a1", "customer_id": "acme", "operations": [{"name": "a", "type": "http"}]}
NAMELESS = {key: value for key, value in NAMED.items() if key != "id"}
QUICK = Retry(within=timedelta(seconds=20), backoff=Backoff(first_s=0, factor=1, most_s=0.001))


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Script:
    """What the server answers, one after the other, and what it was asked."""

    answers: list[Any] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        reply = json.loads(body) if body else None
        self.asked.append(Asked(request.method, request.path_qs, headers, reply))
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="text/event-stream")
        if answer is None:  # hang up without a word
            request.transport.close()
            return web.Response()
        return answer

    def client(self, retry: Retry = QUICK, **options: Any) -> Client:
        return Client(self.url, retry=retry, **options)


@pytest.fixture
async def script():
    script = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.serve)
    server = TestServer(app)
    await server.start_server()
    script.url = str(server.make_url("/"))
    yield script
    await server.close()


def ok(content: object, status: int = 200) -> web.Response:
    return web.json_response(content, status=status)


def problem(status: int, **changes: Any) -> web.Response:
    headers = {"Retry-After": "0"} if status in {429, 503} else {}
    return web.json_response(
        PROBLEM | {"status": status} | changes,
        status=status,
        content_type="application/problem+json",
        headers=headers,
    )


async def test_a_refusal_is_raised_with_its_issues(script):
    script.answers = [problem(422)]
    async with script.client() as client:
        with pytest.raises(ApiRefusedError) as refused:
            await client.submit(NAMED)
    assert str(refused.value).splitlines() == [
        "the agenda is refused for 2 reasons; see issues",
        "  operations = []: at least one",
        "  customer_id = a b: no blanks",
    ]
    assert (refused.value.status, refused.value.correlation_id) == (422, "c1")
    assert [one.field for one in refused.value.issues] == ["operations", "customer_id"]


async def test_refusals_of_a_list_are_named_by_their_position(script):
    results = [{"index": n, "status": 422, "issues": ISSUES[:1]} for n in range(25)]
    script.answers = [problem(422, detail="none was accepted", issues=[], results=results)]
    async with script.client() as client:
        with pytest.raises(ApiRefusedError, match=r"(?s)agenda 7 of the list.*and 5 more"):
            await client.submit_many([NAMED])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ApiRefusedError),
        (401, ApiUnauthenticatedError),
        (403, ApiForbiddenError),
        (404, ApiNotFoundError),
        (409, ApiConflictError),
        (412, ApiPreconditionError),
        (413, ApiRefusedError),
        (429, ApiRateLimitedError),
        (500, ApiFaultError),
        (503, ApiUnavailableError),
    ],
)
async def test_each_status_is_an_error_of_its_own(script, status, kind):
    script.answers = [problem(status)]
    async with script.client(NO_RETRY) as client:
        with pytest.raises(kind) as error:
            await client.agenda("a1")
    assert type(error.value) is kind
    assert error.value.status == status


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=502, text="<html>"),
        web.Response(status=200, text="<html>"),
        web.json_response({"id": 1}),
    ],
)
async def test_an_answer_of_someone_else_is_a_fault(script, answer):
    script.answers = [answer]
    async with script.client() as client:
        with pytest.raises(ApiFaultError):
            await client.agenda("a1")


@pytest.mark.parametrize("failure", [429, 503, None])
async def test_what_is_the_same_done_twice_is_sent_again(script, failure):
    again = None if failure is None else problem(failure, code="unavailable")
    script.answers = [again, ok(ACCEPTED, 202)]
    async with script.client() as client:
        assert (await client.submit(NAMED)).insight_id == "files"
    assert [one.body for one in script.asked] == [NAMED, NAMED]


@pytest.mark.parametrize("failure", [503, None])
@pytest.mark.parametrize(
    "submission",
    [
        NAMELESS,
        Agenda.model_validate(NAMELESS),
        msgspec.Raw(json.dumps(NAMELESS).encode()),
    ],
)
async def test_what_could_run_twice_is_sent_once(script, submission, failure):
    script.answers = [None if failure is None else problem(failure, code="unavailable")]
    async with script.client() as client:
        with pytest.raises(ApiUnavailableError):
            await client.submit(submission)
    assert len(script.asked) == 1


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("shape", [dict, TEMPLATE_CALL.model_validate])
async def test_a_run_is_sent_again_only_if_it_names_its_agenda(script, shape, named):
    call = shape({"payload": 7, **({"id": "a1"} if named else {})})
    script.answers = [problem(503, code="unavailable"), ok(ACCEPTED, 202)]
    async with script.client() as client:
        if named:
            await client.templates.run("nightly", call)
        else:
            with pytest.raises(ApiUnavailableError):
                await client.templates.run("nightly", call)
    assert len(script.asked) == 1 + named


@pytest.mark.parametrize(("status", "code"), [(429, "quota"), (503, "busy")])
async def test_what_was_not_looked_at_is_sent_again_whatever_it_is(script, status, code):
    script.answers = [problem(status, code=code), ok(ACCEPTED, 202)]
    async with script.client() as client:
        await client.submit(NAMELESS)
    assert len(script.asked) == 2


@pytest.mark.parametrize("named", [True, False])
async def test_a_list_is_sent_again_only_if_all_are_named(script, named):
    done = ok({"accepted": 2, "refused": 0, "results": []}, 202)
    script.answers = [problem(503, code="unavailable"), done]
    async with script.client() as client:
        try:
            await client.submit_many([NAMED, NAMED if named else NAMELESS])
        except ApiUnavailableError:
            assert not named
    assert len(script.asked) == 1 + named


async def test_patience_has_an_end_that_the_api_cannot_lengthen(script):
    busy = problem(503)
    busy.headers["Retry-After"] = "3600"
    script.answers = [busy]
    async with script.client() as client:
        with pytest.raises(ApiUnavailableError) as error:
            await client.agenda("a1")
    assert error.value.retry_after_s == 3600
    assert len(script.asked) == 1


async def test_nothing_is_silently_turned_into_other_json(script):
    async with script.client() as client:
        with pytest.raises(ValueError, match="Out of range float"):
            await client.submit(NAMED | {"cost_s": float("nan")})
    assert not script.asked


async def test_json_text_is_sent_as_it_is(script):
    script.answers = [ok(ACCEPTED, 202)]
    async with script.client() as client:
        await client.submit(
            msgspec.Raw(b'{"id": "a1", "x": 1e400000}'.replace(b"1e400000", b"1"))
        )
    assert script.asked[0].body == {"id": "a1", "x": 1}


PROGRESS = {
    "id": "a1", "state": "running", "attempt": 1, "percent": 0.0, "message": "",
    "link_id": None, "external_id": None, "started_at": None, "ended_at": None,
    "operations": [], "diagnostics": [], "appended": [],
}  # fmt: skip


def event(number: int, **changes: Any) -> bytes:
    return b"id: %d\nevent: progress\ndata: %b\n\n" % (
        number,
        json.dumps(PROGRESS | changes).encode(),
    )


async def test_a_stream_that_breaks_is_taken_up_where_it_was(script):
    script.answers = [
        b": hello\n\n" + event(1) + event(2, percent=40) + b'id: 3\ndata: {"cut off',
        problem(503),
        event(2, percent=40) + event(5, percent=100, state="succeeded") + event(6),
    ]
    async with script.client() as client:
        seen = [one async for one in client.follow("a1")]
    assert [one.percent for one in seen] == [0, 40, 100]
    assert seen[-1].state is State.SUCCEEDED
    assert [one.headers.get("last-event-id") for one in script.asked] == [None, "2", "2"]


async def test_a_stream_is_not_waited_for_for_ever(script):
    script.answers = [event(1)]
    async with script.client(NO_RETRY) as client, aclosing(client.follow("a1")) as followed:
        assert (await anext(followed)).percent == 0
        with pytest.raises(ApiUnavailableError, match="ended the stream early"):
            await anext(followed)


async def test_data_of_an_event_may_take_several_lines(script):
    lines = json.dumps(PROGRESS | {"state": "failed"}, indent=1).splitlines()
    script.answers = ["".join(f"data:{line}\r\n" for line in lines).encode() + b"\r\n"]
    async with script.client() as client:
        assert [one.state async for one in client.follow("a1")] == [State.FAILED]


async def test_lists_are_read_page_after_page(script):
    one = {
        "id": "a1", "state": "ready", "attempt": 1, "insight_id": None, "customer_id": "acme",
        "title": "", "link_id": None, "external_id": "x-1", "correlation_id": None,
        "template_id": None, "puller_id": None, "priority": 5, "percent": 0.0,
        "message": "", "accepted_at": None, "emitted_at": None, "started_at": None,
        "ended_at": None, "waiting_until": None, "waiting_for": None, "stopping": None,
    }  # fmt: skip
    script.answers = [
        ok({"total": 2, "total_is_capped": False, "agendas": [one], "next": "x y"}),
        ok(
            {
                "total": 2,
                "total_is_capped": False,
                "agendas": [one | {"id": "a2"}],
                "next": None,
            }
        ),
    ]
    where = Selection(customer_id=("acme",), state=(State.READY, State.HELD))
    async with script.client() as client:
        assert [found.id async for found in client.agendas(where)] == ["a1", "a2"]
    reply = "customer_id=acme&state=ready&state=held&order=newest&limit=500"
    assert [asked.path for asked in script.asked] == [
        f"/v1/agendas?{reply}",
        f"/v1/agendas?{reply}&cursor=x+y",
    ]


CUSTOMER = {
    "id": "acme", "weight": 2.0, "version": 7, "colour": "of a later version",
    "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-02T00:00:00Z",
}  # fmt: skip


async def test_a_definition_is_read_and_changed_in_the_version_that_was_seen(script):
    script.answers = [ok(CUSTOMER), web.Response(status=304), ok(CUSTOMER), ok(CUSTOMER)]
    async with script.client() as client:
        acme = await client.customers.get("acme")
        assert (acme.definition.weight, acme.version) == (2.0, 7)
        assert acme.content["colour"] == "of a later version"
        assert await client.customers.get("acme", known=acme) is acme
        await client.customers.patch("acme", {"weight": None}, if_match=acme.version)
        await client.customers.put("acme", acme.definition, if_absent=True)
    _, known, patched, put = script.asked
    assert known.headers["if-none-match"] == '"7"'
    assert (patched.headers["if-match"], patched.body) == ('"7"', {"weight": None})
    assert patched.headers["content-type"] == "application/merge-patch+json"
    assert (put.headers["if-none-match"], put.body) == ("*", {"id": "acme", "weight": 2.0})


async def test_a_conditional_change_is_not_sent_again_after_a_lost_answer(script):
    script.answers = [None]
    async with script.client() as client:
        with pytest.raises(ApiUnreachableError):
            await client.customers.put("acme", {}, if_match=7)
    assert len(script.asked) == 1


async def test_requests_carry_the_trace_and_the_token(script):
    script.answers = [web.Response(status=204) for _ in range(3)]
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    more = iter([{"baggage": "x=1"}, {}, {}])
    async with script.client(token=TOKEN, headers=lambda: next(more)) as client:
        with tracing(Trace(traceparent=parent, correlation_id="order-7")):
            await client.delete("a1")
        with tracing(Trace.of({"x-correlation-id": "order-8"})):
            await client.delete("a1")
        await client.delete("a1")
    first, second, third = [one.headers for one in script.asked]
    assert (first["traceparent"], first["x-correlation-id"]) == (parent, "order-7")
    assert first["baggage"] == "x=1"
    assert second["x-correlation-id"] == "order-8"
    assert "x-correlation-id" not in third
    assert {one["authorization"] for one in (first, second, third)} == {f"Bearer {TOKEN}"}


async def test_no_text_can_leave_its_place_in_the_path(script):
    script.answers = [problem(404)]
    async with script.client() as client:
        with pytest.raises(ApiNotFoundError):
            await client.operation("a/../b", "x?y=1 ü")
    assert script.asked[0].path == "/v1/agendas/a%2F..%2Fb/operations/x%3Fy%3D1%20%C3%BC"


async def test_a_command_for_many_says_only_what_was_set(script):
    script.answers = [problem(503, code="unavailable")]
    command = BulkCommand(action="hold", filter=Selection(ids=("a1",)), reason="late")
    async with script.client() as client:
        with pytest.raises(ApiUnavailableError):
            await client.command(command)
    (asked,) = script.asked
    assert asked.body == {"action": "hold", "filter": {"ids": ["a1"]}, "reason": "late"}


async def test_a_pull_may_take_as_long_as_it_waits(script):
    script.answers = [ok({"agendas": []})]
    async with script.client(timeout=timedelta(milliseconds=200)) as client:
        assert await client.pull("files", "w1", wait=timedelta(seconds=9)) == []
    assert script.asked[0].body == {"puller_id": "w1", "count": 1, "wait_s": 9.0}


async def test_an_attempt_is_reported_on_by_its_path(script):
    acknowledgement = ReportAcknowledgement(
        agenda_id="a1", attempt=3, lease_ms=1000, stop=None, appended=[]
    )
    script.answers = [ok(msgspec.to_builtins(acknowledgement))] * 1
    attempt = SimpleNamespace(agenda_id="a1", attempt=3, lease_token="v1.x.y")  # noqa: S106
    async with script.client() as client:
        assert await client.heartbeat(attempt, "w1") == acknowledgement
    (asked,) = script.asked
    assert asked.path == "/v1/agendas/a1/attempts/3/heartbeat"
    assert asked.body == {"puller_id": "w1", "lease_token": "v1.x.y"}


async def test_an_api_that_is_away_is_unreachable(unused_tcp_port):
    url = f"http://127.0.0.1:{unused_tcp_port}"
    async with Client(url, retry=NO_RETRY) as client:
        with pytest.raises(ApiUnreachableError, match="cannot reach the API at") as error:
            await client.agenda("a1")
        assert not error.value.may_be_done
        assert not await client.is_ready()


async def test_an_answer_that_does_not_come_is_not_waited_for(script):
    script.answers = [asyncio.Event()]
    async with script.client(NO_RETRY, timeout=timedelta(milliseconds=50)) as client:
        with pytest.raises(ApiUnreachableError) as error:
            await client.agenda("a1")
    assert error.value.may_be_done


async def test_a_client_is_entered_before_use():
    with pytest.raises(RuntimeError, match="async with"):
        await Client("http://127.0.0.1:1").agenda("a1")
