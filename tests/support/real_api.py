"""The API in this process, on a real Kafka and a real Postgres, with definitions in force."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from aiohttp import web
from fakes import MemoryDeliveries
from msgspec import Raw

from pop_stream.api.agendas.streams import StreamTiming
from pop_stream.api.app import create_app
from pop_stream.api.http.server import serve
from pop_stream.auth.keys import make_key
from pop_stream.client import Client
from pop_stream.clock import WallClock
from pop_stream.composition.api import open_ports
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.base import DedupeRule
from pop_stream.model.events.forecast import QueueForecast
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaClaimed, AgendaSucceeded
from pop_stream.model.events.scheduling import QueueDescribed
from pop_stream.model.identity import ALL_ROLES, ANYONE
from pop_stream.model.revisions import Author
from pop_stream.operations import provisioning
from pop_stream.postgres.keys import PostgresKeys
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

# A look at a database that many others use takes its time.
QUICK = StreamTiming(
    tick=timedelta(milliseconds=10), appears_within=timedelta(milliseconds=500)
)


DEFINITIONS = """
[customers.acme]
[insights.files]
mappers = { operation_types = ["http"] }
"""
AGENDA = {"customer_id": "acme", "operations": [{"name": "fetch", "type": "http"}]}


class IdleScheduler:
    """Says of every insight that nothing waits in it."""

    async def ask(
        self,
        insight_id: str,
        agenda_id: str = "",
        agenda_ids: Sequence[str] = (),
        tracked_after: int | None = None,
        weights: Mapping[str, float] | None = None,
        dedupe: Sequence[DedupeRule] = (),
    ) -> QueueDescribed:
        return QueueDescribed(
            insight_id=insight_id,
            query_id="q",
            at=WallClock().now(),
            algorithm="weighted_fair",
            ready=0,
            lag=0,
            in_flight=0,
            slots=4,
            target=4,
            rate_per_s=0.0,
            customers=(),
            forecast=QueueForecast(rate_per_s=0.0, horizon_s=0.0, customers=())
            if weights
            else None,
        )


@dataclass
class RealApi:
    """Where it listens, and what is behind it.

    Attributes:
        token: Of an operator with every role.
        store: Folds what no rollup is there to fold.
        deliveries: Has the agendas that are pulled.
        answered: Method and path, as the document has it, of every request so far.
    """

    url: str
    token: str
    settings: Settings
    store: PostgresSummaries
    deliveries: MemoryDeliveries
    answered: list[tuple[str, str]]
    folded: int = 0

    async def fold(self, *lifecycle) -> None:
        """Let the summaries follow some events."""
        start, self.folded = self.folded, self.folded + 1
        topic = Topics(self.settings.topic_prefix).agenda_events
        await self.store.fold(topic, {0: (start, self.folded)}, lifecycle)


@asynccontextmanager
async def real_api(settings: Settings) -> AsyncIterator[RealApi]:
    """An API that asks who calls, over topics and a schema that are made here."""
    settings = settings.model_copy(update={"auth": "required"})
    await provisioning.migrate(settings)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        pool, deliveries = await enter(open_pool(settings)), MemoryDeliveries()
        ports = replace(
            await enter(open_ports(settings)), questions=IdleScheduler(), deliveries=deliveries
        )
        url, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        tasks = await enter(asyncio.TaskGroup())
        app = create_app(ports, settings, timing=QUICK)
        answered: list[tuple[str, str]] = []

        async def note(request: web.Request, _: web.StreamResponse) -> None:
            route = request.match_info.route.resource
            answered.append((request.method, route.canonical if route else request.path))

        app.on_response_prepare.append(note)
        tasks.create_task(serve(app, settings, stop, on_url=url.set_result))
        stack.callback(stop.set)
        token = await _operators_token(pool)
        yield RealApi(await url, token, settings, PostgresSummaries(pool), deliveries, answered)


async def _operators_token(pool: "Pool") -> str:
    key, token = make_key(
        customer_id=None, roles=ALL_ROLES, now=WallClock().now(), created_by="test"
    )
    await PostgresKeys(pool).create(key, Author(principal=ANYONE, request_id="test"))
    return token


async def fill(api: RealApi) -> None:
    """Something to find of every kind: an agenda that runs, one that has ended, a template."""
    async with Client(api.url, token=api.token) as client:
        at = await _now(client)
        await client.templates.create({"id": "scan", "agenda": AGENDA})
        await client.pools.create({"id": "shared", "max_in_flight": 3})
        await client.schedules.create(
            {"id": "daily", "trigger": {"cron": "@daily"}, "submission": AGENDA}
        )
        await client.rules.create({"id": "listens", "topic": "files", "submission": AGENDA})
        await client.keys.create(["read"], customer_id="acme")
    for agenda_id in ("runs", "ended"):
        facts = {"agenda_id": agenda_id, "at": at, "insight_id": "files"}
        body = Raw(json.dumps({"id": agenda_id, **AGENDA}).encode())
        attempt = {**facts, "attempt": 1}
        await api.fold(
            AgendaAccepted(
                **facts, customer_id="acme", link_id="l1", operations=("fetch",), agenda=body
            ),
            AgendaClaimed(**attempt, puller_id="w1", lease_ms=60_000),
            *([AgendaSucceeded(**attempt)] if agenda_id == "ended" else []),
        )


async def _now(client: Client) -> datetime:
    return (await client.customers.get("acme")).created_at
