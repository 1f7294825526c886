"""What a user of POP had, on a running system: each test is a line of `coming-from-pop.md`."""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from deadlines import within

PATIENCE_S = 90
DEFINITIONS = """
[pools.farm]
max_in_flight = 100

[customers.studio]
pool = "farm"

[insights.probing]
title = "Probing"
pool = "farm"
mappers = { operation_types = ["media.probe", "media.split"] }

[insights.rendering]
pool = "farm"
mappers = { operation_types = ["media.render"] }
backoff = { first_s = 0.2, jitter = 0 }

[insights.ingest]
title = "Ingest lane"
pool = "farm"
mappers = { operation_names = ["Ingest"] }

[insights.gold]
title = "Gold lane"
pool = "farm"
mappers = { params = ["tier=gold", "tier=platinum"] }

[insights.elsewhere]
mappers = { operation_types = ["media.probe"] }
"""

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)

Answer = tuple[int, Any]


@dataclass
class Pop:
    """A running system, as its clients see it."""

    session: aiohttp.ClientSession
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        async with self.session.request(method, path, json=body, headers=headers) as response:
            answer = await response.json(content_type=None) if response.content_length else None
            return response.status, answer

    async def get(self, path: str) -> Any:
        status, answer = await self.call("GET", path)
        assert status == 200, answer
        return answer

    async def submit(self, *operations: dict[str, Any], **fields: Any) -> str:
        agenda = {"customer_id": "studio", "operations": operations, **fields}
        agenda.setdefault("id", f"pop-{next(self.numbers)}")
        status, answer = await self.call("POST", "/v1/agendas", agenda)
        assert status == 202, answer
        return answer["id"]

    async def ended(self, agenda_id: str, state: str = "succeeded", attempt: int = 1) -> Any:
        async def look() -> Any:
            status, answer = await self.call("GET", f"/v1/agendas/{agenda_id}/progress")
            is_connected = status == 200 and (answer["state"], answer["attempt"]) == (
                state,
                attempt,
            )
            return answer if is_connected else None

        return await until(look)

    async def results(self, agenda_id: str) -> dict[str, Any]:
        answer = await self.get(f"/v1/agendas/{agenda_id}/progress")
        return {one["name"]: one["result"] for one in answer["operations"]}


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    async with within(PATIENCE_S):
        while not (found := await look()):  # noqa: ASYNC110  # no event reaches a client
            await asyncio.sleep(0.1)
        return found


def operation(name: str, kind: str, payload: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": f"media.{kind}", "payload": payload, **more}


@pytest_asyncio.fixture(scope="module")
async def pop(unused_tcp_port_factory: Callable[[], int]) -> AsyncIterator[Pop]:
    port, said = unused_tcp_port_factory(), []
    tests = str(Path(__file__).parents[1] / "support")
    own = {"POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN"}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    with tempfile.TemporaryDirectory(prefix="pop-stream-", ignore_cleanup_errors=True) as path:
        file = Path(path) / "definitions.toml"
        file.write_text(DEFINITIONS)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pop_stream", "dev",
            "--folder", path, "--port", str(port), "--definitions", str(file),
            "--handlers", "from_pop_handlers:handlers",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment | {"PYTHONPATH": tests},
        )  # fmt: skip
        try:
            async with within(PATIENCE_S):
                async for line in process.stdout or ():
                    said.append(line.decode())
                    if "ready" in said[-1]:
                        break
            assert process.returncode is None, "".join(said)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                yield Pop(session)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            async with within(PATIENCE_S):
                await process.communicate()


# ---- submission and templates ----

