"""The API is as its OpenAPI document says, by every check that schemathesis has."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from real_api import DEFINITIONS, fill, real_api

from pop_stream.client import Client

pytestmark = pytest.mark.timeout(580)

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def api(settings, tmp_path):
    file = tmp_path / "definitions.toml"
    file.write_text(DEFINITIONS)
    settings = settings.model_copy(update={"definitions_file": file})
    async with real_api(settings) as api:
        yield api


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
