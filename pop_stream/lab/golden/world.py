"""The running system of a golden run, seen from outside, and the server that it calls.

`GoldenWorld` submits, commands, pulls and reports over HTTP and Kafka, keeps the answers, and
waits for what the next step needs. `GoldenPeer` is called by operations and webhooks.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiohttp import web
from aiokafka import AIOKafkaProducer

Json = Any
"""Whatever JSON can say."""

ME: Final = {"puller_id": "golden-worker"}
WITHIN_S: Final = 120.0
POLL_S: Final = 0.1


def operation(name: str, kind: str = "noop", payload: Json = None, **more: Json) -> Json:
    """One operation of an agenda."""
    return {"name": name, "type": kind, "payload": payload, **more}


async def until(what: str, seen: Callable[[], Awaitable[object]]) -> None:
    """Poll until it is so.

    Raises:
        TimeoutError: If it never is; names what was waited for.
    """
    try:
        async with asyncio.timeout(WITHIN_S):
            while not await seen():  # noqa: ASYNC110  # it is in other processes
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        msg = f"waited {WITHIN_S:g} s for {what}"
        raise TimeoutError(msg) from None


class GoldenPeer:
    """The HTTP server that operations and webhooks call: it fails and waits as configured.

    Attributes:
        url: Where it listens.
    """

    def __init__(self) -> None:
        self.url = ""
        self.called: set[str] = set()
        self.failures = {"/once": 1, "/never": 1_000_000}
        self.opened = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, handle_signals=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            self.opened.set()
            await runner.cleanup()

    def operation(self, name: str, path: str, **more: Json) -> Json:
        """One that calls this server."""
        return operation(name, "http", {"url": self.url + path, **more})

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        self.called.add(path)
        if path.startswith("/gate"):
            await self.opened.wait()
        status = 410 if path == "/gone" else 200
        if self.failures.get(path, 0):
            self.failures[path] -= 1
            status = 503
        headers = {"Server": "golden", "Date": "Thu, 01 Jan 1970 00:00:00 GMT"}
        return web.json_response({"path": path}, status=status, headers=headers)


class GoldenWorld:
    """The running system: does the work on it and reads what came of that.

    Attributes:
        answers: Of every step that is part of the golden file, by its name.
        agendas: Ids of all that was submitted.
    """

    def __init__(
        self, http: aiohttp.ClientSession, producer: AIOKafkaProducer, submissions: str
    ) -> None:
        self.http, self.producer, self.submissions = http, producer, submissions
        self.peer = GoldenPeer()
        self.answers: dict[str, Json] = {}
        self.agendas: set[str] = set()
        self._tokens: dict[tuple[str, int], str] = {}

    async def call(self, step: str, method: str, path: str, body: Json = None) -> Json:
        """One request; its answer, the last if there are several, is noted under the step."""
        headers = {"X-Correlation-Id": f"golden-{step}"}
        async with self.http.request(
            method, f"/v1/{path}", json=body, headers=headers
        ) as answer:
            found = await answer.json(content_type=None)
            self.answers[step] = {"status": answer.status, "body": found}
            return found

    async def submit(self, step: str, *agendas: Json) -> None:
        """Over HTTP; a lone one by itself, several as a list."""
        self.agendas |= {one["id"] for one in agendas}
        await self.post(step, "agendas", agendas[0] if len(agendas) == 1 else agendas)

    async def write(self, value: bytes | Json, key: str | None = None, **more: Json) -> None:
        """Over Kafka."""
        encoded = value if isinstance(value, bytes) else json.dumps(value).encode()
        await self.producer.send_and_wait(
            self.submissions, encoded, key=key.encode() if key else None, **more
        )

    async def post(self, step: str, path: str, body: Json = None) -> Json:
        """One request that wants something."""
        return await self.call(step, "POST", path, {} if body is None else body)

    async def pull(self, step: str, insight: str) -> Json:
        """Pull until an agenda came; notes the answer that brought it."""
        found: list[Json] = []

        async def came() -> bool:
            answer = await self.post(step, f"insights/{insight}/pull", {**ME, "wait_s": 20})
            found.extend(answer["agendas"])
            return bool(found)

        await until(f"an agenda of {insight}", came)
        one = found[0]
        self._tokens[one["agenda_id"], one["attempt"]] = one["lease_token"]
        return one

    async def report(
        self, step: str, agenda_id: str, attempt: int, *, kind: str, body: Json = None
    ) -> Json:
        """What the worker says of an attempt that it pulled: `heartbeat`, for one."""
        lease = ME | {"lease_token": self._tokens[agenda_id, attempt]}
        path = f"agendas/{agenda_id}/attempts/{attempt}/{kind}"
        return await self.post(step, path, lease | (body or {}))

    async def submit_within_quota(self, step: str, one: Json) -> None:
        """As `submit`; an agenda may be counted twice on its way, so a 429 is tried again."""

        async def is_accepted() -> bool:
            await self.submit(step, one)
            return bool(self.answers[step]["status"] != HTTPStatus.TOO_MANY_REQUESTS)

        await until(f"{one['id']} to be accepted", is_accepted)

    async def get(self, path: str) -> Json:
        """What is answered, unless it is an error."""
        async with self.http.get(f"/v1/{path}") as answer:
            return await answer.json() if answer.ok else None

    async def until_state(self, states: str | frozenset[str], *ids: str) -> None:
        """Until all these agendas are in one of the states."""
        wanted = {states} if isinstance(states, str) else states
        for one in ids:

            async def is_there(agenda_id: str = one) -> bool:
                found = await self.get(f"agendas/{agenda_id}")
                return found is not None and found["state"] in wanted

            await until(f"{one} to be {states}", is_there)

    async def until_running(self, agenda_id: str, attempt: int) -> None:
        """Until the summary says that this attempt runs."""

        async def is_running() -> bool:
            found = await self.get(f"agendas/{agenda_id}")
            return found is not None and (found["state"], found["attempt"]) == (
                "running",
                attempt,
            )

        await until(f"attempt {attempt} of {agenda_id} to run", is_running)

    async def until_called(self, *paths: str) -> None:
        """Until somebody called all these paths of the peer."""

        async def is_called() -> bool:
            return self.peer.called.issuperset(paths)

        await until(f"calls of {paths}", is_called)

    async def until_idle(self, insight: str) -> None:
        """Until the scheduler has nothing of an insight any more."""

        async def is_idle() -> bool:
            found = await self.get(f"insights/{insight}/queue")
            names = ("ready", "lag", "in_flight")
            return found is not None and not any(found[name] for name in names)

        await until(f"insight {insight} to be idle", is_idle)
