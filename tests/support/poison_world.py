"""Every part but the API in one process, for tests of records that others wrote."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deadlines import within
from parts_in_process import ending_in_order

from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka.definitions import DEFINITION_VERSION_HEADER
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.policy.ingress.signature import (
    ADMITTED_HEADER,
    AUTHORIZATION_HEADER,
    DEFINITIONS_VERSION_HEADER,
    RECORD_SIGNATURE_HEADER,
)
from pop_stream.policy.lifecycle.states import OUTCOMES, State
from pop_stream.ports.publisher import Record
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.puller import Handlers, Puller

PATIENCE_S = 100
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), partitions=2)
GARBAGE = (b"\xff\xfe{", b"", b"[" * 5_000, b'{"type": "nothing.known"}', b"7", b"null")
NO_VALUES = tuple(
    (name, None)
    for name in (
        DEFINITION_VERSION_HEADER,
        RECORD_SIGNATURE_HEADER,
        AUTHORIZATION_HEADER,
        ADMITTED_HEADER[0],
        DEFINITIONS_VERSION_HEADER,
        "traceparent",
    )
)
"""Headers as any client may write them, of the names that are read."""

KEYS = (b"3/media/page/0", b"insight/media")
handlers = Handlers()
ran = []


@handlers.handler("noop")
async def noop(call):
    """Note whose it is."""
    ran.append(call.agenda_id)


class PoisonWorld:
    def __init__(self, settings, publisher, pool):
        self.settings = settings
        self.names = Topics(settings.topic_prefix)
        self.publisher = publisher
        self.ledger = PostgresSummaryScan(pool)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Every part but the API, in this process; each must end in order."""
        stop = asyncio.Event()
        puller = Puller("media", handlers=handlers, settings=self.settings)
        parts = (run(self.settings, stop) for run in (run_ingest, run_scheduler, run_rollup))
        async with ending_in_order(stop, *parts, puller.serve(stop)):
            yield

    async def submit(self, *documents):
        values = [json.dumps(one).encode() for one in documents]
        await self.publisher.publish(
            [Record(self.names.submissions, None, one) for one in values]
        )

    async def ended(self, *ids):
        async with within(PATIENCE_S):
            while True:
                entries = await self.ledger.states(ids)
                if len(entries) == len(ids) and {e.state for e in entries.values()} <= OUTCOMES:
                    assert {e.state for e in entries.values()} == {State.SUCCEEDED}
                    return
                await asyncio.sleep(0.05)

    async def held(self, *ids):
        async with within(PATIENCE_S):
            while True:
                entries = await self.ledger.states(ids)
                if [e.state for e in entries.values()] == [State.HELD] * len(ids):
                    return
                await asyncio.sleep(0.05)

    async def poison(self, topic, *values):
        partitions = await self.publisher.partitions(topic)
        await self.publisher.publish(
            [
                Record(topic, key, value, partition, headers=NO_VALUES)
                for partition in range(partitions)
                for key in KEYS
                for value in values
            ]
        )

    async def until_dead_lettered(self, wanted):
        """Wait for so many letters, by topic and partition of what they are of."""
        async with within(PATIENCE_S):
            while True:
                found = Counter(
                    (one["topic"], one["partition"]) for one in await self.read_dead_letters()
                )
                if all(found[place] >= count for place, count in wanted.items()):
                    return
                await asyncio.sleep(0.2)

    async def read_dead_letters(self):
        """The letters that parts wrote, without what a test has put among them."""
        topic = self.names.dead_letters
        values = [one.value async for one in read_topic(self.settings, topic)]
        return [json.loads(one) for one in values if one not in GARBAGE]


def agenda(agenda_id, **changes):
    operation = {"name": "only", "type": "noop"}
    return {"id": agenda_id, "customer_id": "anna", "operations": [operation], **changes}
