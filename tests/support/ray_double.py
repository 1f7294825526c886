"""A stand-in for the jobs API of a Ray cluster's dashboard.

It follows what Ray 2.60 answered: states, 404 in words, a refusal of a node that the head
passes on as 500, the traceback that it says so with, and the log with lines of Ray's own. What
a job does is the last word of its entry point.
"""

from aiohttp import web
from aiohttp.test_utils import TestServer

BEGIN_MS = 1_767_268_800_000


def traceback(status, last):
    return web.Response(status=status, text=f"Traceback (most recent call last):\n{last}\n.\n")


class RayDouble:
    """Jobs of one cluster.

    Attributes:
        refusal: Status and last line of what submissions are answered instead, if anything.
    """

    def __init__(self):
        self.jobs = {}
        self.refusal = None
        self._now_ms = BEGIN_MS
        app = web.Application()
        app.router.add_post("/api/jobs/", self._submit)
        app.router.add_get("/api/jobs/", self._list)
        app.router.add_get("/api/jobs/{name}", self._get)
        app.router.add_get("/api/jobs/{name}/logs", self._logs)
        app.router.add_post("/api/jobs/{name}/stop", self._stop)
        app.router.add_delete("/api/jobs/{name}", self._delete)
        app.router.add_get("/api/v0/nodes", self._nodes)
        self._app = app

    def server(self):
        return TestServer(self._app)

    def end(self, job, state, code=None):
        """Have a job end."""
        job |= {"status": state, "end_time": self._now_ms, "driver_exit_code": code}
        job["message"] = f"Job entrypoint ended: {state}"

    def _of(self, request):
        name = request.match_info["name"]
        if name not in self.jobs:
            raise web.HTTPNotFound(text=f"Job {name} does not exist")
        return self.jobs[name]

    async def _submit(self, request):
        body = await request.json()
        name = body["submission_id"]
        if self.refusal:
            return traceback(*self.refusal)
        if name in self.jobs:
            last = f"ValueError: Job with submission_id {name} already exists."
            return traceback(500, f"RuntimeError: Request failed with status code 400: {last}")
        self.jobs[name] = {
            "type": "SUBMISSION",
            "submission_id": name,
            "status": "PENDING",
            "message": "Job has not started yet.",
            "error_type": None,
            "start_time": self._now_ms,
            "end_time": None,
            "driver_exit_code": None,
            **body,
        }
        return web.json_response({"job_id": name, "submission_id": name})

    async def _get(self, request):
        self._now_ms += 1_000
        job = self._of(request)
        answer = web.json_response(job)
        does = job["entrypoint"].split()[-1]
        if job["status"] == "PENDING":
            job |= {"status": "RUNNING", "began": self._now_ms / 1000}
        elif job["status"] == "RUNNING" and does == "succeed":
            self.end(job, "SUCCEEDED", 0)
        elif job["status"] == "RUNNING" and does == "fail":
            self.end(job, "FAILED", 1)
        return answer

    async def _list(self, _):
        return web.json_response([*self.jobs.values(), {"type": "DRIVER", "metadata": None}])

    async def _logs(self, request):
        job = self._of(request)
        does = job["entrypoint"].split()[-1]
        lines = ["2026-01-01\tINFO job_manager.py:581 -- Runtime env is setting up."]
        if "began" in job:
            lines += [f"pop-stream: started {job['began']:.9f}", f"{does}s"]
            lines += ['{"frames": 120}'] * (does == "succeed")
        lines.append(f"Running entrypoint for job {job['submission_id']}: {does}")
        return web.json_response({"logs": "\n".join(lines) + "\n"})

    async def _stop(self, request):
        job = self._of(request)
        is_active = job["status"] in {"PENDING", "RUNNING"}
        if is_active:
            self.end(job, "STOPPED")
        return web.json_response({"stopped": is_active})

    async def _delete(self, request):
        job = self._of(request)
        if job["status"] in {"PENDING", "RUNNING"}:
            return traceback(
                500, "RuntimeError: Attempted to delete job in a non-terminal state"
            )
        del self.jobs[job["submission_id"]]
        return web.json_response({"deleted": True})

    async def _nodes(self, _):
        alive = {"state": "ALIVE", "resources_total": {"CPU": 4.0, "memory": 32.0 * 2**30}}
        nodes = [alive, {**alive, "state": "DEAD"}]
        return web.json_response({"data": {"result": {"result": nodes}}})
