"""The groups `customer`, `pool`, `insight` and `template`, against the API itself."""

import asyncio
import json

import pytest
import pytest_asyncio
from api_fakes import open_api
from typer.testing import CliRunner

from pop_stream.__main__ import app

TEMPLATE = {
    "id": "scan",
    "params": {"depth": {"type": "integer", "default": 1}},
    "agenda": {
        "customer_id": "acme",
        "params": {"depth": "@<depth>"},
        "operations": [{"name": "a", "type": "http", "payload": "@<pop.payload::/url>"}],
    },
}


@pytest_asyncio.fixture
async def run(monkeypatch, tmp_path):
    """Runs a command in a thread of its own, while this one serves the API."""
    async with open_api() as api:
        monkeypatch.setenv("POP_API_URL", str(api.client.make_url("")).rstrip("/"))
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.chdir(tmp_path)

        async def command(*words: str, stdin: str | None = None):
            return await asyncio.to_thread(CliRunner().invoke, app, words, input=stdin)

        command.api = api
        yield command


def answer(result):
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout.splitlines()[-1])


async def test_a_definition_is_created_shown_changed_and_deleted(run, tmp_path):
    (tmp_path / "new.json").write_text('{"id": "new", "weight": 2}')
    assert answer(await run("customer", "create", "new.json"))["version"] == 1
    patched = answer(await run("customer", "patch", "new", "weight=5", "title=Five", "burst=3"))
    assert (patched["weight"], patched["title"], patched["burst"]) == (5, "Five", 3)
    assert answer(await run("customer", "patch", "new", "burst=null"))["burst"] == 1
    assert answer(await run("customer", "show", "new", "--version", "1"))["weight"] == 2
    (tmp_path / "new.toml").write_text("weight = 7\n")
    assert answer(await run("customer", "replace", "new", "new.toml"))["title"] == ""
    assert (await run("customer", "delete", "new")).exit_code == 0
    assert (await run("customer", "show", "new")).exit_code == 1


async def test_a_change_of_another_version_is_refused(run):
    result = await run("customer", "patch", "acme", "weight=5", "--if-version", "9")
    assert result.exit_code == 1
    assert "version 1" in str(result.exception)


async def test_dots_reach_inside(run):
    found = answer(await run("insight", "patch", "files", 'mappers.params=["a=b"]'))
    assert found["mappers"]["params"] == ["a=b"]
    assert found["mappers"]["operation_types"] == ["http", "sql"]


async def test_lists_are_read_to_the_end_and_filtered(run, monkeypatch):
    monkeypatch.setattr("pop_stream.client.definitions._PAGE", 2)
    for number in range(5):
        content = json.dumps({"id": f"c{number}", "weight": number % 2 + 3})
        answer(await run("customer", "create", "-", stdin=content))
    found = answer(await run("customer", "list", "--sort", "-weight,id", "--json"))
    assert [one["id"] for one in found["items"]] == ["c1", "c3", "c0", "c2", "c4", "acme"]
    some = answer(await run("customer", "list", "--where", "weight=4", "--json"))
    assert [one["id"] for one in some["items"]] == ["c1", "c3"]
    shown = (await run("customer", "list")).stdout
    assert all(word in shown for word in ("weight", "acme", "c4"))


async def test_a_template_is_previewed_and_run(run):
    answer(await run("template", "create", "-", stdin=json.dumps(TEMPLATE)))
    url = '{"url": "http://x"}'
    preview = answer(
        await run(
            "template", "preview", "scan", "--payload", "-", "--param", "depth=3", stdin=url
        )
    )
    assert preview["agenda"]["params"] == {"depth": 3}
    accepted = answer(
        await run("template", "run", "scan", "--payload", "-", "--set", "id=a1", stdin=url)
    )
    assert accepted["id"] == "a1"
    [published] = run.api.published
    assert published["operations"][0]["payload"] == "http://x"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("customer", "patch", "acme", "weight"), "must be of the form NAME=VALUE"),
        (("customer", "create", "none.json"), "cannot read none.json"),
        (("customer", "create", "-"), "is no JSON"),
        (("pool", "list", "--where", "colour=red"), "no field of a pool"),
        (("insight", "delete", "none"), "no insight with id"),
    ],
)
async def test_what_cannot_be_is_said(run, words, reason):
    result = await run(*words, stdin="{")
    assert result.exit_code == 1
    assert reason in str(result.exception)