TEMPLATE = {
    "id": "trailer",
    "title": "Cut a trailer",
    "static_params": {"store": {"bucket": "reels", "tries": 3}, "loud": True},
    "agenda": {
        "customer_id": "studio",
        "link_id": "@<pop.payload::/reel/id>",
        "params": {"external_id": "@<pop.payload::/ticket?none>"},
        "operations": [
            operation(
                "Probe",
                "probe",
                {
                    "whole": "@<pop.payload>",
                    "node": "@<pop.transformRequest::/reel>",
                    "item": "@<pop.payload::/cuts/1>",
                    "bare": "@<pop.payload::reel/id>",
                    "all": "@<pop.payload::/>",
                    "number": "@<pop.payload::/seconds>",
                    "flag": "@<pop.payload::/draft>",
                    "nothing": "@<pop.payload::/empty>",
                    "text": "@<pop.payload::/language?en>",
                    "null": "@<pop.payload::/language?>",
                    "in_text": "s3://@<store::/bucket>/@<pop.payload::/reel/id>?d=@<loud>",
                    "fixed": ["@<store::/tries>", "@<loud>"],
                },
            ),
            operation(
                "Render",
                "render",
                {
                    "out": "@<Probe.out::/given/node>",
                    "hd": "@<Probe.out::/hd>",
                    "label": "@<Probe.out::/frames> frames for @<pop.operationName>",
                    "of": "@<pop.agendaId>",
                    "else": "@<Probe.out::/codec?unknown>",
                },
            ),
        ],
    },
}
PAYLOAD = {
    "reel": {"id": "reel-9", "title": "100 % @ <home>"},
    "cuts": [3, {"from": 7}],
    "seconds": 2.5,
    "draft": False,
    "empty": None,
}


async def test_a_template_fills_in_every_kind_of_token(pop):
    assert (await pop.call("POST", "/v1/agenda-templates", TEMPLATE))[0] == 201
    status, answer = await pop.call(
        "POST", "/v1/agenda-templates/trailer/run", {"payload": PAYLOAD, "id": "run-1"}
    )
    assert (status, answer["insight_id"]) == (202, "probing")
    progress = await pop.ended("run-1")
    results = {one["name"]: one["result"] for one in progress["operations"]}
    assert results["Probe"]["given"] == {
        "whole": PAYLOAD,
        "node": PAYLOAD["reel"],
        "item": {"from": 7},
        "bare": "reel-9",
        "all": PAYLOAD,
        "number": 2.5,
        "flag": False,
        "nothing": None,
        "text": "en",
        "null": None,
        "in_text": "s3://reels/reel-9?d=true",
        "fixed": [3, True],
    }
    assert results["Render"]["given"] == {
        "out": PAYLOAD["reel"],
        "hd": True,
        "label": "24 frames for Render",
        "of": "run-1",
        "else": "unknown",
    }
    assert (progress["link_id"], progress["external_id"]) == ("reel-9", "none")
    whole = await pop.get("/v1/agendas/run-1")
    made_from = {"id": "trailer", "version": 1}
    assert (whole["title"], whole["agenda"]["template"]) == ("Cut a trailer", made_from)


async def test_a_run_is_previewed_and_what_leads_nowhere_is_named(pop):
    template = {**TEMPLATE, "id": "preview-only"}
    await pop.call("POST", "/v1/agenda-templates", template)
    path = "/v1/agenda-templates/preview-only"
    status, answer = await pop.call("POST", f"{path}/preview", {"payload": PAYLOAD})
    assert (status, answer["insight_id"]) == (200, "probing")
    assert answer["agenda"]["operations"][0]["payload"]["flag"] is False
    status, answer = await pop.call("POST", f"{path}/run", {"payload": {"reel": {}}})
    assert (status, answer["code"]) == (422, "submission_refused")
    assert "agenda.link_id" in [one["field"] for one in answer["issues"]]
    assert (await pop.call("DELETE", path))[0] == 204
    assert (await pop.call("POST", f"{path}/run", {}))[0] == 404


async def test_many_are_submitted_at_once_and_each_stands_or_falls_alone(pop):
    good = {"customer_id": "studio", "operations": [operation("a", "probe")]}
    bad = {**good, "operations": [operation("a", "probe"), operation("A", "probe")]}
    lost = {**good, "operations": [{"name": "a", "type": "no.such"}]}
    status, answer = await pop.call("POST", "/v1/agendas", [good, bad, lost, good])
    assert (status, answer["accepted"], answer["refused"]) == (202, 2, 2)
    assert [one["status"] for one in answer["results"]] == [202, 422, 422, 202]
    assert answer["results"][1]["issues"][0]["field"] == "operations[1].name"


