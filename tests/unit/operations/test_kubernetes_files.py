"""The overlays, as kustomize renders them into `deploy/rendered`; no cluster runs them here."""

import os
import re
from datetime import timedelta

import pytest
import yaml
from manifests import (
    DEPLOY,
    LASTING,
    ROOT,
    VERSION,
    container,
    definitions,
    named,
    pod,
    rendered,
    secret_settings,
    settings,
    workload,
)
from metric_names import REFERENCE
from typer.main import get_command

from deploy.render import OVERLAYS, RELEASES, RENDERED, copies, digest
from pop_stream.__main__ import app
from pop_stream.lab.chaos.faults import PULLER_GRACE, STOP_GRACE, UPGRADE_ORDER
from pop_stream.model.definitions import Insight
from pop_stream.settings import Settings

variants = pytest.mark.parametrize("variant", OVERLAYS)
parts = pytest.mark.parametrize("name", [*LASTING, "migrate"])
lasting = pytest.mark.parametrize("name", LASTING)


@pytest.mark.parametrize("name", [*OVERLAYS, *RELEASES])
def test_what_is_rendered_is_of_the_sources_that_are_here(name):
    first = (RENDERED / f"{name}.yaml").read_text().partition("\n")[0]
    assert first.endswith(f"Sources: {digest()}"), "run `make deploy-render`"


def test_the_alarms_that_kubernetes_gets_are_those_of_prometheus():
    for file, text in copies():
        assert file.read_text() == text, "run `make deploy-render`"
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())
    for name in ("production", "chart-production"):
        assert named(rendered(name), "PrometheusRule", "pop-stream")["spec"] == rules


def test_nothing_else_is_rendered():
    assert {one.stem for one in RENDERED.iterdir()} == {*OVERLAYS, *RELEASES}


@variants
def test_every_part_has_a_workload(variant):
    objects = rendered(variant)
    found = [one for one in objects if one["kind"] in {"Deployment", "StatefulSet", "Job"}]
    assert {
        one["spec"]["template"]["spec"]["containers"][0]["args"][0] for one in found
    } == {"migrate", "serve", "ingest", "scheduler", "rollup", "pull"}  # fmt: skip


@parts
def test_a_workload_runs_a_command_that_takes_its_arguments(name):
    command, *rest = container(rendered("base"), name)["args"]
    get_command(app).commands[command].make_context(command, rest)


@variants
@parts
def test_settings_exist_and_are_valid(variant, name, monkeypatch):
    objects = rendered(variant)
    given = {one["name"]: one.get("value") for one in container(objects, name)["env"]}
    shared = settings(objects, name)
    known = {f"POP_{field.upper()}" for field in Settings.model_fields}
    assert given.keys() | shared.keys() <= known
    for key in [one for one in os.environ if one.startswith("POP_")]:
        monkeypatch.delenv(key)
    secrets = {"POP_SIGNING_SECRETS": f'["{"s" * 32}"]', "POP_POSTGRES_DSN": "postgresql://p/p"}
    secrets |= {"POP_KAFKA_PASSWORD": "p"} if "POP_KAFKA_PASSWORD" in given else {}
    values = {key: value for key, value in given.items() if value is not None}
    for key, value in (shared | values | secrets | {"POP_INSTANCE": "pod-1"}).items():
        monkeypatch.setenv(key, value)
    assert Settings().requires_authentication


@variants
@lasting
def test_probes_ask_the_port_that_is_listened_to(variant, name):
    objects = rendered(variant)
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
    given = settings(rendered(variant), "puller")["POP_PULLER_GRACE"]
    grace = Settings(puller_grace=given).puller_grace.total_seconds()
    assert pod(rendered(variant), "puller")["terminationGracePeriodSeconds"] >= grace + 15


@variants
def test_chaos_replaces_parts_within_the_grace_and_in_the_order_of_an_upgrade(variant):
    for name in LASTING:
        grace = STOP_GRACE + (PULLER_GRACE if name == "puller" else timedelta(0))
        seconds = pod(rendered(variant), name)["terminationGracePeriodSeconds"]
        assert seconds == grace.total_seconds()
    given = (ROOT / "docs/how-to/run-on-kubernetes.md").read_text()
    assert f"for part in {' '.join(UPGRADE_ORDER)}; do" in given


