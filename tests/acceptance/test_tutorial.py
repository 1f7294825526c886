"""The tutorial's second part, as its reader follows it."""

import asyncio
import json
import tomllib
from datetime import datetime

import pytest
from aiohttp import ClientSession
from deadlines import within
from one_process import OneProcess
from parts_in_process import all_but_pullers
from printed_page import PrintedPage
from puller_world import serving

from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.definitions_file import parse_definitions_file
from pop_stream.operations import provisioning
from pop_stream.puller import Puller
from pop_stream.puller.handlers.builtin import builtin

PATIENCE_S = 120


class Reader:
    """Runs what the page has its reader run, in order."""

    def __init__(self, page, settings, url):
        self.page = page
        self._environment = page.environment(settings, url)

    async def run(self, has):
        """The commands of one block; what each printed."""
        printed = []
        for command in self.page.commands(has):
            process = await asyncio.create_subprocess_shell(
                command,
                cwd=self.page.folder,
                env=self._environment | {"COLUMNS": "200"},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with within(PATIENCE_S):
                out, err = await process.communicate()
            assert process.returncode == 0, (command, err.decode())
            printed.append(out.decode())
        return printed


async def follow(reader, system):
    await reader.run("template create")
    *_, anna, bob = await reader.run("schedules create anna.json")
    assert anna.count("T02:30:00") == bob.count("T02:30:00") == 2
    assert "T02:30:00+" in anna
    assert "T02:30:00-" in bob
    await reader.run("schedules backfill")
    await system.until(OCCURRENCES, lambda one: states(one) == ["held", "held"])
    [_, waiting] = await reader.run("signals give sales.2026-07-14")
    assert waiting.count("held") == 2
    await reader.run("signals give sales.2026-07-13")
    done = await system.until(AGENDAS, lambda one: ended(one) == 8)
    shown, _, found = await reader.run("--where payload=")
    assert shown.count("succeeded") == 2
    assert found.count("Nightly report") == 2
    await reader.run("schedules pause")
    return done["agendas"]


OCCURRENCES = "/v1/schedules/anna-nightly/occurrences"
AGENDAS = "/v1/agendas?customer_id=anna"


def states(page):
    return [one["state"] for one in page["items"]]


def ended(page):
    return sum(one["state"] == "succeeded" for one in page["agendas"])


def at(agenda, name):
    return datetime.fromisoformat(agenda[name])


@pytest.mark.timeout(600)
async def test_the_second_part_does_what_it_says(settings, tmp_path):
    page = PrintedPage("tutorial/nightly-reports.md", tmp_path)
    page.write("nightly.py", "report.store")
    page.write("nightly.toml", "insights.nightly", "toml")
    page.write("report.json", '"id": "report"', "json")
    page.write("anna.json", '"anna-nightly"', "json")
    page.write("bob.json", '"bob-nightly"', "json")
    assert json.loads((tmp_path / "bob.json").read_text())["timezone"] == "America/New_York"
    written = {}
    exec((tmp_path / "nightly.py").read_text(), written)  # noqa: S102  # our own page
    known = settings.model_copy(update={"scheduler_data": tmp_path / "scheduler"})
    await provisioning.migrate(known)
    async with connections.publisher(known, client_id="test") as publisher:
        document = tomllib.loads((tmp_path / "nightly.toml").read_text())
        await publish_definitions(
            publisher,
            Topics(known.topic_prefix),
            parse_definitions_file(document),
            Definitions(),
        )
    async with (
        all_but_pullers(known, within_s=PATIENCE_S) as url,
        ClientSession() as session,
    ):
        at_url = known.model_copy(update={"api_url": url})
        handlers = [builtin(at_url), written["handlers"]]
        puller = Puller("nightly", handlers=handlers, settings=at_url, concurrency=2)
        async with serving(puller):
            reader = Reader(page, known, url)
            agendas = await follow(reader, OneProcess(known, url, session))
    first, second = (
        [one for one in agendas if one["link_id"].startswith(f"anna-nightly.202607{day}")]
        for day in (14, 15)
    )
    assert len(first) == len(second) == 4
    assert min(at(one, "started_at") for one in second) >= max(
        at(one, "ended_at") for one in first
    ), "never two nights at once"
