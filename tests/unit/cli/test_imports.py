"""`pop-stream import pop`, against the API itself."""

import asyncio
import json

import pytest
import pytest_asyncio
from api_fakes import open_api, summary
from typer.testing import CliRunner

from pop_stream.__main__ import app

OBJECTS = [
    {"id": "nora", "customerId": "nora", "title": "Nora", "resourcePoolId": "kiln"},
    {"id": "kiln", "title": "Kiln", "insightIds": []},
    {
        "id": "firing",
        "title": "Firing",
        "isGlobal": True,
        "resourcePoolId": "kiln",
        "mappers": {"operationType": ["fire"]},
    },
]
AGENDA = {"id": "a-1", "customerId": "acme", "operations": [{"name": "Get", "type": "http"}]}


@pytest_asyncio.fixture
async def run(monkeypatch, tmp_path):
    """Runs a command in a thread of its own, while this one serves the API."""
    async with open_api() as api:
        monkeypatch.setenv("POP_API_URL", str(api.client.make_url("")).rstrip("/"))
        monkeypatch.chdir(tmp_path)

        async def command(*words, objects=OBJECTS):
            text = objects if isinstance(objects, str) else json.dumps(objects)
            (tmp_path / "pop.json").write_text(text)
            line = ("import", "pop", "pop.json", *words)
            return await asyncio.to_thread(CliRunner().invoke, app, line)

        command.api = api
        yield command


def outcomes(result):
    report = json.loads(result.stdout.splitlines()[-1])
    return {one["id"]: one["outcome"] for one in report["objects"]}


async def test_a_trial_needs_no_server_and_names_every_field(run, monkeypatch):
    monkeypatch.setenv("POP_API_URL", "http://127.0.0.1:1")
    result = await run("--dry-run")
    assert result.exit_code == 0, result.output
    assert "object 1, Customer nora -> customer nora: convertible" in result.stdout
    assert "    resourcePoolId -> pool kiln" in result.stdout
    assert result.stdout.splitlines()[-1] == "3 convertible"


async def test_definitions_are_made_and_a_second_run_changes_nothing(run):
    result = await run("--json")
    assert result.exit_code == 0, result.output
    assert set(outcomes(result).values()) == {"created"}
    assert set(outcomes(await run("--json")).values()) == {"unchanged"}


async def test_an_agenda_is_submitted_unless_it_is_known(run):
    for _ in range(2):
        result = await run("--json", objects=[AGENDA, AGENDA | {"id": "a-2", "cid": "c"}])
        assert result.exit_code == 0, result.output
        assert set(outcomes(result).values()) == {"submitted"}
    run.api.summaries.put(summary("a-1"))
    assert outcomes(await run("--json", objects=AGENDA)) == {"a-1": "unchanged"}


async def test_an_agenda_that_no_insight_takes_fails_with_the_reason(run):
    odd = AGENDA | {"id": "a-3", "operations": [{"name": "Get", "type": "odd"}]}
    result = await run(objects=[AGENDA, odd])
    assert result.exit_code == 1
    assert "a-3: failed: operations = odd: no insight takes" in result.stdout
    assert "agenda a-1: submitted" in result.stdout


async def test_what_others_changed_stays_and_what_pop_changed_is_taken_over(run):
    await run()
    client = CliRunner()
    words = ("insight", "patch", "firing", "precedence=7")
    await asyncio.to_thread(client.invoke, app, words)
    changed = [one | ({"queueSize": 9} if one["id"] == "firing" else {}) for one in OBJECTS]
    assert outcomes(await run("--json", objects=changed))["firing"] == "changed"
    shown = await asyncio.to_thread(client.invoke, app, ("insight", "show", "firing"))
    kept = json.loads(shown.stdout)
    assert (kept["precedence"], kept["target"]) == (7, 9)
    assert outcomes(await run("--json", objects=changed))["firing"] == "unchanged"


async def test_nothing_is_sent_if_one_object_is_refused(run):
    bad = [*OBJECTS, AGENDA, AGENDA | {"id": "a-2", "operations": []}]
    result = await run("--json", objects=bad)
    assert result.exit_code == 1
    assert outcomes(result)["nora"] == "not_sent"
    report = json.loads(result.stdout.splitlines()[-1])
    [refused] = [one for one in report["objects"] if one["outcome"] == "refused"]
    [fate] = [one for one in refused["fields"] if one["became"] == "refused"]
    assert (refused["file"], refused["object"], fate["field"]) == ("pop.json", 5, "operations")
    assert fate["value"] == "[]"
    assert fate["why"]


async def test_a_definition_that_the_api_refuses_fails_and_no_agenda_is_submitted(run):
    orphan = [*(one for one in OBJECTS if one["id"] != "kiln"), AGENDA]
    result = await run("--json", objects=orphan)
    assert result.exit_code == 1
    found = outcomes(result)
    assert (found["firing"], found["a-1"]) == ("failed", "failed")


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "is no JSON"), ("[3]", "no JSON object"), ('{"id": "x"}', "--as KIND")],
)
async def test_what_cannot_be_read_exits_with_one_and_says_why(run, text, says):
    result = await run(objects=text)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert says in result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [(("--as", "teapot"), "resourcepool"), (("--rename", "x"), "OLD=NEW")],
)
async def test_a_wrong_option_is_named(run, words, says):
    result = await run(*words)
    assert result.exit_code == 1
    assert says in str(result.exception)