@variants
def test_the_api_serves_until_nobody_sends_it_more(variant):
    command = container(rendered(variant), "api")["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    assert 0 < int(command[1]) < pod(rendered(variant), "api")["terminationGracePeriodSeconds"]


@variants
@parts
def test_nothing_runs_as_root_or_writes_to_its_image(variant, name):
    assert pod(rendered(variant), name)["securityContext"]["runAsNonRoot"] is True
    limits = container(rendered(variant), name)["securityContext"]
    assert limits["readOnlyRootFilesystem"] is True
    assert limits["allowPrivilegeEscalation"] is False
    assert limits["capabilities"] == {"drop": ["ALL"]}


@variants
@lasting
def test_a_part_is_spread_and_one_of_it_is_away_at_a_time(variant, name):
    one = workload(rendered(variant), name)["spec"]
    labels = one["selector"]["matchLabels"]
    assert one["template"]["metadata"]["labels"] == labels
    spread = pod(rendered(variant), name)["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert all(each["labelSelector"]["matchLabels"] == labels for each in spread)
    assert (spread[0]["whenUnsatisfiable"] == "DoNotSchedule") is (
        variant in {"production", "complete"}
    )
    budget = named(rendered(variant), "PodDisruptionBudget", f"pop-stream-{name}")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}


@variants
def test_schedulers_keep_their_names_and_their_disks(variant):
    scheduler = container(rendered(variant), "scheduler")
    [claim] = workload(rendered(variant), "scheduler")["spec"]["volumeClaimTemplates"]
    mounts = {one["name"]: one["mountPath"] for one in scheduler["volumeMounts"]}
    given = {one["name"]: one.get("value") for one in scheduler["env"]}
    assert mounts[claim["metadata"]["name"]] == given["POP_SCHEDULER_DATA"]


@variants
def test_the_puller_pulls_what_the_definitions_define(variant):
    found = definitions(rendered(variant), "migrate")
    words = container(rendered(variant), "puller")["args"]
    insights = [one.id for one in found if isinstance(one, Insight)]
    assert words[words.index("--insight") + 1] in insights


@variants
def test_what_an_upgrade_applies_first_is_all_that_migrate_reads(variant):
    first = [
        one
        for one in rendered(variant)
        if one["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        in {"migrate", "settings"}
    ]
    assert {one["kind"] for one in first} == {"Job", "ConfigMap"}
    assert settings(first, "migrate")
    assert definitions(first, "migrate")


@variants
def test_secrets_come_by_reference(variant):
    assert not [one for one in rendered(variant) if one["kind"] == "Secret"]
    for name in (*LASTING, "migrate"):
        given = {one["name"]: one for one in container(rendered(variant), name)["env"]}
        for secret in secret_settings() & given.keys():
            assert given[secret].keys() == {"name", "valueFrom"}
            assert given[secret]["valueFrom"].keys() == {"secretKeyRef"}
        assert not secret_settings() & settings(rendered(variant), name).keys()


def test_development_is_one_of_each_and_asks_for_less():
    objects = rendered("development")
    assert {workload(objects, name)["spec"]["replicas"] for name in LASTING} == {1}
    assert settings(objects, "migrate")["POP_REPLICATION_FACTOR"] == "1"
    for name in LASTING:
        small = container(objects, name)["resources"]["requests"]
        usual = container(rendered("base"), name)["resources"]["requests"]
        assert int(small["cpu"].removesuffix("m")) < int(usual["cpu"].removesuffix("m"))


def test_in_production_a_scaler_owns_the_number_or_there_are_three():
    objects = rendered("production")
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
    objects = rendered("production")
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
    objects = rendered("production")
    configured = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
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


def test_parts_reach_the_kafka_that_strimzi_makes_as_its_user():
    objects = rendered("complete")
    kafka = named(objects, "Kafka", "pop-stream")
    user = named(objects, "KafkaUser", "pop-stream-parts")
    brokers = named(objects, "KafkaNodePool", "pop-stream-brokers")
    for one in (user, brokers):
        assert one["metadata"]["labels"]["strimzi.io/cluster"] == "pop-stream"
    [listener] = kafka["spec"]["kafka"]["listeners"]
    assert listener["tls"] is True
    mechanism = listener["authentication"]["type"]
    assert user["spec"]["authentication"]["type"] == mechanism
    for name in (*LASTING, "migrate"):
        shared = settings(objects, name)
        assert shared["POP_KAFKA_BOOTSTRAP"] == f"pop-stream-kafka-bootstrap:{listener['port']}"
        assert shared["POP_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
        assert shared["POP_KAFKA_SASL_MECHANISM"].lower() == mechanism
        assert shared["POP_KAFKA_USERNAME"] == "pop-stream-parts"
        assert int(shared["POP_REPLICATION_FACTOR"]) <= brokers["spec"]["replicas"]
        given = {one["name"]: one for one in container(objects, name)["env"]}
        source = given["POP_KAFKA_PASSWORD"]["valueFrom"]["secretKeyRef"]
        assert source == {"name": "pop-stream-parts", "key": "password"}
        [ca] = [one for one in pod(objects, name)["volumes"] if one["name"] == "kafka-ca"]
        assert ca["secret"]["secretName"] == "pop-stream-cluster-ca-cert"
        [mount] = [
            one for one in container(objects, name)["volumeMounts"] if one["name"] == "kafka-ca"
        ]
        [item] = ca["secret"]["items"]
        assert f"{mount['mountPath']}/{item['path']}" == shared["POP_KAFKA_CA_FILE"]
        [peer] = listener["networkPolicyPeers"]
        labels = workload(objects, name)["spec"]["template"]["metadata"]["labels"]
        assert peer["podSelector"]["matchLabels"].items() <= labels.items()


def test_parts_reach_the_postgres_that_cloudnative_pg_makes_as_its_owner():
    objects = rendered("complete")
    postgres = named(objects, "Cluster", "pop-stream-postgres")
    assert postgres["spec"]["instances"] >= 3
    for name in (*LASTING, "migrate"):
        given = {one["name"]: one for one in container(objects, name)["env"]}
        source = given["POP_POSTGRES_DSN"]["valueFrom"]["secretKeyRef"]
        assert source == {"name": "pop-stream-postgres-app", "key": "uri"}


def test_with_its_own_servers_it_is_production_otherwise():
    theirs = {"Kafka", "KafkaNodePool", "KafkaUser", "Cluster"}
    both = [
        {
            (one["kind"], re.sub(r"-[0-9a-z]{10}$", "", one["metadata"]["name"]))
            for one in rendered(name)
            if one["kind"] not in theirs
        }
        for name in ("production", "complete")
    ]
    assert both[0] == both[1]


def test_the_overlays_are_of_this_version():
    for variant in OVERLAYS:
        images = {container(rendered(variant), name)["image"] for name in LASTING}
        assert images == {f"pop-stream:{VERSION}"}
