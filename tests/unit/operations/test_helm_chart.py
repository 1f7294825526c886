"""The chart: it describes what the overlays do, and says what is wrong with a value.

What Helm renders is read from `deploy/rendered`; what only Helm can show is in `deploy/checks`.
"""

import json
import re
import tomllib
from collections.abc import Mapping

import pytest
import yaml
from jsonschema import Draft202012Validator
from manifests import (
    CHART,
    LASTING,
    VERSION,
    container,
    named,
    pod,
    rendered,
    secret_settings,
    settings,
)

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {one.name: one.read_text() for one in (CHART / "templates").iterdir()}


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
    ("release", "variant"), [("chart", "base"), ("chart-production", "production")]
)
def test_the_chart_describes_what_the_overlay_does(release, variant):
    chart = comparable(rendered(release))
    # A hook runs before the rest is there, so it has copies of what it reads.
    for shared in ("pop-stream", "pop-stream-definitions"):
        name = shared.replace("pop-stream", "pop-stream-migrate")
        copied = chart.pop(("ConfigMap", name))
        assert copied == chart["ConfigMap", shared] | {"metadata": {"name": name}}
    job = chart.pop(("Job", "pop-stream-migrate"))
    expected = comparable(rendered(variant))
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
    hooks = [
        one
        for one in rendered("chart")
        if "helm.sh/hook" in str(one["metadata"].get("annotations"))
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


def test_a_release_with_everything_set_has_all_of_it():
    objects = rendered("chart-everything")
    assert all(one["metadata"]["name"].startswith("farm-pop-stream") for one in objects)
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


def test_whatever_a_pod_may_be_given_reaches_every_pod():
    given = yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text())
    for one in rendered("chart-everything"):
        if "template" not in one.get("spec", {}):
            continue
        template = one["spec"]["template"]
        spec = template["spec"]
        assert template["metadata"]["annotations"].items() >= given["podAnnotations"].items()
        for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
            assert spec[name] == given[name]
        [runs] = spec["containers"]
        for name, field in (("extraEnv", "env"), ("extraVolumeMounts", "volumeMounts")):
            assert all(each in runs[field] for each in given[name])
        assert all(each in spec["volumes"] for each in given["extraVolumes"])


def test_other_settings_have_another_digest_so_that_pods_are_replaced():
    def digests(release):
        found = {
            json.dumps(
                {
                    key: text
                    for key, text in one["spec"]["template"]["metadata"]["annotations"].items()
                    if key.startswith("checksum/")
                }
            )
            for one in rendered(release)
            if "template" in one.get("spec", {})
        }
        return json.loads(*found)

    usual, other = digests("chart"), digests("chart-everything")
    assert [one for one in usual if usual[one] != other[one]] == ["checksum/settings"]
    assert ".Values.definitions | sha256sum" in TEMPLATES["_pod.tpl"].replace(
        "$values", ".Values"
    )


def merged(values, changes):
    """As Helm lays a user's values over the chart's own."""
    return values | {
        key: merged(values[key], one)
        if isinstance(one, Mapping) and isinstance(values.get(key), Mapping)
        else one
        for key, one in changes.items()
    }


@pytest.mark.parametrize("file", ["values-production.yaml", "ci/everything-values.yaml"])
def test_the_schema_takes_the_values_that_come_with_the_chart(file):
    Draft202012Validator.check_schema(SCHEMA)
    given = merged(VALUES, yaml.safe_load((CHART / file).read_text()))
    given["pullers"] = {key: one for key, one in given["pullers"].items() if one is not None}
    Draft202012Validator(SCHEMA).validate(given)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"replicas": 3}, "replicas"),
        ({"api": {"replicas": -1}}, "replicas"),
        ({"kafka": {"bootstrap": "kafka"}}, "bootstrap"),
        ({"settings": {"KAFKA_USERNAME": "work"}}, "KAFKA_USERNAME"),
        ({"pullers": {"gpu": {"replicas": 1}}}, "insight"),
        ({"pullerGraceSeconds": 0}, "pullerGraceSeconds"),
    ],
)
def test_the_schema_refuses_a_value_that_nothing_would_come_of(values, field):
    assert Draft202012Validator(SCHEMA).is_valid(VALUES)
    [refused] = Draft202012Validator(SCHEMA).iter_errors(merged(VALUES, values))
    assert field in f"{refused.json_path} {refused.message}"


def listed(text, begin, end):
    """The words in quotation marks between two words of a template."""
    return re.findall(r'"([\w-]+)"', text.partition(begin)[2].partition(end)[0])


def test_the_chart_takes_no_secret_as_a_setting():
    names = TEMPLATES["_names.tpl"]
    assert {*listed(names, "$secrets := list", "-}}")} == secret_settings()


def test_the_chart_takes_no_setting_that_it_sets_itself():
    objects = rendered("chart")
    given = {one["name"] for one in container(objects, "scheduler")["env"]}
    own = given | settings(objects, "scheduler").keys() | {"POP_HTTP_PORT"}
    fixed = listed(TEMPLATES["_names.tpl"], "$fixed := dict", "-}}")
    names = [one for one in fixed if one.startswith("POP_")]
    others = listed(TEMPLATES["_names.tpl"], "(keys $fixed) (list", ")")
    assert {*names, *others} == own - secret_settings()


def test_no_puller_is_called_as_another_part():
    refused = listed(TEMPLATES["parts.yaml"], "has $part (list", ")")
    assert {*refused} == {*LASTING, "migrate"} - {"puller"}


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
