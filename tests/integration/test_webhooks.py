"""Callbacks from the fold to a receiver: real Postgres, real sockets, a real Kafka."""

import asyncio
import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from socket import AF_INET

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from deadlines import within
from msgspec import Raw
from msgspec.structs import replace
from pydantic import SecretStr

from pop_stream import ssrf_guard
from pop_stream.clock import WallClock
from pop_stream.kafka import connections
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaExhausted,
    AgendaRestarted,
    AgendaSucceeded,
)
from pop_stream.operations import provisioning
from pop_stream.policy.lifecycle.webhooks import webhook_secret
from pop_stream.postgres.agendas import PostgresAgendas
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.postgres.summary_reader import PostgresSummaryReader
from pop_stream.postgres.webhooks import MAX_IN_FLIGHT_PER_CUSTOMER, PostgresWebhooks
from pop_stream.webhooks.sender import WebhookSender

KEY = "an operator's key"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOOPBACK = ("127.0.0.0/8",)


class Receiver:
    """A customer's server: keeps what it is sent, and answers as the test wants."""

    def __init__(self, *, host="127.0.0.1", port=None):
        self._place = {"host": host, "port": port}
        self.received = []
        self.answers = []
        self.hangs_up = False
        self._server = None
        self._more = asyncio.Event()

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/{tail:.*}", self._on_record)
        self._server = TestServer(app, **self._place)
        await self._server.start_server()
        return self

    async def __aexit__(self, *_):
        await self._server.close()

    @property
    def url(self):
        return str(self._server.make_url("/hook?x=1"))

    @property
    def port(self):
        return self._server.port

    async def has_received(self, count):
        while len(self.received) < count:
            self._more.clear()
            await self._more.wait()

    async def _on_record(self, request):
        self.received.append((dict(request.headers), await request.read()))
        self._more.set()
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, str):
            raise web.HTTPFound(answer)
        response = web.Response(status=answer)
        if self.hangs_up:
            response.force_close()
        return response