async def test_what_is_not_to_run_is_kept_until_it_is_released_or_deleted(pop):
    kept = await pop.submit(operation("a", "probe"), hold=True)
    await pop.ended(kept, "held")
    assert (await pop.call("DELETE", f"/v1/agendas/{kept}"))[0] == 409
    other = await pop.submit(operation("a", "probe"), hold=True)
    await pop.ended(other, "held")
    assert (await pop.call("POST", f"/v1/agendas/{other}/release"))[0] == 202
    await pop.ended(other)
    assert (await pop.call("POST", f"/v1/agendas/{kept}/cancel"))[0] == 202
    await pop.ended(kept, "cancelled")
    assert (await pop.call("DELETE", f"/v1/agendas/{kept}"))[0] == 204
    for path in ("", "/progress", "/operations/a"):
        assert (await pop.call("GET", f"/v1/agendas/{kept}{path}"))[0] == 404


# ---- placement ----


@pytest.mark.parametrize(
    ("agenda", "insight"),
    [
        ({"operations": [operation("x", "Probe")]}, "probing"),
        ({"operations": [operation("INGEST", "probe")]}, "ingest"),
        ({"operations": [operation("x", "probe")], "params": {"Tier": "PLATINUM"}}, "gold"),
        ({"operations": [operation("x", "render", params={"tier": "gold"})]}, "gold"),
        ({"operations": [operation("x", "render"), operation("ingest", "probe")]}, "ingest"),
        (
            {
                "operations": [operation("ingest", "probe")],
                "params": {"tier": "gold", "defaultInsight": "INGEST LANE"},
            },
            "ingest",
        ),
        (
            {"operations": [operation("x", "probe")], "params": {"default_insight": "gold"}},
            "probing",
        ),
        ({"operations": [{"name": "ingest2", "type": "media.probes"}]}, None),
    ],
)
async def test_an_agenda_goes_where_any_mapper_says(pop, agenda, insight):
    wish = {"customer_id": "studio", **agenda}
    status, answer = await pop.call("POST", "/v1/placement/explain", wish)
    assert (status, answer["insight_id"]) == (200, insight)
    outcomes = {one["insight_id"]: one["outcome"] for one in answer["considered"]}
    assert [one for one, outcome in outcomes.items() if outcome == "chosen"] == (
        [insight] if insight else []
    )
    assert outcomes["elsewhere"] in {"other_pool", "no_match"}
    if insight is None:
        assert (await pop.call("POST", "/v1/agendas", wish))[0] == 422


# ---- running, progress, links ----


async def test_a_link_adds_up_exactly_and_an_unknown_one_is_404(pop):
    name = "link-sums"
    ends = [
        await pop.submit(operation("a", "probe"), operation("b", "probe"), link_id=name)
        for _ in range(3)
    ]
    for one in ends:
        await pop.ended(one)
    held = await pop.submit(operation("a", "probe"), link_id=name, hold=True)
    await pop.ended(held, "held")
    answer = await pop.get(f"/v1/links/{name}/summary")
    assert (answer["state"], answer["percent"], answer["total"]) == ("running", 75, 4)
    assert answer["counts"] == {"succeeded": 3, "held": 1}
    broken = await pop.submit(
        operation("a", "render", {"fails_for_good_until": 9}), link_id=name
    )
    await pop.ended(broken, "failed")
    await pop.call("POST", f"/v1/agendas/{held}/release")
    await pop.ended(held)
    answer = await pop.get(f"/v1/links/{name}/summary")
    assert (answer["state"], answer["percent"]) == ("failed", 100)
    assert answer["counts"] == {"succeeded": 4, "failed": 1}
    assert (await pop.call("GET", "/v1/links/unknown-link/summary"))[0] == 404
    listed = await pop.get(f"/v1/agendas?link_id={name}&state=failed")
    assert ([one["id"] for one in listed["agendas"]], listed["total"]) == ([broken], 1)


async def test_a_failure_is_tried_again_where_it_failed(pop):
    tried = await pop.submit(
        operation("first", "probe"),
        operation("second", "render", {"fails_until": 1, "of": "@<first.out::/frames>"}),
    )
    progress = await pop.ended(tried, attempt=2)
    results = {one["name"]: one["result"] for one in progress["operations"]}
    assert (results["first"]["attempt"], results["second"]["attempt"]) == (1, 2)
    assert results["second"]["prior"]
    [before] = (await pop.get(f"/v1/agendas/{tried}"))["history"]
    assert (before["outcome"], "disk was full" in before["message"]) == ("failed", True)


