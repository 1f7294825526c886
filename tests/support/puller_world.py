"""One insight's topic as the scheduler writes it, and the lifecycle as others read it."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer
from deadlines import within

from pop_stream.clock import WallClock
from pop_stream.kafka import clients, share_consumer, topics
from pop_stream.kafka.publisher import KafkaPublisher
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle, encode
from pop_stream.model.events.lifecycle import AgendaFailed, AgendaSucceeded
from pop_stream.model.events.scheduling import AttemptStop, EmittedAgenda
from pop_stream.ports.publisher import Record

WITHIN_S = 30
_MEMBERS = 5  # among the fields of a described group


def agenda(agenda_id, *operations, attempt=1, lease_ms=60_000, insight="media", **more):
    at = WallClock().now()
    body = {
        "id": agenda_id,
        "customer_id": "acme",
        "operations": operations or [{"name": "only", "type": "noop"}],
    }
    return EmittedAgenda(
        agenda_id=agenda_id,
        insight_id=insight,
        customer_id="acme",
        attempt=attempt,
        accepted_at=at,
        emitted_at=at,
        lease_ms=lease_ms,
        **more,
        agenda=msgspec.Raw(json.dumps(body).encode()),
    )


def work(name="a", kind="work", **more):
    return {"name": name, "type": kind, **more}


class PullerWorld:
    """One insight's topic as the scheduler writes it, and the lifecycle as others read it."""

    def __init__(self, settings, admin, publisher, consumer):
        self.settings = settings
        self.topics = Topics(settings.topic_prefix)
        self.events = []
        self.admin = admin
        self._publisher = publisher
        self._consumer = consumer

    async def create(self, insight="media", partitions=1, group_type="consumer"):
        if group_type == "share":
            group = self.topics.puller_group(insight, group_type)
            await share_consumer.start_at_earliest(self.admin, group)
        spec = topics.insight_spec(self.topics, insight, partitions, group_type)
        await topics.ensure(self.admin, [spec], replication_factor=1)

    async def emit(self, *agendas, insight="media", group_type="consumer"):
        topic, own_batch = self.topics.insight(insight, group_type), group_type == "share"
        await self._publisher.publish(
            [
                Record(topic, b"none", one, own_batch=own_batch)
                if isinstance(one, bytes)
                else Record(topic, one.agenda_id.encode(), encode(one), own_batch=own_batch)
                for one in agendas
            ]
        )

    async def stop(self, agenda_id, attempt=1, reason="cancelled"):
        stop = AttemptStop(
            agenda_id=agenda_id, insight_id="media", attempt=attempt, reason=reason
        )
        await self._publisher.publish(
            [Record(self.topics.controls, agenda_id.encode(), encode(stop))]
        )

    async def read(self):
        """Take in what is on the topic of the lifecycle now or soon."""
        for records in (await self._consumer.getmany(timeout_ms=200)).values():
            for record in records:
                self.events.extend(decode_lifecycle(record.value))

    async def until(self, is_enough):
        async with within(WITHIN_S):
            while not is_enough():
                await self.read()

    async def until_ended(self, count):
        await self.until(lambda: len(self.of(AgendaSucceeded, AgendaFailed)) >= count)

    def of(self, *kinds):
        return [event for event in self.events if isinstance(event, kinds)]

    def ids(self, *kinds):
        return [event.agenda_id for event in self.of(*kinds)]

    async def committed(self, insight="media"):
        group = self.topics.puller_group(insight)
        offsets = await self.admin.list_consumer_group_offsets(group)
        return sum(one.offset for one in offsets.values())

    async def members(self, insight="media"):
        (response,) = await self.admin.describe_consumer_groups(
            [self.topics.puller_group(insight)]
        )
        (group,) = response.groups
        return len(group[_MEMBERS])

    async def dead_letters(self):
        consumer = clients.consumer(
            self.settings, self.topics.dead_letters, client_id="letters", group_id=None
        )
        async with consumer, within(WITHIN_S):
            while not (fetched := await consumer.getmany(timeout_ms=200)):
                pass
        return [json.loads(record.value) for records in fetched.values() for record in records]


@asynccontextmanager
async def open_world(settings, *more):
    """A world with the topics of the lifecycle and of dead letters, and more if named."""
    names = Topics(settings.topic_prefix)
    admin = clients.admin(settings, client_id="test")
    await admin.start()
    needed = {names.agenda_events, names.dead_letters, *more}
    specs = [spec for spec in topics.catalog(names) if spec.name in needed]
    await topics.ensure(admin, specs, replication_factor=1)
    producer = clients.producer(settings, client_id="test")
    consumer = clients.consumer(settings, names.agenda_events, client_id="test", group_id=None)
    publisher = KafkaPublisher(producer, acknowledge_timeout=timedelta(seconds=20))
    async with publisher, consumer:
        yield PullerWorld(settings, admin, publisher, consumer)
    await admin.close()


@asynccontextmanager
async def serving(puller):
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(puller.serve(stop))
        try:
            yield stop
        finally:
            stop.set()


class ApiWithProgress:
    """The one path that pullers ask, with answers set by hand."""

    def __init__(self):
        self.answers = []
        self.asked = []
        self._app = web.Application()
        self._app.router.add_get("/v1/agendas/{id}/progress", self._get)

    async def _get(self, request):
        self.asked.append((request.match_info["id"], request.headers.get("Authorization")))
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.json_response(body, status=status)

    def server(self):
        return TestServer(self._app)


def progress(attempt, **states):
    operations = [{"name": name, **known} for name, known in states.items()]
    return {"attempt": attempt, "state": "running", "operations": operations, "appended": []}


@asynccontextmanager
async def with_api(settings, *answers):
    """Settings of pullers that find an API with these answers, and that API."""
    api = ApiWithProgress()
    api.answers = [*answers]
    async with api.server() as server:
        yield settings.model_copy(update={"api_url": str(server.make_url("/"))}), api
