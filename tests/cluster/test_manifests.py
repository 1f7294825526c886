"""The objects of `deploy/rendered`, applied to a real API server, unknown fields refused."""

import json
import secrets
import subprocess
from pathlib import Path

import aiohttp
import pytest
import yaml
from executor_contract import until
from kubernetes_server import VERSION
from manifests import rendered

pytestmark = pytest.mark.timeout(600)

NAMES = (
    "base", "development", "production", "complete",
    "chart", "chart-production", "chart-everything",
)  # fmt: skip

CRDS = {
    "keda.sh": ("github.com/kedacore/keda/v2@v2.18.1", "keda.sh_scaledobjects"),
    "postgresql.cnpg.io": (
        "github.com/cloudnative-pg/cloudnative-pg@v1.27.1",
        "postgresql.cnpg.io_clusters",
    ),
}
"""The module and the file of definitions, by API group."""

WITHOUT = {"monitoring.coreos.com", "kafka.strimzi.io"}
"""Groups whose definitions no Go module has that is to be had."""


def group_of(item):
    return item["apiVersion"].rpartition("/")[0]


@pytest.fixture(scope="module")
async def known(cluster):
    """Paths by API version and kind, with the operators' definitions installed."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for module, file in CRDS.values():
        command = ["go", "mod", "download", "-json", module]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: ASYNC221, S603
        path = (
            Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / "bases" / f"{file}.yaml"
        )
        (definition,) = yaml.safe_load_all(path.read_text())
        await cluster.apply(crds, definition)
    versions = {one["apiVersion"] for name in NAMES for one in rendered(name)}
    found = {}
    for version in versions:
        if version.partition("/")[0] in WITHOUT:
            continue
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resources = await until(lambda path=path: served(cluster, path), bool)
        for one in resources["resources"]:
            if "/" not in one["name"]:
                found[version, one["kind"]] = f"{path}/namespaces/{{}}/{one['name']}"
    return found


async def served(cluster, path):
    async with cluster.session.get(f"{cluster.url}{path}") as response:
        return await response.json() if response.ok else None


@pytest.fixture
async def namespace(cluster):
    name = f"pop-{secrets.token_hex(4)}"
    await cluster.ask("POST", "/api/v1/namespaces", json={"metadata": {"name": name}})
    return name


async def test_the_server_is_kubernetes_as_released(cluster):
    assert (await cluster.ask("GET", "/version"))["gitVersion"] == f"v{VERSION}"


@pytest.mark.parametrize("name", NAMES)
async def test_the_server_takes_every_object(cluster, known, namespace, name):
    taken = []
    for item in rendered(name):
        if group_of(item) in WITHOUT:
            continue
        path = known[item["apiVersion"], item["kind"]].format(namespace)
        await cluster.apply(path, item, dry_run=True)
        applied = await cluster.apply(path, item)
        assert applied["metadata"]["uid"]
        taken.append(item["kind"])
    kinds = {"Deployment", "StatefulSet", "Job", "NetworkPolicy", "PodDisruptionBudget"}
    assert kinds <= {*taken}


async def test_the_server_refuses_a_field_that_it_does_not_know(cluster, known, namespace):
    item = next(one for one in rendered("base") if one["kind"] == "NetworkPolicy")
    wrong = {**item, "spec": {**item["spec"], "ingres": []}}
    path = known[item["apiVersion"], item["kind"]].format(namespace)
    with pytest.raises(aiohttp.ClientResponseError, match="ingres"):
        await cluster.apply(path, wrong, dry_run=True)


async def test_what_is_applied_comes_up(cluster, cluster_node, known, namespace):
    """The cluster's own controllers make the pods, and budgets count them."""
    space = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await until(lambda: cluster.ask("GET", space), lambda found: found["items"])
    objects = [one for one in rendered("base") if one["kind"] != "Job"]
    for item in objects:
        await cluster.apply(known[item["apiVersion"], item["kind"]].format(namespace), item)
    for item in objects:
        path = known[item["apiVersion"], item["kind"]].format(namespace)
        one = f"{path}/{item['metadata']['name']}"
        if item["kind"] in {"Deployment", "StatefulSet"}:
            wanted = item["spec"]["replicas"]
            await until(
                lambda one=one: cluster.ask("GET", one),
                lambda found, wanted=wanted: found["status"].get("readyReplicas") == wanted,
            )
        elif item["kind"] == "PodDisruptionBudget":
            await until(
                lambda one=one: cluster.ask("GET", one),
                lambda found: found.get("status", {}).get("disruptionsAllowed") == 1,
            )
