"""A stand-in for a Kubernetes API server, its Job controller and a kubelet.

It follows the API's documented contract: paths, status codes and `Status` objects, 409 for a
name that is taken, 404, label selectors, pages, deletion with finalizers in the foreground,
conditions of Jobs and states of containers. What a container does is its first argument.
"""

from datetime import UTC, datetime, timedelta

from aiohttp import web
from aiohttp.test_utils import TestServer

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def stamp(seconds):
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def status_object(code, reason, message):
    return web.json_response(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        },
        status=code,
    )


class KubernetesDouble:
    """Jobs and pods of one namespace.

    Attributes:
        requests: Method and path of each.
        refuses: An answer that is given instead, by method.
        nodes: As the API lists them.
        on_running: Called with the name of each Job whose pod runs.
    """

    def __init__(self):
        self.jobs = {}
        self.pods = {}
        self.logs = {}
        self.requests = []
        self.refuses = {}
        self.nodes = []
        self.on_running = None
        self.token = "secret"  # noqa: S105
        self._version = 0
        self._now = 0
        app = web.Application(middlewares=[self._gate])
        jobs = "/apis/batch/v1/namespaces/{ns}/jobs"
        pods = "/api/v1/namespaces/{ns}/pods"
        app.router.add_post(jobs, self._create)
        app.router.add_get(jobs, self._list_jobs)
        app.router.add_get(f"{jobs}/{{name}}", self._get)
        app.router.add_delete(f"{jobs}/{{name}}", self._delete)
        app.router.add_get(pods, self._list_pods)
        app.router.add_get(f"{pods}/{{name}}/log", self._log)
        app.router.add_get("/api/v1/nodes", self._list_nodes)
        self._app = app

    def server(self):
        return TestServer(self._app)

    # ---- what the cluster does ----

    def step(self):
        """Have every pod go one step on."""
        self._now += 1
        for name in [*self.jobs]:
            job, pod = self.jobs[name], self.pods.get(f"{name}-x1")
            if job["metadata"].get("deletionTimestamp"):
                self._remove(name)
            elif pod is None:
                if not job["spec"].get("suspend"):
                    self._schedule(name)
            else:
                self._go_on(job, pod)

    def _schedule(self, name):
        template = self.jobs[name]["spec"]["template"]
        self.pods[f"{name}-x1"] = {
            "metadata": {
                "name": f"{name}-x1",
                "creationTimestamp": stamp(self._now),
                **template["metadata"],
            },
            "spec": {**template["spec"], "nodeName": "node-1"},
            "status": {"phase": "Pending"},
        }
        self.jobs[name]["status"] = {"startTime": stamp(self._now), "active": 1}

    def _go_on(self, job, pod):
        container = pod["spec"]["containers"][0]
        does, *more = container.get("args") or ["succeed"]
        phase = pod["status"]["phase"]
        if container["image"].startswith("missing"):
            self.wait(pod, "ImagePullBackOff", f'Back-off pulling image "{container["image"]}"')
        elif phase == "Pending":
            state = {"running": {"startedAt": stamp(self._now)}}
            pod["status"] = {
                "phase": "Running",
                "containerStatuses": [{"name": "operation", "state": state}],
            }
            self.logs[pod["metadata"]["name"]] = f"{does}s\n"
        elif phase == "Running" and self.on_running:
            self.on_running(job["metadata"]["name"])
        elif phase == "Running" and does == "succeed":
            self.end(job, pod, 0, "Completed", more[0] if more else "")
        elif phase == "Running" and does == "fail":
            self.end(job, pod, 1, "Error", "boom")

    def wait(self, pod, reason, message):
        state = {"waiting": {"reason": reason, "message": message}}
        pod["status"]["containerStatuses"] = [{"name": "operation", "state": state}]

    def end(self, job, pod, code, reason, message=""):
        """Have a pod's program end."""
        (known,) = pod["status"]["containerStatuses"]
        ended = {
            "exitCode": code,
            "reason": reason,
            "startedAt": known["state"]["running"]["startedAt"],
            "finishedAt": stamp(self._now),
            **({"message": message} if message else {}),
        }
        known["state"] = {"terminated": ended}
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        self.conclude(job, failed=bool(code))

    def evict(self, name):
        """Take a pod away, as a node without memory does."""
        pod = self.pods[f"{name}-x1"]
        pod["status"] |= {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
        }
        self.conclude(self.jobs[name], failed=True)

    def conclude(self, job, *, failed, reason="BackoffLimitExceeded"):
        kinds = ("FailureTarget", "Failed") if failed else ("SuccessCriteriaMet", "Complete")
        text = "Job has reached the specified backoff limit" if failed else ""
        job["status"]["conditions"] = [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": stamp(self._now),
                "reason": reason if failed else "CompletionsReached",
                "message": text,
            }
            for kind in kinds
        ]

    def _remove(self, name):
        self.jobs.pop(name, None)
        self.pods.pop(f"{name}-x1", None)

    # ---- requests ----

    @web.middleware
    async def _gate(self, request, handler):
        self.requests.append((request.method, request.path))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return status_object(401, "Unauthorized", "Unauthorized")
        if refusal := self.refuses.get(request.method):
            return status_object(*refusal)
        return await handler(request)

    async def _create(self, request):
        job = await request.json()
        name = job["metadata"]["name"]
        if name in self.jobs:
            text = f'jobs.batch "{name}" already exists'
            return status_object(409, "AlreadyExists", text)
        if len(name) > 63:
            return status_object(422, "Invalid", f'Job.batch "{name}" is invalid')
        self._version += 1
        job["metadata"] |= {
            "creationTimestamp": stamp(self._now),
            "resourceVersion": str(self._version),
            "namespace": request.match_info["ns"],
        }
        job["status"] = {}
        self.jobs[name] = job
        return web.json_response(job, status=201)

    async def _get(self, request):
        self.step()
        name = request.match_info["name"]
        if name not in self.jobs:
            return status_object(404, "NotFound", f'jobs.batch "{name}" not found')
        return web.json_response(self.jobs[name])

    async def _delete(self, request):
        name = request.match_info["name"]
        if name not in self.jobs:
            return status_object(404, "NotFound", f'jobs.batch "{name}" not found')
        if request.query.get("propagationPolicy") == "Foreground":
            metadata = self.jobs[name]["metadata"]
            metadata["deletionTimestamp"] = stamp(self._now)
            metadata["finalizers"] = ["foregroundDeletion"]
            return web.json_response(self.jobs[name])
        self._remove(name)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _list_jobs(self, request):
        return self._listed(request, self.jobs.values())

    async def _list_pods(self, request):
        return self._listed(request, self.pods.values())

    async def _list_nodes(self, request):
        return self._listed(request, self.nodes)

    def _listed(self, request, items):
        wanted = dict(
            one.split("=", 1) for one in request.query["labelSelector"].split(",") if one
        )
        found = [
            one
            for one in items
            if wanted.items() <= (one["metadata"].get("labels") or {}).items()
        ]
        start, limit = int(request.query["continue"] or 0), int(request.query["limit"])
        page, rest = found[start : start + limit], found[start + limit :]
        more = {"continue": str(start + limit)} if rest else {}
        return web.json_response({"items": page, "metadata": more})

    async def _log(self, request):
        name = request.match_info["name"]
        if name not in self.pods:
            return status_object(404, "NotFound", f'pods "{name}" not found')
        if name not in self.logs:
            text = f'container "operation" in pod "{name}" is waiting to start'
            return status_object(400, "BadRequest", text)
        return web.Response(text=self.logs[name])
