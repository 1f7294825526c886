"""Refused agendas, tried again."""

import json

import pytest
import pytest_asyncio
from api_fakes import agenda, open_api, summary

from pop_stream.model.definitions import Insight, Mappers
from pop_stream.policy.lifecycle.states import State

LATE = agenda(operations=[{"name": "a", "type": "late"}])


def refused(agenda_id, body, customer_id="acme"):
    content = json.dumps(body).encode() if body else b""
    return summary(
        agenda_id,
        state=State.REFUSED,
        body=content,
        customer_id=customer_id,
        accepted_at=None,
        operation_names=(),
        operations={},
    )


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        opened.summaries.put(refused("r1", LATE))
        opened.summaries.put(refused("r2", {"template_id": "t"}))
        opened.summaries.put(refused("r3", None))
        opened.summaries.put(refused("r4", {**LATE, "customer_id": "beta"}, "beta"))
        opened.summaries.put(summary("running"))
        yield opened


def define_late(api):
    late = Insight(id="late", mappers=Mappers(operation_types=("late",)))
    api.definitions.current = api.definitions.current.updated("insight/late", late)


async def test_nothing_passes_while_nothing_is_defined(api):
    status, answer = await api.post("/v1/resubmissions")
    assert (status, answer["resubmitted"], answer["still_refused"], answer["without_body"]) == (
        202, 0, 3, 1,
    )  # fmt: skip
    assert {one["id"] for one in answer["reasons"]} == {"r1", "r2", "r4"}
    assert api.published == []


async def test_what_passes_now_is_submitted_under_its_id(api):
    define_late(api)
    status, answer = await api.post("/v1/resubmissions")
    assert (status, answer["resubmitted"], answer["still_refused"]) == (202, 2, 1)
    assert {one["id"] for one in api.published} == {"r1", "r4"}


@pytest.mark.parametrize(
    ("body", "submitted"),
    [
        ({"filter": {"customer_id": ["beta"]}}, {"r4"}),
        ({"filter": {"ids": ["r1", "running"]}}, {"r1"}),
        ({"filter": {"state": ["running"]}}, set()),
        ({"dry_run": True}, set()),
    ],
)
async def test_only_what_was_chosen_is_tried(api, body, submitted):
    define_late(api)
    status, answer = await api.post("/v1/resubmissions", body)
    assert status == (200 if body.get("dry_run") else 202)
    assert {one["id"] for one in api.published} == submitted
    assert answer["dry_run"] is bool(body.get("dry_run"))


async def test_a_wrong_body_is_refused(api):
    status, problem = await api.post("/v1/resubmissions", {"filters": {}})
    assert (status, problem["issues"][0]["field"]) == (422, "filters")