async def test_every_kind_of_rerun(pop):
    chain = await pop.submit(
        operation("one", "probe"),
        operation("two", "render", {"after": "@<one.out::/frames>", "fails_for_good_until": 1}),
        operation("three", "probe", depends_on=["two"]),
        operation("aside", "probe"),
    )
    await pop.ended(chain, "failed")

    async def again(attempt, body):
        path = f"/v1/agendas/{chain}/rerun"
        status, answer = await pop.call("POST", path, body)
        assert status == 202, answer
        if body.get("hold"):
            await pop.ended(chain, "held", attempt)
            status, answer = await pop.call("POST", f"/v1/agendas/{chain}/release")
            assert status == 202
        await pop.ended(chain, attempt=attempt)
        return {name: one["attempt"] for name, one in (await pop.results(chain)).items()}

    assert await again(2, {}) == {"one": 1, "two": 2, "three": 2, "aside": 1}
    chosen = await again(3, {"operations": ["two"]})
    assert chosen == {"one": 1, "two": 3, "three": 3, "aside": 1}
    assert set((await again(4, {"operations": "all"})).values()) == {4}
    reset = await again(5, {"operations": ["aside"], "hold": True})
    assert reset == {"one": 4, "two": 4, "three": 4, "aside": 5}
    unknown = {"operations": ["four"]}
    status, answer = await pop.call("POST", f"/v1/agendas/{chain}/rerun", unknown)
    assert (status, answer["issues"][0]["value"]) == (422, "four")


async def test_operations_that_one_adds_are_remembered_and_go_with_its_reset(pop):
    grown = await pop.submit(operation("cut", "split", {"scenes": ["a", "b"]}))
    progress = await pop.ended(grown)
    parts = {one["name"]: one["appended_by"] for one in progress["operations"]}
    assert parts == {"cut": None, "cut-a": "cut", "cut-b": "cut"}
    assert (await pop.results(grown))["cut-b"]["given"] == "b"
    before = {one["name"]: one["ended_at"] for one in progress["operations"]}
    await pop.call("POST", f"/v1/agendas/{grown}/rerun", {"operations": ["cut-b"]})
    progress = await pop.ended(grown, attempt=2)
    after = {one["name"]: one["ended_at"] for one in progress["operations"]}
    assert [name for name in before if after[name] != before[name]] == ["cut-b"]
    await pop.call("POST", f"/v1/agendas/{grown}/rerun", {"operations": "all", "hold": True})
    progress = await pop.ended(grown, "held", 3)
    assert [one["name"] for one in progress["operations"]] == ["cut"]
    await pop.call("POST", f"/v1/agendas/{grown}/release")
    progress = await pop.ended(grown, attempt=3)
    assert len(progress["operations"]) == 3


