"""Occurrences of schedules over HTTP and by command: what is shown, and to whom."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from api_fakes import open_api, summary
from typer.testing import CliRunner

from pop_stream.__main__ import app
from pop_stream.clock import WallClock
from pop_stream.model.events.occasions import OccurrenceFired, OccurrenceSkipped
from pop_stream.model.schedule import Schedule
from pop_stream.policy.lifecycle.states import State

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = {
    "id": "tick",
    "timezone": "Europe/Berlin",
    "trigger": {"cron": "0 * * * *"},
    "submission": {"customer_id": "acme", "operations": [{"name": "a", "type": "http"}]},
}


def about(hour, extra=""):
    nominal = NOON + hour * HOUR
    agenda_id = f"tick.{nominal:%Y%m%dT%H%M%SZ}{extra}"
    return {"schedule_id": "tick", "agenda_id": agenda_id, "nominal": nominal, "at": nominal}


async def filled(api):
    status, answer, _ = await api.call("POST", "/v1/schedules", TICK)
    assert status == 201, answer
    one = summary(about(1)["agenda_id"], state=State.FAILED, attempt=3, message="no file")
    api.summaries.put(one)
    await api.occurrences.add(
        [
            OccurrenceFired(**about(1)),
            OccurrenceSkipped(**about(2), reason="overlap"),
            OccurrenceFired(**about(2, "~b7")),
            OccurrenceFired(**about(2, "~t8")),
        ]
    )


async def test_occurrences_are_listed_with_their_runs_and_reasons():
    async with open_api() as api:
        await filled(api)
        status, page = await api.get("/v1/schedules/tick/occurrences")
    assert status == 200
    second, first = page["items"]
    assert (second["state"], second["reason"]) == ("submitted", "overlap")
    assert [one["kind"] for one in second["runs"]] == ["triggered", "backfilled"]
    assert first["local"] == "2026-01-01T14:00:00+01:00"
    [run] = first["runs"]
    assert (first["state"], run["state"], run["attempt"], run["message"]) == (
        "failed", "failed", 3, "no file"
    )  # fmt: skip
    assert run["kind"] == "scheduled"


async def test_occurrences_are_chosen_by_state_and_instant_in_pages():
    async with open_api() as api:
        await filled(api)
        path = "/v1/schedules/tick/occurrences"
        _, failed = await api.get(f"{path}?state=failed&state=expired")
        assert [one["nominal"] for one in failed["items"]] == ["2026-01-01T13:00:00Z"]
        _, page = await api.get(f"{path}?limit=1")
        assert (len(page["items"]), page["next"]) == (1, "2026-01-01T14:00:00Z")
        _, rest = await api.get(f"{path}?nominal_before={page['next']}")
        assert [one["state"] for one in rest["items"]] == ["failed"]


@pytest.mark.parametrize("query", ["state=odd", "limit=0", "nominal_from=today", "shop=1"])
async def test_what_cannot_be_asked_is_422(query):
    async with open_api() as api:
        await filled(api)
        status, problem = await api.get(f"/v1/schedules/tick/occurrences?{query}")
    field = problem["issues"][0]["field"].partition("[")[0]
    assert (status, field) == (422, query.partition("=")[0])


async def test_the_command_shows_them(monkeypatch):
    async with open_api() as api:
        await filled(api)
        monkeypatch.setenv("POP_API_URL", str(api.client.make_url("")).rstrip("/"))
        monkeypatch.setenv("COLUMNS", "200")

        async def run(*words):
            command = ("schedules", "occurrences", "tick", *words)
            return await asyncio.to_thread(CliRunner().invoke, app, command)

        shown = (await run()).stdout
        assert "2026-01-01T14:00:00+01:00" in shown
        assert "overlap" in shown
        found = json.loads((await run("--state", "failed", "--json")).stdout.splitlines()[-1])
        assert [one["state"] for one in found["items"]] == ["failed"]
        assert "more: --before 2026-01-01T14:00:00+00:00" in (await run("--limit", "1")).stdout
        assert (await run("--state", "odd")).exit_code


async def test_a_schedule_is_expired_by_its_end(monkeypatch):
    async with open_api() as api:
        await filled(api)
        monkeypatch.setenv("POP_API_URL", str(api.client.make_url("")).rstrip("/"))
        run = CliRunner().invoke
        done = await asyncio.to_thread(run, app, ["schedules", "expire", "tick"])
        assert done.exit_code == 0, done.output
        _, shown = await api.get("/v1/schedules/tick")
        _, page = await api.get("/v1/schedules/tick/occurrences")
    end = datetime.fromisoformat(shown["end"])
    assert abs(WallClock().now() - end) < timedelta(hours=1)
    ended = Schedule.model_validate({**TICK, "end": end})
    assert [*ended.instants(end - 2 * HOUR)][-1] < end
    assert len(page["items"]) == 2
