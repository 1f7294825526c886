"""Rules and dashboards, by Prometheus itself: on made-up series, and on a system under load."""

import asyncio
import json
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from console_stack import agenda, failing
from deadlines import within
from prometheus_server import executable, prometheus

from pop_stream.client import Client
from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import Stack

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
PARTS = ("rollup", "scheduler", "ingest", "api", "puller-1", "puller-2")
"""In the order in which a local stack gives them ports."""

DEFINITIONS = """
[customers.paused]
paused = true

[insights.work]
mappers = { operation_types = ["show.work", "show.fail"] }
max_attempts = 2
backoff = { first_s = 0.1 }
"""


def promtool(*arguments):
    done = subprocess.run(  # noqa: S603
        [executable("promtool"), *arguments],
        cwd=RULES.parent, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_fire_when_they_should_and_only_then():
    promtool("check", "rules", RULES.name)
    promtool("test", "rules", "rules_test.yaml")


def test_the_example_of_a_configuration_is_one():
    promtool("check", "config", "--syntax-only", "prometheus.yml")


def queries():
    """By dashboard and panel, the queries with their variables filled in."""
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", ()):
                query = re.sub(r"\$(insight|customer)\b", ".*", target["expr"])
                yield f"{file.stem}: {panel['title']}", query.replace("$__rate_interval", "20s")


async def load(url, stop):
    """Work of several customers, some of which fails, is refused or waits for ever."""
    async with Client(url) as client:
        for number in range(100_000):
            if stop.is_set():
                return
            batch = [
                agenda(f"{number}-{one}", f"customer-{one % 3}", 0.05) for one in range(20)
            ]
            batch += [agenda(f"p-{number}", "paused"), failing(f"f-{number}", "customer-0")]
            batch += [{"customer_id": "customer-0", "operations": []}]
            await client.submit_many(batch)
            await asyncio.sleep(0.3)


async def unanswered(server, wanted):
    return [(title, query) for title, query in wanted if not await server.values(query)]


@pytest.fixture
def folder():
    """Not below pytest's own: run by root, Postgres is another user, who has to get there."""
    with tempfile.TemporaryDirectory(
        prefix="pop-stream-prometheus-", ignore_cleanup_errors=True
    ) as made:
        yield Path(made)


@pytest.mark.timeout(300)
async def test_every_query_of_every_panel_and_rule_returns_data_of_a_system_under_load(folder):
    definitions = folder / "definitions.toml"
    definitions.write_text(DEFINITIONS)
    free = (one for one in PORTS if all(is_free_port(one + more) for more in range(8)))
    first = next(free)
    plan = StackPlan(
        folder=folder / "data",
        definitions=definitions,
        port=first + len(PARTS),
        pullers=2,
        handlers=("console_handlers:handlers",),
        overrides={"metrics_port": first},
        environment={
            "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
            "POP_WEBHOOK_KEYS": json.dumps(["k" * 40]),
            "POP_RECONCILE_EVERY": "PT2S",
        },
    )
    async with Stack(plan, lambda _: None) as stack:
        targets = {f"pop-stream-{part}": first + n for n, part in enumerate(PARTS)}
        targets["pop-stream-api"] = first + len(PARTS)
        stop = asyncio.Event()
        loading = asyncio.create_task(load(stack.settings.api_url, stop))
        try:
            async with prometheus(folder, targets, RULES) as server:
                await _check_panels_and_rules(server)
        finally:
            stop.set()
            await loading


async def _check_panels_and_rules(server):
    levels = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    wanted = [*queries(), *((one["record"], one["expr"]) for one in levels)]
    async with within(90):
        while wanted := await unanswered(server, wanted):  # noqa: ASYNC110  # no event
            await asyncio.sleep(1)
    groups = (await server.get("rules"))["groups"]
    assert [
        (rule["name"], rule["lastError"])
        for group in groups
        for rule in group["rules"]
        if rule["health"] == "err"
    ] == []
    assert await server.values("sum(pop_customer_ready{customer='paused'}) > 0")
    eligible = await server.values("sum(pop_insight_eligible)")
    ready = await server.values("sum(pop_insight_ready)")
    assert eligible < ready, "what is paused is not eligible"
