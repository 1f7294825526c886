"""The HTTP client of the commands, against a small server."""

from datetime import timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pop_stream.cli.client import ApiClient, ApiError

PROBLEM = {
    "detail": "the agenda is refused for 2 reasons; see issues",
    "issues": [
        {"field": "operations", "value": "[]", "message": "at least one"},
        {"field": "customer_id", "value": "a b", "message": "no blanks"},
    ],
}


@pytest.fixture
async def answers():
    """What the server answers, one after the other."""
    return []


@pytest.fixture
async def client(answers):
    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = answers.pop(0)
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="text/event-stream")
        return answer

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    async with ApiClient(str(server.make_url("/"))) as client:
        yield client
    await server.close()


def problem(status: int, document: dict, **headers: str) -> web.Response:
    return web.json_response(
        document, status=status, content_type="application/problem+json", headers=headers
    )


async def test_problem_is_told_with_its_issues(client, answers):
    answers.append(problem(422, PROBLEM))
    with pytest.raises(ApiError) as refused:
        await client.submit(b"{}")
    assert str(refused.value).splitlines() == [
        "the agenda is refused for 2 reasons; see issues",
        "  operations = []: at least one",
        "  customer_id = a b: no blanks",
    ]
    assert refused.value.retry_after_s is None


async def test_refusals_of_a_list_are_told_by_their_place(client, answers):
    results = [{"index": 7, "status": 422, "issues": PROBLEM["issues"][:1]}]
    answers.append(problem(422, {"detail": "none was accepted", "results": results}))
    with pytest.raises(ApiError, match=r"(?s)agenda 7 of the list.*at least one"):
        await client.submit(b"[{}]")


async def test_answer_that_is_no_problem_is_told_by_its_status(client, answers):
    answers.append(web.Response(status=502, text="<html>"))
    with pytest.raises(ApiError, match="502 Bad Gateway"):
        await client.get("agendas", "a1")


@pytest.mark.parametrize("status", [429, 503])
async def test_patient_submission_is_sent_again(client, answers, status):
    again = problem(status, {"detail": "busy"}, **{"Retry-After": "0"})
    answers.extend([again, web.json_response({"id": "a1"}, status=202)])
    assert await client.submit(b"{}", patience=timedelta(seconds=5)) == {"id": "a1"}


async def test_impatient_submission_is_sent_once(client, answers):
    answers.append(problem(503, {"detail": "busy"}, **{"Retry-After": "9"}))
    with pytest.raises(ApiError, match="busy"):
        await client.submit(b"{}")


async def test_events_are_read_one_by_one(client, answers):
    answers.append(
        b': hello\n\nid: 1\nevent: progress\ndata: {"percent":\ndata: 1}\n\n'
        b'data: {"percent": 2}\r\n\r\ndata: {"cut off'
    )
    found = [event async for event in client.follow("agendas", "a1", "events")]
    assert found == [{"percent": 1}, {"percent": 2}]


async def test_api_that_is_away_is_told_with_a_remedy(unused_tcp_port):
    async with ApiClient(f"http://127.0.0.1:{unused_tcp_port}") as client:
        with pytest.raises(ApiError, match=r"(?s)cannot reach.*pop-stream dev"):
            await client.get("agendas", "a1")
        assert not await client.is_ready()
