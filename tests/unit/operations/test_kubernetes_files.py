"""The overlays and the chart, rendered as `kubectl` and Helm do; no cluster runs them here.

The chart describes what the base does, and its values of production what that overlay does: a
test compares the two, so that what holds for the overlays holds for the chart.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from metric_names import REFERENCE
from typer.main import get_command

from pop_stream.__main__ import app
from pop_stream.model.definitions import Insight
from pop_stream.model.definitions_file import parse_definitions_file
from pop_stream.settings import Settings

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm" / "pop-stream"
PRODUCTION = yaml.safe_load((CHART / "values-production.yaml").read_text())
VARIANTS = ("base", "overlays/development", "overlays/production")
LASTING = ("api", "ingest", "scheduler", "rollup", "puller")
# Of KEDA and the Prometheus Operator: Kubernetes' own schemas do not know them.
FOREIGN = {"ScaledObject", "PodMonitor"}
# In a process of its own: Helm's library brings Go's threads and signal handlers.
RENDER = """
import json, sys, helm_python
path, name, values = json.load(sys.stdin)
with helm_python.Chart.load(path) as chart:
    chart.validate_schema(values)
    json.dump(chart.render(values, name=name, namespace="work"), sys.stdout)
"""

variants = pytest.mark.parametrize("variant", VARIANTS)
parts = pytest.mark.parametrize("name", [*LASTING, "migrate"])
lasting = pytest.mark.parametrize("name", LASTING)


@cache
def overlay(variant):
    kubectl = Path(sys.prefix) / "bin" / "kubectl"
    done = subprocess.run(  # noqa: S603  # fixed arguments
        [kubectl, "kustomize", KUBERNETES / variant], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


def render_chart(values, *, name="pop-stream"):
    done = subprocess.run(  # noqa: S603  # fixed arguments
        [sys.executable, "-c", RENDER],
        input=json.dumps([str(CHART), name, values]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    files = json.loads(done.stdout)
    return [
        one
        for path, text in files.items()
        if path.endswith(".yaml")
        for one in yaml.safe_load_all(text)
        if one
    ]


def named(objects, kind, name):
    [found] = [
        one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    return found


def workload(objects, name):
    kinds = {"scheduler": "StatefulSet", "migrate": "Job"}
    return named(objects, kinds.get(name, "Deployment"), f"pop-stream-{name}")


def pod(objects, name):
    return workload(objects, name)["spec"]["template"]["spec"]


def container(objects, name):
    [found] = pod(objects, name)["containers"]
    return found


def settings(objects, name):
    [source] = container(objects, name)["envFrom"]
    return named(objects, "ConfigMap", source["configMapRef"]["name"])["data"]


def definitions(objects, name):
    [volume] = [one for one in pod(objects, name)["volumes"] if one["name"] == "definitions"]
    data = named(objects, "ConfigMap", volume["configMap"]["name"])["data"]
    return parse_definitions_file(tomllib.loads(data["definitions.toml"]))


def secret_settings():
    return {
        f"POP_{name.upper()}"
        for name, field in Settings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    }


@variants
def test_kubernetes_own_schemas_take_every_object(variant):
    for one in overlay(variant):
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, "1.31", strict=True)


@variants
def test_every_part_has_a_workload(variant):
    objects = overlay(variant)
    found = [one for one in objects if "template" in one.get("spec", {})]
    assert {
        one["spec"]["template"]["spec"]["containers"][0]["args"][0] for one in found
    } == {"migrate", "serve", "ingest", "scheduler", "rollup", "pull"}  # fmt: skip


@parts
def test_a_workload_runs_a_command_that_takes_its_arguments(name):
    command, *rest = container(overlay("base"), name)["args"]
    get_command(app).commands[command].make_context(command, rest)


@variants
@parts
def test_settings_exist_and_are_valid(variant, name, monkeypatch):
    objects = overlay(variant)
    given = {one["name"]: one.get("value") for one in container(objects, name)["env"]}
    shared = settings(objects, name)
    known = {f"POP_{field.upper()}" for field in Settings.model_fields}
    assert given.keys() | shared.keys() <= known
    for key in [one for one in os.environ if one.startswith("POP_")]:
        monkeypatch.delenv(key)
    secrets = {"POP_SIGNING_SECRETS": f'["{"s" * 32}"]', "POP_POSTGRES_DSN": "postgresql://p/p"}
    values = {key: value for key, value in given.items() if value is not None}
    for key, value in (shared | values | secrets | {"POP_INSTANCE": "pod-1"}).items():
        monkeypatch.setenv(key, value)
    assert Settings().requires_authentication


@variants
@lasting
def test_probes_ask_the_port_that_is_listened_to(variant, name):
    objects = overlay(variant)
    [port] = container(objects, name)["ports"]
    metrics_port = int(settings(objects, name)["POP_METRICS_PORT"])
    listens = Settings().http_port if name == "api" else metrics_port
    assert port["containerPort"] == listens
    paths = {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    served = (ROOT / "docs/how-to/operate.md").read_text()
    for probe, path in paths.items():
        asked = container(objects, name)[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": path, "port": "http"}
        where = "the API" if name == "api" else "`POP_METRICS_PORT`"
        assert f"| `GET {path}` on {where} |" in served


@variants
def test_pullers_have_longer_than_what_they_run(variant):
    given = settings(overlay(variant), "puller")["POP_PULLER_GRACE"]
    grace = Settings(puller_grace=given).puller_grace.total_seconds()
    assert pod(overlay(variant), "puller")["terminationGracePeriodSeconds"] >= grace + 15


@variants
def test_the_api_serves_until_nobody_sends_it_more(variant):
    command = container(overlay(variant), "api")["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    assert 0 < int(command[1]) < pod(overlay(variant), "api")["terminationGracePeriodSeconds"]


@variants
@parts
def test_nothing_runs_as_root_or_writes_to_its_image(variant, name):
    assert pod(overlay(variant), name)["securityContext"]["runAsNonRoot"] is True
    limits = container(overlay(variant), name)["securityContext"]
    assert limits["readOnlyRootFilesystem"] is True
    assert limits["allowPrivilegeEscalation"] is False
    assert limits["capabilities"] == {"drop": ["ALL"]}


@variants
@lasting
def test_a_part_is_spread_and_one_of_it_is_away_at_a_time(variant, name):
    one = workload(overlay(variant), name)["spec"]
    labels = one["selector"]["matchLabels"]
    assert one["template"]["metadata"]["labels"] == labels
    spread = pod(overlay(variant), name)["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert all(each["labelSelector"]["matchLabels"] == labels for each in spread)
    assert (spread[0]["whenUnsatisfiable"] == "DoNotSchedule") is variant.endswith("production")
    budget = named(overlay(variant), "PodDisruptionBudget", f"pop-stream-{name}")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}


@variants
def test_schedulers_keep_their_names_and_their_disks(variant):
    scheduler = container(overlay(variant), "scheduler")
    [claim] = workload(overlay(variant), "scheduler")["spec"]["volumeClaimTemplates"]
    mounts = {one["name"]: one["mountPath"] for one in scheduler["volumeMounts"]}
    given = {one["name"]: one.get("value") for one in scheduler["env"]}
    assert mounts[claim["metadata"]["name"]] == given["POP_SCHEDULER_DATA"]


@variants
def test_the_puller_pulls_what_the_definitions_define(variant):
    found = definitions(overlay(variant), "migrate")
    words = container(overlay(variant), "puller")["args"]
    insights = [one.id for one in found if isinstance(one, Insight)]
    assert words[words.index("--insight") + 1] in insights


@variants
def test_what_an_upgrade_applies_first_is_all_that_migrate_reads(variant):
    first = [
        one
        for one in overlay(variant)
        if one["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        in {"migrate", "settings"}
    ]
    assert {one["kind"] for one in first} == {"Job", "ConfigMap"}
    assert settings(first, "migrate")
    assert definitions(first, "migrate")


@variants
def test_secrets_come_by_reference(variant):
    assert not [one for one in overlay(variant) if one["kind"] == "Secret"]
    for name in (*LASTING, "migrate"):
        given = {one["name"]: one for one in container(overlay(variant), name)["env"]}
        for secret in secret_settings() & given.keys():
            assert given[secret].keys() == {"name", "valueFrom"}
            assert given[secret]["valueFrom"].keys() == {"secretKeyRef"}
        assert not secret_settings() & settings(overlay(variant), name).keys()


def test_development_is_one_of_each_and_asks_for_less():
    objects = overlay("overlays/development")
    assert {workload(objects, name)["spec"]["replicas"] for name in LASTING} == {1}
    assert settings(objects, "migrate")["POP_REPLICATION_FACTOR"] == "1"
    for name in LASTING:
        small = container(objects, name)["resources"]["requests"]
        usual = container(overlay("base"), name)["resources"]["requests"]
        assert int(small["cpu"].removesuffix("m")) < int(usual["cpu"].removesuffix("m"))


def test_in_production_a_scaler_owns_the_number_or_there_are_three():
    objects = overlay("overlays/production")
    scaled = {
        one["spec"]["scaleTargetRef"]["name"].removeprefix("pop-stream-"): one["spec"]
        for one in objects
        if one["kind"] in {"HorizontalPodAutoscaler", "ScaledObject"}
    }
    assert scaled.keys() == {"api", "puller"}
    for name in LASTING:
        assert ("replicas" in workload(objects, name)["spec"]) is (name not in scaled)
        assert workload(objects, name)["spec"].get("replicas", 3) >= 3
    assert scaled["api"]["minReplicas"] >= 3


def test_pullers_are_scaled_by_a_metric_that_is_shown_up_to_the_partitions_of_their_insight():
    objects = overlay("overlays/production")
    scaled = named(objects, "ScaledObject", "pop-stream-puller")["spec"]
    [trigger] = scaled["triggers"]
    metric, insight = re.fullmatch(
        r'max\((\w+)\{insight="(\w+)"\}\)', trigger["metadata"]["query"]
    ).groups()
    assert f"| `{metric}` | gauge | `insight` |" in REFERENCE.read_text()
    words = container(objects, "puller")["args"]
    assert words[words.index("--insight") + 1] == insight
    [found] = [
        one
        for one in definitions(objects, "migrate")
        if isinstance(one, Insight) and one.id == insight
    ]
    assert scaled["minReplicaCount"] <= scaled["maxReplicaCount"] <= found.partitions


def test_prometheus_scrapes_every_part_under_the_jobs_that_alarms_ask_for():
    objects = overlay("overlays/production")
    configured = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    jobs = {one["job_name"] for one in configured["scrape_configs"]}
    asked = []
    for one in [each["spec"] for each in objects if each["kind"] == "PodMonitor"]:
        [endpoint] = one["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
        [job] = [each for each in endpoint["relabelings"] if each["targetLabel"] == "job"]
        assert job["sourceLabels"] == [
            "__meta_kubernetes_pod_label_app_kubernetes_io_component"
        ]
        [rule] = one["selector"]["matchExpressions"]
        found = [
            name for name in LASTING if (name in rule["values"]) is (rule["operator"] == "In")
        ]
        assert ("authorization" in endpoint) is (found == ["api"])
        asked += [job["replacement"].replace("$1", name) for name in found]
    assert sorted(asked) == sorted(jobs)


def comparable(objects):
    """By kind and name, without what Helm adds and what kustomize derives a name from."""
    added = {
        "annotations",
        "imagePullPolicy",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/version",
        "app.kubernetes.io/managed-by",
        "helm.sh/chart",
    }

    def without(value):
        if isinstance(value, dict):
            return {key: without(one) for key, one in value.items() if key not in added}
        if isinstance(value, list):
            return [without(one) for one in value]
        return value

    text = re.sub(r'(pop-stream(-definitions)?)-[0-9a-z]{10}(?=")', r"\1", json.dumps(objects))
    found = {}
    for one in without(json.loads(text)):
        one["metadata"].pop("labels", None)
        if "definitions.toml" in one.get("data", {}):
            one["data"] = tomllib.loads(one["data"]["definitions.toml"])
        found[one["kind"], one["metadata"]["name"]] = one
    return found


@pytest.mark.parametrize(
    ("values", "variant"), [({}, "base"), (PRODUCTION, "overlays/production")]
)
def test_the_chart_describes_what_the_overlay_does(values, variant):
    chart = comparable(render_chart(values))
    # A hook runs before the rest is there, so it has copies of what it reads.
    for shared in ("pop-stream", "pop-stream-definitions"):
        name = shared.replace("pop-stream", "pop-stream-migrate")
        copied = chart.pop(("ConfigMap", name))
        assert copied == chart["ConfigMap", shared] | {"metadata": {"name": name}}
    job = chart.pop(("Job", "pop-stream-migrate"))
    expected = comparable(overlay(variant))
    hook = expected.pop(("Job", "pop-stream-migrate"))
    assert chart == expected
    [source] = container([hook], "migrate")["envFrom"]
    source["configMapRef"]["name"] = "pop-stream-migrate"
    [volume] = [
        one for one in pod([hook], "migrate")["volumes"] if one["name"] == "definitions"
    ]
    volume["configMap"]["name"] = "pop-stream-migrate-definitions"
    assert job == hook


def test_migrate_is_a_hook_that_comes_before_the_parts_and_after_what_it_reads():
    objects = render_chart({})
    hooks = [
        one for one in objects if "helm.sh/hook" in str(one["metadata"].get("annotations"))
    ]
    weights = {}
    for one in hooks:
        notes = one["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert notes["helm.sh/hook-delete-policy"] == "before-hook-creation"
        weights[one["kind"], one["metadata"]["name"]] = int(notes["helm.sh/hook-weight"])
    job = weights.pop(("Job", "pop-stream-migrate"))
    assert weights.keys() == {
        ("ConfigMap", "pop-stream-migrate"),
        ("ConfigMap", "pop-stream-migrate-definitions"),
    }
    assert max(weights.values()) < job
    assert not [
        one for one in render_chart({"migrate": {"enabled": False}}) if one["kind"] == "Job"
    ]


def test_kubernetes_own_schemas_take_every_object_of_a_chart_with_everything_set():
    farm = {
        "pullers": {
            "puller": None,
            "gpu": {"insight": "render", "args": ["--concurrency", "2"], "replicas": 0,
                    "image": "farm/gpu:3"},
            "cpu": {"insight": "general", "autoscaling": {
                "enabled": True, "min": 0, "max": 4, "prometheus": "http://prometheus:9090"}},
        },
        "settings": {
            "POP_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "POP_KAFKA_CA_FILE": "/etc/kafka/ca"},
        "extraEnv": [{"name": "POP_KAFKA_PASSWORD", "valueFrom": {
            "secretKeyRef": {"name": "kafka", "key": "password"}}}],
        "extraVolumes": [{"name": "authorities", "secret": {"secretName": "kafka-ca"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/kafka"}],
        "imagePullSecrets": [{"name": "registry"}],
        "secret": {"name": "credentials"},
        "scheduler": {"storageClass": "fast"},
        "podAnnotations": {"team": "work"},
        "podMonitors": {"enabled": True, "labels": {"release": "prometheus"}},
        "nodeSelector": {"pool": "work"},
        "tolerations": [{"key": "work", "operator": "Exists"}],
        "pullerGraceSeconds": 600,
    }  # fmt: skip
    objects = render_chart(farm, name="farm")
    for one in objects:
        assert one["metadata"]["name"].startswith("farm-pop-stream")
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, "1.31", strict=True)
    gpu = named(objects, "Deployment", "farm-pop-stream-gpu")["spec"]
    assert gpu["replicas"] == 0
    assert gpu["template"]["spec"]["terminationGracePeriodSeconds"] == 630
    [runs] = gpu["template"]["spec"]["containers"]
    assert (runs["image"], runs["args"][-2:]) == ("farm/gpu:3", ["--concurrency", "2"])
    assert runs["env"][1]["valueFrom"]["secretKeyRef"]["name"] == "credentials"
    assert named(objects, "ScaledObject", "farm-pop-stream-cpu")["spec"]["minReplicaCount"] == 0
    shared = named(objects, "ConfigMap", "farm-pop-stream")["data"]
    assert shared["POP_API_URL"] == "http://farm-pop-stream-api:8080"
    assert shared["POP_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    monitor = named(objects, "PodMonitor", "farm-pop-stream")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_a_change_of_settings_or_definitions_replaces_pods():
    def digests(values):
        template = workload(render_chart(values), "ingest")["spec"]["template"]
        return template["metadata"]["annotations"]

    usual = digests({})
    other = digests({"settings": {"POP_KAFKA_USERNAME": "work"}})
    defined = digests({"definitions": "[insights.general]\n"})
    assert [one for one in usual if usual[one] != other[one]] == ["checksum/settings"]
    assert [one for one in usual if usual[one] != defined[one]] == ["checksum/definitions"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"replicas": 3}, "replicas"),
        ({"api": {"replicas": -1}}, "replicas"),
        ({"kafka": {"bootstrap": "kafka"}}, "bootstrap"),
        ({"settings": {"KAFKA_USERNAME": "work"}}, "KAFKA_USERNAME"),
        ({"pullers": {"api": {"insight": "general"}}}, r"pullers\.api: .* choose another"),
        ({"pullers": {"gpu": {"replicas": 1}}}, "insight"),
        ({"pullerGraceSeconds": 0}, "pullerGraceSeconds"),
    ],
)
def test_the_chart_names_a_value_that_it_does_not_take(values, field):
    with pytest.raises(ValueError, match=field):
        render_chart(values)


@pytest.mark.parametrize("name", sorted(secret_settings()))
def test_the_chart_takes_no_secret_as_a_setting(name):
    with pytest.raises(ValueError, match=rf"settings\.{name}: it is secret; give it by"):
        render_chart({"settings": {name: "open"}})


def test_the_chart_takes_no_setting_that_it_sets_itself():
    objects = render_chart({})
    given = {one["name"] for one in container(objects, "scheduler")["env"]}
    own = given | settings(objects, "scheduler").keys() | {"POP_HTTP_PORT"}
    for name in own - secret_settings():
        with pytest.raises(ValueError, match=rf"settings\.{name}: the chart sets it itself"):
            render_chart({"settings": {name: "other"}})


def test_the_chart_and_the_overlays_are_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    for variant in VARIANTS:
        images = {container(overlay(variant), name)["image"] for name in LASTING}
        assert images == {f"pop-stream:{version}"}
