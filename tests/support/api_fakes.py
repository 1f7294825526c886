"""The API on in-memory ports, as its tests use it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from deadlines import within
from fakes import (
    FixedDefinitions,
    FixedQueryReplies,
    ManualClock,
    MemoryDeliveries,
    MemoryPublisher,
)
from memory_completions import MemoryCompletions
from memory_dead_letters import MemoryDeadLetters
from memory_definitions import MemoryDefinitions
from memory_keys import MemoryKeys
from memory_occurrences import MemoryOccurrences
from memory_pullers import MemoryPullers
from memory_signals import MemorySignals
from memory_summaries import MemorySummaries
from yarl import URL

from pop_stream.api.agendas.streams import StreamTiming
from pop_stream.api.app import ApiPorts, create_app
from pop_stream.api.http.access import RequestAuthenticator
from pop_stream.api.http.server import serve
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.base import OperationProgress
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.policy.ingress.policies import BUILT_IN, AdmissionPolicy
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.policy.ingress.rankers import RankFunction
from pop_stream.policy.lifecycle.states import AttemptStatus, State
from pop_stream.policy.lifecycle.summary import LinkSummary, Summary
from pop_stream.ports.occurrences import OccurrenceStore
from pop_stream.ports.stats import StatsQuery, StatsSum
from pop_stream.ports.summaries import AcceptedBody, LinkScope, ReusableIds
from pop_stream.settings import Settings

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)

QUICK = StreamTiming(
    tick=timedelta(milliseconds=5),
    heartbeat=timedelta(seconds=15),
    appears_within=timedelta(milliseconds=50),
    slow_after=timedelta(seconds=10),
)

AGENDA: Mapping[str, Any] = {
    "customer_id": "acme",
    "operations": [{"name": "fetch", "type": "http"}],
}


def agenda(**changes: Any) -> dict[str, Any]:
    """A sound agenda, with changes; a change to ... leaves the field out."""
    return {key: value for key, value in (AGENDA | changes).items() if value is not ...}


def summary(agenda_id: str = "a1", **changes: Any) -> Summary:
    """A running agenda of two operations."""
    body = agenda(
        id=agenda_id,
        operations=[{"name": "fetch", "type": "http"}, {"name": "store", "type": "sql"}],
    )
    known: dict[str, Any] = {
        "agenda_id": agenda_id,
        "state": State.RUNNING,
        "insight_id": "files",
        "customer_id": "acme",
        "body": json.dumps(body).encode(),
        "operation_names": ("fetch", "store"),
        "operations": {
            "fetch": OperationProgress(name="fetch", state="running", percent=50, started_at=AT)
        },
        "puller_id": "p1",
        "accepted_at": AT,
        "emitted_at": AT,
        "started_at": AT,
    }
    return Summary(**(known | changes))


class WatchedSummaries(MemorySummaries):
    """Notes what it is asked; `is_away` and `fault` make every question fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, ...]] = []
        self.is_away = False
        self.fault: Exception | None = None

    def put(self, one: Summary) -> None:
        self.agendas[one.agenda_id] = one
        self.versions[one.agenda_id] += 1

    async def agenda(self, agenda_id: str) -> Summary | None:
        self._ask("agenda", agenda_id)
        return await super().agenda(agenda_id)

    async def attempt_status(self, agenda_id: str) -> AttemptStatus | None:
        self._ask("attempt_status", agenda_id)
        return await super().attempt_status(agenda_id)

    async def agenda_owners(self, agenda_ids: Sequence[str]) -> Mapping[str, str]:
        self._ask("agenda_owners", *agenda_ids)
        return await super().agenda_owners(agenda_ids)

    async def accepted_bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, AcceptedBody]:
        self._ask("accepted_bodies", *agenda_ids)
        return await super().accepted_bodies(agenda_ids)

    async def reusable_ids(self, agenda_ids: Sequence[str]) -> ReusableIds:
        self._ask("reusable_ids", *agenda_ids)
        return await super().reusable_ids(agenda_ids)

    async def link(self, link: LinkScope) -> LinkSummary | None:
        self._ask("link", link.link_id)
        return await super().link(link)

    async def agenda_versions(self, agenda_ids: Sequence[str]) -> Mapping[str, int]:
        self._ask("agenda_versions", *agenda_ids)
        return await super().agenda_versions(agenda_ids)

    async def link_versions(self, links: Sequence[LinkScope]) -> Mapping[LinkScope, int]:
        self._ask("link_versions", *(link.link_id for link in links))
        return await super().link_versions(links)

    async def ping(self) -> None:
        self._ask("ping")
        await super().ping()

    def _ask(self, *question: str) -> None:
        self.asked.append(question)
        if self.fault is not None:
            raise self.fault
        if self.is_away:
            msg = "postgresql://pop:secret@db:5432 refused"
            raise UnavailableError(msg)


