"""The handler that submits children: in batches, as fast as the API takes them, each once."""

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from deadlines import within

from pop_stream.model.events.base import Diagnostic, PriorProgress
from pop_stream.puller.handlers import split as split_module
from pop_stream.puller.handlers.errors import FinalError, RetryableError
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.handlers.split import SplitHandler
from pop_stream.settings import Settings

TEMPLATE = {
    "id": "report",
    "version": 2,
    "agenda": {
        "customer_id": "acme",
        "operations": [{"name": "a", "type": "noop", "payload": "@<pop.payload>"}],
    },
}


@pytest.fixture(autouse=True)
async def bounded():
    async with within(20):
        yield


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(split_module, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(split_module, "BATCH_CHILDREN", 10)


class Api:
    """Takes lists of agendas, and answers them as a test plans it."""

    def __init__(self):
        self.accepted, self.requests, self.plan = [], [], []

    async def post(self, request):
        agendas = json.loads(await request.read())
        self.requests.append([one["id"] for one in agendas])
        answer = self.plan.pop(0) if self.plan else None
        if isinstance(answer, web.Response):
            return answer
        results = []
        for index, one in enumerate(agendas):
            status, issues = (answer or {}).get(one["id"], (202, None))
            results.append({"index": index, "status": status, "id": one["id"]})
            if issues:
                results[-1]["issues"] = issues
            if status == 202:
                self.accepted.append(one)
        return web.json_response({"accepted": 1, "refused": 0, "results": results}, status=202)


def refusal(status, **body):
    return web.json_response(body, status=status, headers={"Retry-After": "0.01"})


@asynccontextmanager
async def opened(token=None):
    api = Api()
    app = web.Application()
    app.router.add_post("/v1/agendas", api.post)
    async with TestServer(app) as server:
        handler = SplitHandler(Settings(api_url=str(server.make_url("")), api_token=token))
        yield api, handler
        await handler.close()


def call(count=25, *, payload=None, notes=None, **changes):
    values = {"stores": [*range(count)], "isolate_stores": True}
    given = {"split": {"attributes": ["store"]}, "template": TEMPLATE, "payload": values}
    return OperationCall(
        **{
            "name": "split",
            "type": "split",
            "payload": payload or given,
            "params": {},
            "agenda_id": "p@acme",
            "customer_id": "acme",
            "insight_id": "splits",
            "attempt": 1,
            "report_to": lambda percent, message: None,
            "note_to": lambda text, code, detail: (notes if notes is not None else []).append(
                (code, detail)
            ),
            **changes,
        }
    )


def numbers(agendas):
    return [int(one["id"].partition("@")[0].split(".")[-1]) for one in agendas]


async def test_children_are_submitted_in_batches_in_order():
    notes = []
    async with opened() as (api, handler):
        result = await handler(call(notes=notes))
    assert result == {"children": 25, "link_id": "p"}
    assert [len(one) for one in api.requests] == [10, 10, 5]
    assert numbers(api.accepted) == [*range(1, 26)]
    assert notes == [("split.submitted", {"submitted": one}) for one in (10, 20, 25)]
    assert {one["parent_id"] for one in api.accepted} == {"p@acme"}


async def test_batches_are_bounded_by_bytes(monkeypatch):
    monkeypatch.setattr(split_module, "BATCH_BYTES", 500)
    async with opened() as (api, handler):
        await handler(call())
    assert max(map(len, api.requests)) < 5
    assert numbers(api.accepted) == [*range(1, 26)]


async def test_what_the_api_has_no_room_for_is_sent_again_and_nothing_else():
    async with opened() as (api, handler):
        issue = [{"field": "customer_id", "value": "acme", "message": "too many"}]
        api.plan = [
            refusal(429, title="Too many"),
            {"p.3@acme": (429, issue), "p.5@acme": (503, issue)},
        ]
        await handler(call(5))
    assert api.requests[2] == ["p.3@acme", "p.5@acme"]
    assert sorted(numbers(api.accepted)) == [1, 2, 3, 4, 5]


async def test_an_api_that_is_away_is_waited_for():
    async with opened() as (api, handler):
        api.plan = [web.Response(status=502, text="<html>"), refusal(503), None]
        await handler(call(2))
    assert numbers(api.accepted) == [1, 2]


async def test_an_api_that_stays_away_fails_the_attempt(monkeypatch):
    monkeypatch.setattr(split_module, "_GIVE_UP_S", 0.01)
    handler = SplitHandler(Settings(api_url="http://127.0.0.1:9"))
    with pytest.raises(RetryableError, match="does not answer"):
        await handler(call(2))
    await handler.close()


@pytest.mark.parametrize("status", [409, 422, 403])
async def test_a_child_that_is_refused_fails_for_good_and_names_it(status):
    async with opened() as (api, handler):
        issue = [{"field": "operations[0].type", "value": "x", "message": "no insight takes"}]
        api.plan = [{"p.2@acme": (status, issue)}]
        with pytest.raises(FinalError, match=r"child 2 is refused .* no insight takes"):
            await handler(call(3))


async def test_a_token_that_may_not_submit_is_for_the_operator_to_mend():
    async with opened("secret") as (api, handler):
        api.plan = [refusal(401, detail="unknown key")]
        with pytest.raises(RetryableError, match="POP_API_TOKEN"):
            await handler(call(1))


async def test_an_attempt_goes_on_where_the_one_before_was():
    noted = tuple(
        Diagnostic(
            message="",
            at=datetime(2026, 1, 1, tzinfo=UTC),
            code="split.submitted",
            detail={"submitted": one},
        )
        for one in (10, 20)
    )
    prior = PriorProgress(attempt=1, state="running", percent=80, diagnostics=noted)
    async with opened() as (api, handler):
        await handler(call(prior=prior, attempt=2))
    assert numbers(api.accepted) == [21, 22, 23, 24, 25]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"parent_id": "q"}, "not divided again"),
        ({"payload": {"template": TEMPLATE, "payload": [1]}}, "is an object"),
        ({"payload": {"template": TEMPLATE}}, "payload.payload"),
        ({"payload": {"template": {**TEMPLATE, "agenda": {}}, "payload": {}}}, "operations"),
        (
            {"payload": {"template": {**TEMPLATE, "params": {"p": {}}}, "payload": {}}},
            "params.p.type",
        ),
        (
            {"payload": {"template": TEMPLATE, "payload": {}, "fields": {"priority": 99}}},
            "priority",
        ),
    ],
)
async def test_what_cannot_be_divided_fails_for_good(changes, says):
    async with opened() as (api, handler):
        with pytest.raises(FinalError, match=says):
            await handler(call(1, **changes))
    assert not api.accepted