async def test_a_worker_pulls_reports_and_completes_over_http(pop):
    by_hand = {"id": "by-hand", "pool": "farm", "mappers": {"operation_types": ["by.hand"]}}
    assert (await pop.call("POST", "/v1/insights", by_hand))[0] == 201
    kinds = [{"name": name, "type": "by.hand"} for name in ("one", "two")]
    wish = {"customer_id": "studio", "id": "hand-1", "link_id": "hand", "operations": kinds}

    async def accepted():
        return (await pop.call("POST", "/v1/agendas", wish))[0] == 202

    await until(accepted)
    pull = {"puller_id": "w1", "count": 5, "wait_s": 30}

    async def pulled():
        _, answer = await pop.call("POST", "/v1/insights/by-hand/pull", pull)
        return answer["agendas"]

    [one] = await until(pulled)
    assert (one["agenda_id"], one["attempt"], one["progress"]) == ("hand-1", 1, None)
    path = "/v1/agendas/hand-1/attempts/1"
    half = [{"name": "one", "state": "succeeded", "result": 1},
            {"name": "two", "state": "running", "percent": 50}]  # fmt: skip
    who = {"puller_id": "w1", "lease_token": one["lease_token"]}
    wish = {**who, "operations": half}
    assert (await pop.call("POST", f"{path}/progress", wish))[0] == 200

    async def percent():
        status, answer = await pop.call("GET", "/v1/links/hand/summary")
        return status == 200 and answer["percent"] == 75

    await until(percent)
    assert (await pop.call("POST", f"{path}/heartbeat", who))[0] == 200
    failed = {**who, "outcome": "failed", "message": "out of paper"}
    assert (await pop.call("POST", f"{path}/complete", failed))[0] == 200
    [again] = await until(pulled)
    assert again["attempt"] == 2
    known = {one["name"]: one for one in again["progress"]["operations"]}
    assert (known["one"]["state"], known["one"]["result"]) == ("succeeded", 1)
    assert known["two"]["prior"]["percent"] == 50
    assert (await pop.call("POST", f"{path}/heartbeat", who))[0] == 409
    done = {"puller_id": "w1", "lease_token": again["lease_token"], "outcome": "succeeded",
            "operations": [{"name": "two", "state": "succeeded"}]}  # fmt: skip
    status, _ = await pop.call("POST", "/v1/agendas/hand-1/attempts/2/complete", done)
    assert status == 200
    await pop.ended("hand-1", attempt=2)


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from-pop.md"


async def test_what_pop_had_is_imported_as_printed_and_once(pop, tmp_path):
    text = PAGE.read_text()
    section = text[text.index("## Import what POP has") : text.index("## Objects")]
    [objects] = re.findall(r"^```jsonl\n(.*?)^```$", section, re.M | re.S)
    (tmp_path / "from-pop.json").write_text(objects)
    [trial, applied] = re.findall(r"^```sh\n(.*?)\n```$", section, re.M)
    [shown] = re.findall(r"^```\n(from-pop.*?)^```$", section, re.M | re.S)

    code, printed = await command(pop, tmp_path, trial)
    assert (code, shown in printed) == (0, True), printed
    assert (await pop.call("GET", "/v1/insights/printing"))[0] == 404
    code, printed = await command(pop, tmp_path, applied)
    assert (code, printed.splitlines()[-1]) == (0, "4 created, 2 submitted"), printed

    [issue] = (await pop.get("/v1/agendas?link_id=no-1"))["agendas"]
    assert (issue["insight_id"], issue["customer_id"]) == ("printing", "gazette")
    extra = await pop.ended("extra", "held")
    assert [one["name"] for one in extra["operations"]] == ["Print"]
    [found] = (await pop.get("/v1/agendas?correlation_id=c-17"))["agendas"]
    assert found["id"] == "extra"
    insight = await pop.get("/v1/insights/printing")
    assert (insight["owner"], insight["target"], insight["version"]) == ("ops", 20, 1)

    code, printed = await command(pop, tmp_path, applied)
    assert (code, printed.splitlines()[-1]) == (0, "6 unchanged"), printed
    assert (await pop.get("/v1/insights/printing"))["version"] == 1
    assert len((await pop.get("/v1/agendas?link_id=no-1"))["agendas"]) == 1


async def command(pop: Pop, folder: Path, line: str) -> tuple[int, str]:
    """Run a command of the page against the system; its exit code and what it printed."""
    program, *words = line.split()
    assert program == "pop-stream"
    url = str(pop.session._base_url)
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pop_stream", *words,
        cwd=folder, env=os.environ | {"POP_API_URL": url},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with within(PATIENCE_S):
        printed, _ = await started.communicate()
    return started.returncode or 0, printed.decode()


