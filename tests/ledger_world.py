"""Agendas as the ledger knows them, told by hand, beside parts that run."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from pop_stream.bus.publisher import lifecycle_records
from pop_stream.bus.topics import Topics
from pop_stream.bus.whole import read_whole
from pop_stream.core.events import AgendaAccepted, AgendaClaimed, decode_emitted
from pop_stream.core.lifecycle import State
from pop_stream.ports.wire import Record
from pop_stream.store.ledger import PostgresLedger

PATIENCE_S = 45
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Told:
    """What is told of agendas by hand, and what comes of it."""

    def __init__(self, settings, publisher, pool):
        self.settings = settings
        self.names = Topics(settings.topic_prefix)
        self.publisher = publisher
        self.ledger = PostgresLedger(pool)

    async def tell(self, *lifecycle):
        topic = self.names.agenda_events
        await self.publisher.publish(await lifecycle_records(self.publisher, topic, lifecycle))

    async def submit(self, *ids):
        topic = self.names.submissions
        values = [json.dumps(agenda(one)).encode() for one in ids]
        await self.publisher.publish([Record(topic, None, one) for one in values])

    async def until_known(self, *ids, states=frozenset(State)):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                entries = await self.ledger.entries(ids)
                if len(entries) == len(ids) and {e.state for e in entries.values()} <= states:
                    return
                await asyncio.sleep(0.05)

    async def emitted(self):
        topic = self.names.insight("media")
        return [decode_emitted(one.value) async for one in read_whole(self.settings, topic)]


def agenda(agenda_id):
    operation = {"name": "only", "type": "noop"}
    return {"id": agenda_id, "customer_id": "anna", "operations": [operation]}


def accepted(agenda_id, at=NOW):
    body = msgspec.Raw(json.dumps(agenda(agenda_id)).encode())
    return AgendaAccepted(
        agenda_id=agenda_id, at=at, insight_id="media", customer_id="anna", agenda=body
    )


def claimed(agenda_id, attempt=1):
    return AgendaClaimed(
        agenda_id=agenda_id, at=NOW, insight_id="media", attempt=attempt, puller_id="gone",
        lease_ms=1000,
    )  # fmt: skip


@asynccontextmanager
async def parts(settings, *runs):
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for run in runs:
            tasks.create_task(run(settings, stop))
        try:
            yield
        finally:
            stop.set()
