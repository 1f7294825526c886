"""Agendas as the ledger knows them, published by hand, beside parts that run."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
from deadlines import scaled, within
from parts_in_process import ending_in_order

from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.events.codec import decode_emitted
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaClaimed, AgendaSucceeded
from pop_stream.operations import provisioning
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.publisher import Record
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool

PATIENCE_S = 45
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class LedgerWorld:
    """What is published of agendas by hand, and what comes of it."""

    def __init__(self, settings, publisher, pool):
        self.settings = settings
        self.names = Topics(settings.topic_prefix)
        self.publisher = publisher
        self.pool = pool
        self.ledger = PostgresSummaryScan(pool)
        self.signer = RecordSigner(settings.signing_keys)

    async def tell(self, *lifecycle, signer=None):
        """Publish events, signed as ingest and the API would, or by another."""
        topic, signer = self.names.agenda_events, signer or self.signer
        records = await lifecycle_records(self.publisher, topic, lifecycle, signer=signer)
        await self.publisher.publish(records)

    async def submit(self, *ids):
        topic = self.names.submissions
        values = [json.dumps(agenda(one)).encode() for one in ids]
        await self.publisher.publish([Record(topic, None, one) for one in values])

    async def until_known(self, *ids, states=frozenset(State)):
        async with within(PATIENCE_S):
            while True:
                entries = await self.ledger.states(ids)
                if len(entries) == len(ids) and {e.state for e in entries.values()} <= states:
                    return
                await asyncio.sleep(0.05)

    async def emitted(self):
        topic = self.names.insight("media")
        return [decode_emitted(one.value) async for one in read_topic(self.settings, topic)]


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


def succeeded(agenda_id, attempt=1):
    return AgendaSucceeded(agenda_id=agenda_id, at=NOW, insight_id="media", attempt=attempt)


@asynccontextmanager
async def parts(settings, *runs):
    stop = asyncio.Event()
    async with ending_in_order(stop, *(run(settings, stop) for run in runs)):
        yield


LONGEST_SESSION = timedelta(seconds=80)
"""The scheduler takes no session that is longer than its requests may last."""


@asynccontextmanager
async def running_ledger_world(settings, folder, insight, kind=LedgerWorld):
    """Topics, a schema and one insight in force; no part runs yet."""
    known = settings.model_copy(
        update={
            "scheduler_data": folder / "table",
            "session_timeout": min(scaled(timedelta(seconds=6)), LONGEST_SESSION),
        }
    )
    await migrate(known.postgres_dsn.get_secret_value())
    await provisioning.ensure_topics(known)
    async with (
        connections.publisher(known, client_id="test") as publisher,
        open_pool(known) as pool,
    ):
        names = Topics(known.topic_prefix)
        await publish_definitions(publisher, names, [insight], Definitions())
        yield kind(known, publisher, pool)
