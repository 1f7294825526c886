"""The whole system in the test's process, with a puller of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from deadlines import within
from parts_in_process import all_but_pullers
from puller_world import serving

from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.operations import provisioning
from pop_stream.puller import Handlers, Puller
from pop_stream.settings import Settings

PATIENCE_S = 60
LOOK_S = 0.05


class OneProcess:
    """Its API, as a test calls it."""

    def __init__(self, settings: Settings, url: str, session: aiohttp.ClientSession) -> None:
        self.settings = settings
        self.url = url
        self.session = session

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        async with self.session.request(method, f"{self.url}{path}", **options) as response:
            return response.status, await response.json(content_type=None)

    async def post(self, path: str, body: Any, *, status: int = 202) -> Any:
        found, answer = await self.call("POST", path, json=body)
        assert found == status, answer
        return answer

    async def get(self, path: str) -> Any:
        """The JSON of an answer; None unless it is there."""
        status, answer = await self.call("GET", path)
        return answer if status == 200 else None

    async def until(self, path: str, is_met: Callable[[Any], Any]) -> Any:
        """The answer once the condition is met."""
        async with within(PATIENCE_S):
            while True:
                answer = await self.get(path)
                if answer is not None and is_met(answer):
                    return answer
                await asyncio.sleep(LOOK_S)

    async def submit(self, agenda_id: str, *operations: Any, **fields: Any) -> None:
        body = {"id": agenda_id, "customer_id": "acme", "operations": operations, **fields}
        await self.post("/v1/agendas", [body])

    async def state(self, agenda_id: str, *states: str) -> Any:
        """The agenda's summary once it is in one of the states."""
        path = f"/v1/agendas/{agenda_id}"
        return await self.until(path, lambda one: one["state"] in states)

    async def operations(self, agenda_id: str) -> Any:
        """How far each operation is, by name."""
        progress = await self.get(f"/v1/agendas/{agenda_id}/progress")
        return {one["name"]: one for one in progress["operations"]}


@asynccontextmanager
async def one_process(
    settings: Settings,
    folder: Any,
    definitions: Sequence[Any],
    handlers: Handlers | None = None,
    *,
    concurrency: int = 4,
    within_s: float = PATIENCE_S,
) -> AsyncIterator[OneProcess]:
    """One of every part, and a puller of the insight `media` if there are handlers."""
    known = settings.model_copy(update={"scheduler_data": folder / "scheduler"})
    await provisioning.migrate(known)
    async with connections.publisher(known, client_id="test") as publisher:
        topics = Topics(known.topic_prefix)
        await publish_definitions(publisher, topics, [*definitions], Definitions())
    async with (
        all_but_pullers(known, within_s=within_s) as url,
        aiohttp.ClientSession() as session,
    ):
        system = OneProcess(known, url, session)
        if handlers is None:
            yield system
            return
        at_url = known.model_copy(update={"api_url": url})
        puller = Puller("media", handlers=handlers, settings=at_url, concurrency=concurrency)
        async with serving(puller):
            yield system
