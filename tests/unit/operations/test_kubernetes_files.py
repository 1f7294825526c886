"""The manifests for Kubernetes: that they name what exists, since no cluster runs them here."""

import os
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from pop_stream.__main__ import app
from pop_stream.model.definitions import Insight, parse_definitions_file
from pop_stream.settings import Settings

BASE = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base"
KUSTOMIZATION = yaml.safe_load((BASE / "kustomization.yaml").read_text())
OBJECTS = [
    one
    for name in KUSTOMIZATION["resources"]
    for one in yaml.safe_load_all((BASE / name).read_text())
]
WORKLOADS = {
    one["metadata"]["name"].removeprefix("pop-stream-"): one
    for one in OBJECTS
    if one["kind"] in {"Deployment", "StatefulSet", "Job"}
}
[SETTINGS] = [one["data"] for one in OBJECTS if one["kind"] == "ConfigMap"]
parts = pytest.mark.parametrize("name", WORKLOADS)
lasting = pytest.mark.parametrize("name", sorted(WORKLOADS.keys() - {"migrate"}))


def pod(name):
    return WORKLOADS[name]["spec"]["template"]["spec"]


def container(name):
    [found] = pod(name)["containers"]
    return found


def test_every_part_has_a_workload():
    commands = {container(name)["args"][0] for name in WORKLOADS}
    assert commands == {"migrate", "serve", "ingest", "scheduler", "rollup", "pull"}


@parts
def test_a_workload_runs_a_command_that_takes_its_arguments(name):
    command, *rest = container(name)["args"]
    get_command(app).commands[command].make_context(command, rest)


@parts
def test_settings_exist_and_are_valid(name, monkeypatch):
    given = {one["name"]: one.get("value") for one in container(name)["env"]}
    known = {f"POP_{field.upper()}" for field in Settings.model_fields}
    assert given.keys() | SETTINGS.keys() <= known
    for key in [one for one in os.environ if one.startswith("POP_")]:
        monkeypatch.delenv(key)
    secrets = {"POP_SIGNING_SECRETS": f'["{"s" * 32}"]', "POP_POSTGRES_DSN": "postgresql://p/p"}
    values = {key: value for key, value in given.items() if value is not None}
    for key, value in (SETTINGS | values | secrets | {"POP_INSTANCE": "pod-1"}).items():
        monkeypatch.setenv(key, value)
    assert Settings().requires_authentication


@lasting
def test_probes_ask_the_port_that_is_listened_to(name):
    [port] = container(name)["ports"]
    listens = Settings().http_port if name == "api" else int(SETTINGS["POP_METRICS_PORT"])
    assert port["containerPort"] == listens
    paths = {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    for probe, path in paths.items():
        assert container(name)[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}


def test_pullers_have_longer_than_what_they_run():
    grace = Settings(puller_grace=SETTINGS["POP_PULLER_GRACE"]).puller_grace.total_seconds()
    assert pod("puller")["terminationGracePeriodSeconds"] >= grace + 15


@parts
def test_nothing_runs_as_root_or_writes_to_its_image(name):
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    limits = container(name)["securityContext"]
    assert limits["readOnlyRootFilesystem"] is True
    assert limits["allowPrivilegeEscalation"] is False
    assert limits["capabilities"] == {"drop": ["ALL"]}


@lasting
def test_a_part_is_spread_and_one_of_it_is_away_at_a_time(name):
    labels = WORKLOADS[name]["spec"]["selector"]["matchLabels"]
    assert WORKLOADS[name]["spec"]["template"]["metadata"]["labels"] == labels
    [spread] = pod(name)["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels
    budgets = [one["spec"] for one in OBJECTS if one["kind"] == "PodDisruptionBudget"]
    assert {"maxUnavailable": 1, "selector": {"matchLabels": labels}} in budgets


def test_schedulers_keep_their_names_and_their_disks():
    scheduler = WORKLOADS["scheduler"]
    assert scheduler["kind"] == "StatefulSet"
    [claim] = scheduler["spec"]["volumeClaimTemplates"]
    mounts = {one["name"]: one["mountPath"] for one in container("scheduler")["volumeMounts"]}
    given = {one["name"]: one.get("value") for one in container("scheduler")["env"]}
    assert mounts[claim["metadata"]["name"]] == given["POP_SCHEDULER_DATA"]


def test_the_puller_pulls_what_the_definitions_define():
    [generated] = KUSTOMIZATION["configMapGenerator"]
    found = parse_definitions_file(tomllib.loads((BASE / generated["files"][0]).read_text()))
    words = container("puller")["args"]
    insights = [one.id for one in found if isinstance(one, Insight)]
    assert words[words.index("--insight") + 1] in insights