async def test_this_page_is_done_as_printed(pop):
    printed = re.findall(r"^```http\n(\w+) (\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(printed) == 11
    answer = {}
    for number, (method, path, text) in enumerate(printed):
        body = json.loads(text) if text else None
        if body and "lease_token" in body:
            body["lease_token"] = answer[5]["agendas"][0]["lease_token"]

        async def done(method=method, path=path, body=body):
            status, answer = await pop.call(method, path, body)
            is_empty = path.endswith("/pull") and not answer.get("agendas")
            return answer if status in {200, 201, 202} and not is_empty else None

        answer[number] = await until(done)
        if number == 6:
            await until(lambda: half_way(pop))
    assert answer[4]["insight_id"] == "execute"
    [pulled] = answer[5]["agendas"]
    assert [one["name"] for one in pulled["agenda"]["operations"]] == ["Inspect", "Transcode"]
    assert pulled["agenda"]["operations"][1]["payload"]["to"] == "s3://out/reel-7.mp4"
    assert answer[7]["appended"] == ["Thumbnails"]
    progress = await pop.ended("prepare-1")
    assert [one["appended_by"] for one in progress["operations"]] == [None, None, "Inspect"]
    [listed] = (await pop.get("/v1/agendas?link_id=reel-7"))["agendas"]
    assert (listed["state"], listed["percent"], listed["external_id"]) == (
        "succeeded",
        100,
        "T-9",
    )
    found = await pop.get("/v1/agendas?external_id=T-9")
    assert [one["id"] for one in found["agendas"]] == ["prepare-1"]
    summed = await pop.get("/v1/links/reel-7/summary")
    assert (summed["state"], summed["percent"], summed["total"]) == ("succeeded", 100, 1)


async def half_way(pop):
    """The link and its agenda agree: one of two operations, and 40 % of the other."""
    summed = await pop.get("/v1/links/reel-7/summary")
    [listed] = (await pop.get("/v1/agendas?link_id=reel-7"))["agendas"]
    return summed["percent"] == listed["percent"] == 70


async def test_what_pop_wrote_is_answered_with_what_to_write_here(pop):
    [as_in_pop] = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    template = json.loads(as_in_pop)
    status, answer = await pop.call("POST", "/v1/agenda-templates", template)
    assert (status, [one["field"] for one in answer["issues"]]) == (
        422,
        ["customerId", "staticParameters"],
    )
    agenda = {"customer_id": "studio", "operations": template["agenda"]["operations"][:1],
              "params": template["agenda"]["params"]}  # fmt: skip
    status, answer = await pop.call("POST", "/v1/agendas", agenda)
    assert (status, answer["issues"][0]["field"]) == (422, "params.maximumAttempts")


# ---- who, what, where from ----

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_trace_and_correlation_id_reach_the_handler_and_every_later_attempt(pop):
    headers = {"traceparent": TRACE, "tracestate": "shop=1", "X-Correlation-Id": "ticket-77"}
    agenda = {"id": "traced", "customer_id": "studio", "operations": [operation("a", "probe")]}
    assert (await pop.call("POST", "/v1/agendas", agenda, **headers))[0] == 202
    await pop.ended("traced")
    answer = {"traceparent": TRACE, "tracestate": "shop=1", "x-correlation-id": "ticket-77"}
    assert (await pop.results("traced"))["a"].items() >= answer.items()
    again = {"operations": "all"}
    assert (await pop.call("POST", "/v1/agendas/traced/rerun", again))[0] == 202
    await pop.ended("traced", attempt=2)
    assert (await pop.results("traced"))["a"].items() >= answer.items()
    whole = await pop.get("/v1/agendas/traced")
    assert whole["agenda"]["trace"]["correlation_id"] == "ticket-77"
    found = await pop.get("/v1/agendas?correlation_id=ticket-77")
    assert [one["id"] for one in found["agendas"]] == ["traced"]


async def test_who_changed_what_is_on_record(pop):
    who = {"X-Correlation-Id": "change-1"}
    insight = {"id": "audited", "title": "one"}
    assert (await pop.call("POST", "/v1/insights", insight, **who))[0] == 201
    patch = {"title": "two"}
    assert (await pop.call("PATCH", "/v1/insights/audited", patch, **who))[0] == 200
    assert (await pop.call("DELETE", "/v1/insights/audited", **who))[0] == 204
    answer = await pop.get("/v1/audit?kind=insight&object_id=audited")
    assert [one["action"] for one in answer["entries"]] == ["deleted", "changed", "created"]
    assert {one["request_id"] for one in answer["entries"]} == {"change-1"}
    changed = answer["entries"][1]
    assert (changed["before"]["title"], changed["after"]["title"]) == ("one", "two")
    assert changed["principal"]