@dataclass
class ApiUnderTest:
    """An API that listens, and what stands behind it."""

    client: TestClient[Any, Any]
    publisher: MemoryPublisher
    summaries: WatchedSummaries
    definitions: FixedDefinitions
    questions: FixedQueryReplies
    store: MemoryDefinitions
    deliveries: MemoryDeliveries
    audit: MemoryKeys
    letters: MemoryDeadLetters
    pullers: MemoryPullers
    occurrences: OccurrenceStore

    async def submit(self, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        """Post as JSON, or as it is if it is bytes already."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        async with self.client.post("/v1/agendas", data=data, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Post as JSON, or nothing at all."""
        async with self.client.post(path, json=body) as response:
            return response.status, await response.json(content_type=None)

    async def delete(self, path: str) -> tuple[int, Any]:
        async with self.client.delete(path) as response:
            return response.status, await response.json(content_type=None)

    async def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Any request; status, JSON if there is any, and headers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(method, path, json=body, headers=named) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None, response.headers

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.client.get(path, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    @property
    def published(self) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"") for record in self.publisher.records]


class NoStats:
    """Nothing was counted yet; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[StatsQuery] = []

    async def sums(self, query: StatsQuery) -> Sequence[StatsSum]:
        self.asked.append(query)
        return ()


def definitions() -> Definitions:
    files = Insight(id="files", mappers=Mappers(operation_types=("http", "sql")))
    return Definitions(
        customers={CustomerId("acme"): Customer(id="acme", weight=2)},
        insights={InsightId("files"): files},
    )


def ports() -> ApiPorts:
    numbers, known = count(1), definitions()
    summaries = WatchedSummaries()
    keys = MemoryKeys()
    deliveries = MemoryDeliveries()
    return ApiPorts(
        publisher=MemoryPublisher(),
        summaries=summaries,
        agendas=summaries,
        definitions=FixedDefinitions(known),
        definition_store=MemoryDefinitions(*known.all()),
        questions=FixedQueryReplies(),
        keys=keys,
        audit=keys,
        stats=NoStats(),
        deliveries=deliveries,
        dead_letters=MemoryDeadLetters(),
        pullers=MemoryPullers(),
        signals=MemorySignals(),
        completions=MemoryCompletions(),
        occurrences=MemoryOccurrences(summaries.agendas),
        clock=ManualClock(),
        new_id=lambda _: f"made-{next(numbers)}",
    )


@asynccontextmanager
async def open_api(
    *,
    timing: StreamTiming = QUICK,
    quota_ledger: QuotaLedger | None = None,
    authenticator: RequestAuthenticator | None = None,
    policies: Sequence[AdmissionPolicy] = BUILT_IN,
    rankers: Mapping[str, RankFunction] | None = None,
    **settings: Any,
) -> AsyncIterator[ApiUnderTest]:
    behind = replace(ports(), quota_ledger=quota_ledger, policies=policies)
    behind = replace(behind, rankers=rankers or {})
    if authenticator is not None:
        behind = replace(behind, authenticator=authenticator)
    app = create_app(behind, Settings(**settings), timing=timing)
    async with TestClient(TestServer(app)) as client:
        yield ApiUnderTest(
            client,
            behind.publisher,
            behind.summaries,
            behind.definitions,
            behind.questions,
            behind.definition_store,
            behind.deliveries,
            behind.audit,
            behind.dead_letters,
            behind.pullers,
            behind.occurrences,
        )


class Serving:
    """The API behind a listener of its own, as a process has it."""

    def __init__(self) -> None:
        self.behind = ports()
        self.stop = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, **settings: Any) -> None:
        chosen = Settings(http_port=0, **settings)
        app = create_app(self.behind, chosen, timing=QUICK)
        await serve(app, chosen, self.stop, on_url=self.url.set_result)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = URL(self.url.result())
        reader, writer = await asyncio.open_connection(url.host, url.port)
        self.writers.append(writer)
        return reader, writer

    async def disconnect(self) -> None:
        for writer in self.writers:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Serving]:
    """A listener for the block."""
    one = Serving()
    async with within(20), asyncio.TaskGroup() as group:
        group.create_task(one.run(**settings))
        await one.url
        try:
            yield one
        finally:
            await one.disconnect()
            one.stop.set()
