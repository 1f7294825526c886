"""What only Helm can show of the chart; `make deploy-check` runs this."""

import pytest
import yaml
from manifests import container, rendered, secret_settings, settings, workload

from deploy.render import run_helm


@pytest.fixture
def render(tmp_path):
    def rendered_with(values):
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        return run_helm([file])

    return rendered_with


def test_without_migrate_there_is_no_job(render):
    assert not [one for one in render({"migrate": {"enabled": False}}) if one["kind"] == "Job"]


def test_a_change_of_settings_or_definitions_replaces_pods(render):
    def digests(values):
        return workload(render(values), "ingest")["spec"]["template"]["metadata"]["annotations"]

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
def test_the_chart_names_a_value_that_it_does_not_take(render, values, field):
    with pytest.raises(ValueError, match=field):
        render(values)


@pytest.mark.parametrize("name", sorted(secret_settings()))
def test_the_chart_takes_no_secret_as_a_setting(render, name):
    with pytest.raises(ValueError, match=rf"settings\.{name}: it is secret; give it by"):
        render({"settings": {name: "open"}})


def test_the_chart_takes_no_setting_that_it_sets_itself(render):
    objects = rendered("chart")
    given = {one["name"] for one in container(objects, "scheduler")["env"]}
    own = given | settings(objects, "scheduler").keys() | {"POP_HTTP_PORT"}
    for name in own - secret_settings():
        with pytest.raises(ValueError, match=rf"settings\.{name}: the chart sets it itself"):
            render({"settings": {name: "other"}})