@asynccontextmanager
async def silent_server():
    """The address of one that takes connections and never answers."""

    async def hold(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


class World:
    def __init__(self, settings, pool):
        self.settings = settings
        self.pool = pool
        self.outbox = PostgresWebhooks(pool)
        self._offset = 0

    async def tell(self, *lifecycle):
        before, self._offset = self._offset, self._offset + len(lifecycle)
        spans = {0: (before, self._offset)}
        await PostgresSummaries(self.pool).fold("events", spans, lifecycle)

    @asynccontextmanager
    async def sender(self, **changes):
        known = {"webhook_keys": (SecretStr(KEY),), "webhook_networks": LOOPBACK, **changes}
        settings = self.settings.model_copy(update=known)
        async with (
            connections.publisher(settings, client_id="test") as publisher,
            WebhookSender(settings, self.outbox, publisher, WallClock()) as sender,
        ):
            yield sender

    async def make_due(self):
        await self.pool.execute("update webhooks set due_at = now()")


@pytest_asyncio.fixture
async def world(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield World(settings, pool)


@pytest_asyncio.fixture
async def receiver():
    async with Receiver() as receiver:
        yield receiver


async def turn(sender):
    """Try what is due, once each; how many that were."""
    begun = await sender.start_due()
    await sender.wait_until_idle()
    return begun


def ending(url, agenda_id="a-1", attempt=1, customer_id="anna"):
    common = {"agenda_id": agenda_id, "at": NOW, "insight_id": "media"}
    return (
        AgendaAccepted(**common, customer_id=customer_id, agenda=Raw(b"{}"), callback_url=url),
        AgendaSucceeded(**common, attempt=attempt),
    )


async def test_what_became_of_each_report_is_known_as_long_as_its_agenda(world, receiver):
    reader = PostgresSummaryReader(world.pool)

    async def known():
        return [
            (one.webhook_id, one.state, one.tries, one.reason, one.due_at is None)
            for one in await reader.callbacks("a-1", limit=10)
        ]

    receiver.answers = [503, 204]
    await world.tell(*ending(receiver.url))
    async with world.sender() as sender:
        assert await known() == [("a-1/1", "waiting", 0, "", False)]
        await turn(sender)
        assert await known() == [("a-1/1", "waiting", 1, "answered with 503", False)]
        await world.make_due()
        await turn(sender)
        assert await known() == [("a-1/1", "delivered", 2, "", True)]
        restarted = AgendaRestarted(
            agenda_id="a-1", at=NOW, insight_id="media", attempt=2, routed=Raw(b"{}")
        )
        await world.tell(restarted, *ending(receiver.url, attempt=2)[1:])
    [due] = await world.outbox.claim(9, {})
    await world.outbox.mark_exhausted(due.number, "answered with 410")
    assert await known() == [
        ("a-1/2", "exhausted", 1, "answered with 410", True),
        ("a-1/1", "delivered", 2, "", True),
    ]
    assert (
        await reader.callbacks("a-1", limit=1) == (await reader.callbacks("a-1", limit=9))[:1]
    )
    assert await PostgresAgendas(world.pool).delete(["a-1"]) == ["a-1"]
    assert [state for _, state, *_ in await known()] == ["exhausted"]  # a person's to settle


async def test_an_end_is_sent_once_signed_and_then_removed(world, receiver):
    await world.tell(*ending(receiver.url))
    async with world.sender() as sender:
        assert await turn(sender) == 1
        assert await turn(sender) == 0
    [(headers, body)] = receiver.received
    got = json.loads(body)
    assert got["type"] == "agenda.ended"
    assert (got["agenda_id"], got["state"], got["attempt"]) == ("a-1", "succeeded", 1)
    assert headers["Pop-Callback-Id"] == got["id"] == "a-1/1"
    seconds, mark = (one.partition("=")[2] for one in headers["Pop-Signature"].split(","))
    secret = webhook_secret("anna", KEY.encode())
    signed = hmac.new(secret.encode(), seconds.encode() + b"." + body, hashlib.sha256)
    assert mark == signed.hexdigest()
    assert (await world.outbox.backlog()).waiting == 0


async def test_an_end_is_sent_as_a_cloud_event_whose_signature_covers_all_of_it(
    world, receiver
):
    accepted, succeeded = ending(receiver.url)
    await world.tell(replace(accepted, callback_format="cloudevents"))
    await world.tell(succeeded)
    async with world.sender() as sender:
        assert await turn(sender) == 1
    [(headers, body)] = receiver.received
    assert headers["Content-Type"] == "application/cloudevents+json"
    got = json.loads(body)
    assert (got["specversion"], got["id"], got["subject"]) == ("1.0", "a-1/1", "a-1")
    assert (got["source"], got["type"]) == ("/v1/agendas", "pop_stream.agenda.ended")
    assert (got["time"], got["data"]["state"]) == (got["data"]["ended_at"], "succeeded")
    seconds, mark = (one.partition("=")[2] for one in headers["Pop-Signature"].split(","))
    secret = webhook_secret("anna", KEY.encode())
    signed = hmac.new(secret.encode(), seconds.encode() + b"." + body, hashlib.sha256)
    assert mark == signed.hexdigest()


async def test_an_end_folded_twice_is_owed_once(world, receiver):
    accepted, succeeded = ending(receiver.url)
    await world.tell(accepted, succeeded)
    await world.tell(succeeded, accepted)
    assert (await world.outbox.backlog()).waiting == 1


async def test_what_is_not_received_is_sent_again_later_under_the_same_id(world, receiver):
    receiver.answers = [500, 302]
    await world.tell(*ending(receiver.url))
    async with world.sender() as sender:
        for _ in range(3):
            assert await turn(sender) == 1
            assert await turn(sender) == 0  # not due yet
            await world.make_due()
    assert [headers["Pop-Callback-Id"] for headers, _ in receiver.received] == ["a-1/1"] * 3
    assert (await world.outbox.backlog()).waiting == 0


async def test_the_last_try_is_followed_by_a_dead_letter(world, receiver):
    await provisioning.ensure_topics(world.settings)
    receiver.answers = [503, 503]
    await world.tell(*ending(receiver.url))
    async with world.sender(webhook_tries=2) as sender:
        await turn(sender)
        await world.make_due()
        await turn(sender)
    backlog = await world.outbox.backlog()
    assert (backlog.waiting, backlog.exhausted) == (0, 1)
    topic = Topics(world.settings.topic_prefix).dead_webhooks
    [letter] = [json.loads(one.value) async for one in read_topic(world.settings, topic)]
    assert (letter["webhook_id"], letter["tries"]) == ("a-1/1", 2)
    assert letter["reason"] == "answered with 503"


async def test_gone_is_final_at_once(world, receiver):
    await provisioning.ensure_topics(world.settings)
    receiver.answers = [410]
    await world.tell(*ending(receiver.url))
    async with world.sender() as sender:
        await turn(sender)
    assert (await world.outbox.backlog()).exhausted == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_internal_addresses_are_never_called(world, receiver, host):
    await provisioning.ensure_topics(world.settings)
    await world.tell(*ending(receiver.url.replace("127.0.0.1", host)))
    async with world.sender(webhook_networks=()) as sender:
        await turn(sender)
    assert not receiver.received
    assert (await world.outbox.backlog()).exhausted == 1
    reason = await world.pool.fetchval("select reason from webhooks")
    assert "internal address" in reason


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f000001", "127.0.0.1.", "[::ffff:127.0.0.1]"]
)
async def test_no_spelling_of_loopback_is_called_nor_tried_again(world, receiver, host):
    await provisioning.ensure_topics(world.settings)
    await world.tell(*ending(receiver.url.replace("127.0.0.1", host)))
    async with world.sender(webhook_networks=()) as sender:
        await turn(sender)
    assert not receiver.received
    assert (await world.outbox.backlog()).exhausted == 1
    assert "internal address" in await world.pool.fetchval("select reason from webhooks")


class Rebinding:
    """A resolver of a name that has another address each time it is looked up."""

    def __init__(self, *addresses):
        self._addresses = [*addresses]
        self.asked = 0

    async def resolve(self, host, port=0, family=0):
        self.asked += 1
        address = self._addresses.pop(0)
        return [
            {"hostname": host, "host": address, "port": port, "family": AF_INET, "proto": 0,
             "flags": 0}
        ]  # fmt: skip

    async def close(self):
        pass


async def test_a_name_that_turns_to_an_internal_address_is_called_no_more(
    world, receiver, monkeypatch
):
    """Of loopback one address passes for public here, and the others are internal."""
    await provisioning.ensure_topics(world.settings)
    names = Rebinding("127.0.0.1", "127.0.0.1", "127.0.0.2")
    monkeypatch.setattr(ssrf_guard, "ThreadedResolver", lambda: names)
    receiver.answers, receiver.hangs_up = [503], True
    async with Receiver(host="127.0.0.2", port=receiver.port) as inside:
        await world.tell(*ending(receiver.url.replace("127.0.0.1", "turns.example")))
        async with world.sender(webhook_networks=("127.0.0.1/32",)) as sender:
            await turn(sender)
            await world.make_due()
            await turn(sender)
            assert len(receiver.received) == names.asked == 2  # looked up once for each try
            await world.tell(*ending(receiver.url.replace("127.0.0.1", "turns.example"), "b"))
            await turn(sender)
        assert inside.received == []
    assert len(receiver.received) == 2
    reasons = await world.pool.fetch("select agenda_id, reason from webhooks")
    assert [(*one,) for one in reasons] == [("b", "127.0.0.2 is an internal address")]


async def test_an_address_that_was_not_judged_is_not_connected_to(world, receiver, monkeypatch):
    """As if names were looked up by somebody who judges nothing."""
    await provisioning.ensure_topics(world.settings)
    monkeypatch.setattr(ssrf_guard, "GuardedResolver", lambda _: Rebinding("127.0.0.1"))
    await world.tell(*ending(receiver.url.replace("127.0.0.1", "turns.example")))
    async with world.sender(webhook_networks=()) as sender:
        await turn(sender)
    assert not receiver.received
    assert (await world.outbox.backlog()).exhausted == 1


async def test_a_redirect_is_not_followed(world, receiver):
    async with Receiver() as other:
        receiver.answers = [other.url]
        await world.tell(*ending(receiver.url))
        async with world.sender() as sender:
            await turn(sender)
        assert not other.received
    assert (await world.outbox.backlog()).waiting == 1


async def test_ends_of_one_agenda_are_sent_in_their_order(world, receiver):
    receiver.answers = [500]
    accepted, succeeded = ending(receiver.url)
    await world.tell(accepted, succeeded)
    await world.pool.execute(
        "insert into webhooks (webhook_id, agenda_id, customer_id, url, body) "
        "select 'a-1/2', agenda_id, customer_id, url, '{}' from webhooks"
    )
    async with world.sender() as sender:
        assert await turn(sender) == 1  # the second waits for the first
        await world.make_due()
        assert await turn(sender) == 1
        assert await turn(sender) == 1
    ids = [headers["Pop-Callback-Id"] for headers, _ in receiver.received]
    assert ids == ["a-1/1", "a-1/1", "a-1/2"]


async def test_two_senders_share_and_neither_repeats(world, receiver):
    for number in range(40):
        await world.tell(*ending(receiver.url, f"a-{number}", customer_id=f"c-{number % 9}"))
    async with world.sender() as one, world.sender() as other, within(30):
        while (await world.outbox.backlog()).waiting:
            await asyncio.gather(turn(one), turn(other))
    ids = [headers["Pop-Callback-Id"] for headers, _ in receiver.received]
    assert sorted(ids) == sorted(f"a-{number}/1" for number in range(40))


async def test_a_server_that_hangs_holds_up_its_own_customer_only(world, receiver):
    """However much waits of it, and whatever else is to be sent meanwhile."""
    async with silent_server() as hanging:
        for number in range(20):
            await world.tell(*ending(hanging, f"h-{number}", customer_id="hangs"))
        await world.pool.execute(
            "insert into webhooks (webhook_id, agenda_id, customer_id, url, body, due_at) "
            "select 'm-' || n, 'm-' || n, 'hangs', $1, '{}', now() - interval '1 hour' "
            "from generate_series(1, 3000) as n",
            hanging,
        )
        for number in range(30):
            await world.tell(*ending(receiver.url, f"a-{number}", customer_id="anna"))
        stop = asyncio.Event()
        async with world.sender() as sender:
            running = asyncio.create_task(sender.run(stop))
            async with within(8, at_most_s=9.5):  # the hanging ones are given 10 s
                await receiver.has_received(30)
            running.cancel()
            await asyncio.wait([running])
    tries = await world.pool.fetch(
        "select customer_id, count(*) as tried from webhooks where tries > 0 group by 1"
    )
    assert [(*row,) for row in tries] == [("hangs", MAX_IN_FLIGHT_PER_CUSTOMER)]


async def test_what_a_dead_sender_took_comes_back(world, receiver):
    await world.tell(*ending(receiver.url))
    assert len(await world.outbox.claim(10, {})) == 1
    assert await world.outbox.claim(10, {}) == []
    await world.pool.execute(
        "update webhooks set due_at = due_at - $1::interval", timedelta(minutes=1)
    )
    assert len(await world.outbox.claim(10, {})) == 1


async def test_without_a_key_nothing_is_sent_and_nothing_is_forgotten(world, receiver):
    await world.tell(*ending(receiver.url))
    async with world.sender(webhook_keys=()) as sender:
        assert await turn(sender) == 0
    assert not receiver.received
    assert (await world.outbox.backlog()).waiting == 1


async def test_a_failure_is_reported_with_its_message(world, receiver):
    accepted, _ = ending(receiver.url)
    given_up = AgendaExhausted(
        agenda_id="a-1", at=NOW, insight_id="media", attempt=1, message="no luck"
    )
    await world.tell(accepted, given_up)
    async with world.sender() as sender:
        await turn(sender)
    got = json.loads(receiver.received[0][1])
    assert (got["state"], got["message"]) == ("failed", "no luck")
