"""The pages of the client: what they name exists, and their examples run as printed."""

import inspect
import json
import re
from pathlib import Path

import pytest
from api_fakes import agenda, open_api, summary

from pop_stream import client as package
from pop_stream.client import ApiError, Client
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.policy.lifecycle.states import State

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference/client.md").read_text()
GUIDE = (DOCS / "how-to/call-the-api.md").read_text()


def example(name):
    """The function that an example defines, as printed."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    (block,) = [one for one in blocks if f"async def {name}(" in one]
    space = {"__name__": "example"}
    exec(compile(block, "call-the-api.md", "exec"), space)  # noqa: S102  # our own page
    return space[name]


@pytest.fixture
async def api():
    async with open_api() as opened:
        yield opened


@pytest.fixture
async def client(api):
    async with Client(str(api.client.make_url("/"))) as opened:
        yield opened


async def test_the_page_has_every_operation_with_calls_that_exist(client):
    table = dict(
        re.findall(r"^\| `(\w+)` \| (`[a-z_.]+`(?:, `[a-z_.]+`)*) \|$", PAGE, re.MULTILINE)
    )
    document = await client.document()
    operations = {
        operation["operationId"]
        for item in document["paths"].values()
        for operation in item.values()
    }
    assert table.keys() == operations
    for calls in table.values():
        for dotted in re.findall(r"[a-z_.]+", calls):
            found = client
            for name in dotted.split("."):
                found = getattr(found, name)
            assert callable(found)


def test_the_page_has_every_error():
    errors = {
        name
        for name, one in vars(package).items()
        if inspect.isclass(one) and issubclass(one, ApiError)
    }
    assert set(re.findall(r"^\| `(\w+Error)` \|", PAGE, re.MULTILINE)) == errors


async def test_an_agenda_is_submitted_and_followed(api, capsys):
    general = Insight(id="general", mappers=Mappers(operation_types=("noop",)))
    api.definitions.current = Definitions(insights={"general": general})
    known = agenda(id="report-7", operations=[{"name": "fetch", "type": "noop"}])
    body = json.dumps(known).encode()
    api.summaries.put(summary("report-7", state=State.SUCCEEDED, body=body))
    await example("main")(str(api.client.make_url("/")))
    assert "succeeded" in capsys.readouterr().out


async def test_errors_are_distinguished(client):
    submit = example("submit")
    assert await submit(client, agenda(id="a1")) == "a1"
    assert "operations" in await submit(client, agenda(operations=[]))


async def test_lists_are_read(api, client):
    api.summaries.put(summary("f1", state=State.FAILED))
    assert await example("failed")(client, "acme") == ["f1"]


async def test_no_change_is_lost(client):
    before = await client.customers.get("acme")
    assert await example("double_weight")(client, "acme") == 2 * before.definition.weight


async def test_a_worker_works(api, client):
    at = summary().accepted_at
    api.deliveries.by_insight["files"] = [
        EmittedAgenda(
            agenda_id="a1",
            insight_id="files",
            customer_id="acme",
            attempt=1,
            accepted_at=at,
            emitted_at=at,
            lease_ms=60_000,
            agenda=summary("a1").body,
        )
    ]
    api.summaries.put(summary("a1"))
    assert await example("work_once")(client, "files") == 1
    assert await example("work_once")(client, "files") == 0


async def test_a_request_carries_what_it_came_with(api, client):
    api.summaries.put(summary("a1", state=State.READY))
    await example("on_behalf_of")(client, {"X-Correlation-Id": "order-7"}, "a1")
