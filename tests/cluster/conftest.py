"""The control plane and its one node, for the tests of a file."""

import pytest_asyncio
from kubernetes_node import node
from kubernetes_server import cluster as started


@pytest_asyncio.fixture(scope="module")
async def cluster(tmp_path_factory):
    async with started(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest_asyncio.fixture(scope="module")
async def cluster_node(cluster):
    async with node(cluster) as found:
        yield found
