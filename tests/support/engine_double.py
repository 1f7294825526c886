"""A stand-in for a container engine's HTTP API, on a Unix socket.

It follows what Podman 4.3 answered, where Docker's documentation says the same: 201 and 204,
404 for a container or an image that is not there, 409 for a name that is taken, framed logs.
What a container does is its first argument.
"""

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from aiohttp import web

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def fault(status, message):
    return web.json_response({"message": message}, status=status)


class EngineDouble:
    """Containers of one engine.

    Attributes:
        images: Those that are there.
        registry: Those that can be fetched.
        start_fault: What a start answers instead, if anything.
    """

    def __init__(self):
        self.containers = {}
        self.images = {"acme/render:1"}
        self.registry = set()
        self.start_fault = None
        self._now = 0
        app = web.Application()
        app.router.add_post("/containers/create", self._create)
        app.router.add_get("/containers/json", self._list)
        app.router.add_get("/containers/{name}/json", self._inspect)
        app.router.add_post("/containers/{name}/start", self._start)
        app.router.add_post("/containers/{name}/stop", self._end)
        app.router.add_post("/containers/{name}/kill", self._end)
        app.router.add_get("/containers/{name}/logs", self._logs)
        app.router.add_delete("/containers/{name}", self._delete)
        app.router.add_post("/images/create", self._pull)
        app.router.add_get("/info", self._info)
        self._app = app

    @asynccontextmanager
    async def serving(self, socket):
        runner = web.AppRunner(self._app)
        await runner.setup()
        await web.UnixSite(runner, str(socket)).start()
        try:
            yield
        finally:
            await runner.cleanup()

    def stamp(self):
        instant = BEGIN + timedelta(seconds=self._now)
        return instant.strftime("%Y-%m-%dT%H:%M:%S.123456789Z")

    def of(self, request):
        wanted = request.match_info["name"]
        for name, one in self.containers.items():
            if wanted in {name, one["Id"]}:
                return one
        return None

    def end(self, one, code, **more):
        """Have a container's program end."""
        ended = {"Status": "exited", "ExitCode": code, "FinishedAt": self.stamp()}
        one["State"] |= {**ended, **more}

    async def _create(self, request):
        name, body = request.query["name"], await request.json()
        if name in self.containers:
            return fault(409, f'the container name "{name}" is already in use')
        if body["Image"] not in self.images:
            return fault(404, f"no such image: {body['Image']}")
        self.containers[name] = {
            "Id": f"id-{name}",
            "Name": f"/{name}",
            "Created": self.stamp(),
            "Config": body,
            "State": {"Status": "created", "StartedAt": "0001-01-01T00:00:00Z", "ExitCode": 0},
            "does": (body.get("Cmd") or ["succeed"])[0],
        }
        return web.json_response({"Id": f"id-{name}", "Warnings": []}, status=201)

    async def _start(self, request):
        if (one := self.of(request)) is None:
            return fault(404, "no such container")
        if self.start_fault:
            return fault(*self.start_fault)
        one["State"] |= {"Status": "running", "StartedAt": self.stamp()}
        return web.Response(status=204)

    async def _inspect(self, request):
        self._now += 1
        if (one := self.of(request)) is None:
            return fault(404, "no such container")
        answer = web.json_response(one)
        if one["State"]["Status"] == "running" and one["does"] in {"succeed", "fail"}:
            self.end(one, int(one["does"] == "fail"))
        return answer

    async def _end(self, request):
        if (one := self.of(request)) is None:
            return fault(404, "no such container")
        if one["State"]["Status"] == "running":
            self.end(one, 137)
        return web.Response(status=204)

    async def _delete(self, request):
        if (one := self.of(request)) is None:
            return fault(404, "no such container")
        del self.containers[one["Name"][1:]]
        return web.Response(status=204)

    async def _list(self, request):
        wanted = set(json.loads(request.query["filters"])["label"])
        found = [
            {"Id": one["Id"]}
            for one in self.containers.values()
            if wanted <= {f"{name}={value}" for name, value in one["Config"]["Labels"].items()}
        ]
        return web.json_response(found)

    async def _logs(self, request):
        if (one := self.of(request)) is None:
            return fault(404, "no such container")
        lines = [(2, f"{one['does']}s\n")]
        if one["does"] == "succeed":
            lines.append((1, '{"frames": 120}\n'))
        framed = b"".join(
            bytes([kind, 0, 0, 0]) + len(line).to_bytes(4, "big") + line.encode()
            for kind, line in lines
        )
        return web.Response(body=framed)

    async def _pull(self, request):
        image = request.query["fromImage"]
        lines = [{"status": "Pulling from acme"}]
        if image in self.registry:
            self.images.add(image)
        else:
            lines.append({"error": f"manifest for {image} not found: manifest unknown"})
        return web.Response(text="\n".join(json.dumps(one) for one in lines) + "\n")

    async def _info(self, _):
        return web.json_response({"NCPU": 4, "MemTotal": 16 * 2**30})
