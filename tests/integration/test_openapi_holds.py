"""The API is as its OpenAPI document says, by every check that schemathesis has."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from msgspec import Raw
from real_api import real_api

from pop_stream.client import Client
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaClaimed, AgendaSucceeded

pytestmark = pytest.mark.timeout(290)

ROOT = Path(__file__).parents[2]
DEFINITIONS = """
[customers.acme]
[insights.files]
mappers = { operation_types = ["http"] }
"""
AGENDA = {"customer_id": "acme", "operations": [{"name": "fetch", "type": "http"}]}


@pytest.fixture
async def api(settings, tmp_path):
    file = tmp_path / "definitions.toml"
    file.write_text(DEFINITIONS)
    settings = settings.model_copy(update={"definitions_file": file})
    async with real_api(settings) as api:
        yield api


async def fill(api):
    """Something to find of every kind: an agenda that runs, one that has ended, a template."""
    async with Client(api.url, token=api.token) as client:
        at = await _now(client)
        await client.templates.create({"id": "scan", "agenda": AGENDA})
        await client.pools.create({"id": "shared", "max_in_flight": 3})
        await client.keys.create(["read"], customer_id="acme")
    for agenda_id in ("runs", "ended"):
        facts = {"agenda_id": agenda_id, "at": at, "insight_id": "files"}
        body = Raw(json.dumps({"id": agenda_id, **AGENDA}).encode())
        attempt = {**facts, "attempt": 1}
        await api.fold(
            AgendaAccepted(
                **facts, customer_id="acme", link_id="l1", operations=("fetch",), agenda=body
            ),
            AgendaClaimed(**attempt, puller_id="w1", lease_ms=60_000),
            *([AgendaSucceeded(**attempt)] if agenda_id == "ended" else []),
        )


async def _now(client):
    return (await client.customers.get("acme")).created_at


async def test_every_operation_is_as_documented(api, tmp_path):
    await fill(api)
    command = Path(sys.executable).with_name("st")
    document = tmp_path / "openapi.json"
    async with Client(api.url, token=api.token) as client:
        document.write_text(json.dumps(await client.document()))
    # From a file, for of a document that is served schemathesis leaves out its own operation.
    process = await asyncio.create_subprocess_exec(
        command,
        "--no-color",
        "run",
        document,
        f"--url={api.url}",
        f"--header=Authorization: Bearer {api.token}",
        "--checks=all",
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, said.decode()
    summary = re.search(r"Selected: (\d+)/\1\n +Tested: \1\n", said.decode())
    assert summary, said.decode()
    assert int(summary[1]) == sum(map(len, json.loads(document.read_text())["paths"].values()))
