"""A node that runs nothing: scheduler and kubelet as far as an API server sees them.

It binds pods, moves them through their phases, ends those that are deleted, and serves their
logs as a kubelet does. What a container does is its first argument, as in `kubernetes_double`:
`succeed` with what its termination message is to be, or `fail`; any other one goes on. A
container of an image that begins with `missing` waits for it.
"""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus

import aiohttp
from aiohttp import web
from kubernetes_server import Cluster

NAME = "node-1"
_TICK_S = 0.1


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251  # a kubelet's clock


class ClusterNode:
    """The one node of a cluster."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.logs = {}

    async def register(self, port):
        """Be known to the cluster, with logs served at `port`."""
        await self.cluster.ask(
            "POST", "/api/v1/nodes", json={"metadata": {"name": NAME}, "spec": {}}
        )
        held = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        await self.cluster.patch_status(
            f"/api/v1/nodes/{NAME}",
            {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
                "capacity": held,
                "allocatable": held,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        )

    async def work(self):
        """Move every pod on, again and again."""
        while True:
            for pod in (await self.cluster.ask("GET", "/api/v1/pods"))["items"]:
                # The pod was changed or removed meanwhile: looked at again next time.
                with suppress(aiohttp.ClientResponseError):
                    await self._go_on(pod)
            await asyncio.sleep(_TICK_S)

    async def _go_on(self, pod):
        metadata, status = pod["metadata"], pod.get("status") or {}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        phase, started = status.get("phase"), status.get("containerStatuses")
        if metadata.get("deletionTimestamp"):
            if phase == "Running":
                await self._end(path, pod, 143, "Error", "")
            await self.cluster.ask("DELETE", path, params={"gracePeriodSeconds": "0"})
        elif not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
            binding = {"metadata": {"name": metadata["name"]}, "target": target}
            await self.cluster.ask("POST", f"{path}/binding", json=binding)
        elif phase == "Pending":
            if not started or "waiting" not in started[0]["state"]:
                await self._start(path, pod)
        elif phase == "Running":
            await self._run(path, pod)

    async def _start(self, path, pod):
        container = pod["spec"]["containers"][0]
        if container["image"].startswith("missing"):
            text = f'Back-off pulling image "{container["image"]}"'
            state = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
            status = {"containerStatuses": [self._container(container, state)]}
        else:
            self.logs[pod["metadata"]["name"]] = f"{_does(pod)[0]}s\n"
            state = {"running": {"startedAt": now()}}
            states = [self._container(one, state, ready=True) for one in _containers(pod)]
            status = {"phase": "Running", "startTime": now(), "containerStatuses": states}
            ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
            status["conditions"] = ready
        await self.cluster.patch_status(path, status)

    @staticmethod
    def _container(container, state, *, ready=False):
        names = {"name": container["name"], "image": container["image"], "imageID": ""}
        return {**names, "ready": ready, "restartCount": 0, "state": state}

    async def _run(self, path, pod):
        does, *more = _does(pod)
        if does == "succeed":
            await self._end(path, pod, 0, "Completed", more[0] if more else "")
        elif does == "fail":
            await self._end(path, pod, 1, "Error", "boom")

    async def _end(self, path, pod, code, reason, message):
        ended_at = now()
        statuses = []
        for one in pod["status"]["containerStatuses"]:
            began = one["state"].get("running", {}).get("startedAt") or ended_at
            ended = {
                "exitCode": code,
                "reason": reason,
                "message": message,
                "startedAt": began,
                "finishedAt": ended_at,
            }
            statuses.append({**one, "ready": False, "state": {"terminated": ended}})
        phase = "Failed" if code else "Succeeded"
        await self.cluster.patch_status(path, {"phase": phase, "containerStatuses": statuses})

    async def evict(self, namespace, name):
        """End a pod as a kubelet whose node has no memory left does."""
        status = {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
        }
        await self.cluster.patch_status(f"/api/v1/namespaces/{namespace}/pods/{name}", status)

    async def finish(self, namespace, name, message):
        """Have a pod's program end well, with this message."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        await self._end(path, await self.cluster.ask("GET", path), 0, "Completed", message)

    async def serve_log(self, request):
        text = self.logs.get(request.match_info["pod"])
        if text is None:
            return web.Response(status=HTTPStatus.NOT_FOUND, text="no such container")
        return web.Response(text=text)


def _containers(pod):
    return pod["spec"]["containers"]


def _does(pod):
    return _containers(pod)[0].get("args") or ["run"]


@asynccontextmanager
async def node(cluster: Cluster):
    """A node that works until the context ends."""
    found = ClusterNode(cluster)
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", found.serve_log)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cluster.folder / "apiserver.crt", cluster.folder / "apiserver.key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    working = None
    try:
        await found.register(runner.addresses[0][1])
        working = asyncio.create_task(found.work())
        yield found
        if working.done():
            working.result()
    finally:
        if working is not None:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        await runner.cleanup()
