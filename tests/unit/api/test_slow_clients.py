"""Those who send slowly: they cost themselves, and nobody else."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from api_fakes import agenda, open_api, serving
from deadlines import within

from pop_stream.api.http.body import SLICE_BYTES, BodyReader
from pop_stream.model.identity import Principal, Role
from pop_stream.settings import Settings

LARGEST = 64 * 1024
ROLES = frozenset({Role.SUBMIT, Role.READ})


class CustomersByName:
    """Takes the token for the customer's name; `op` is an operator."""

    async def identify(self, authorization):
        name = (authorization or "").removeprefix("Bearer ")
        return Principal(f"key:{name}", None if name.startswith("op") else name, ROLES)


class Slow:
    """An upload that has sent some bytes and goes on once it may."""

    def __init__(self, api, whose, size, rest=b"]"):
        self.go_on, self.size, self.rest = asyncio.Event(), size, rest
        self.sent = asyncio.Event()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {whose}"}
        self.answer = asyncio.create_task(
            api.client.post("/v1/agendas", data=self.parts(), headers=headers)
        )

    async def parts(self):
        yield b"[" + b" " * self.size
        self.sent.set()
        await self.go_on.wait()
        yield self.rest

    async def status(self):
        async with await self.answer as response:
            return response.status


async def submit(api, whose, *, padding=0):
    body = agenda(customer_id=whose, params={"x": "x" * padding})
    headers = {"Authorization": f"Bearer {whose}"}
    async with api.client.post("/v1/agendas", json=[body], headers=headers) as response:
        return response.status


async def held(condition):
    async with within(10):
        while not condition():  # noqa: ASYNC110  # nobody says when bytes were read
            await asyncio.sleep(0.005)


@pytest.fixture
async def api():
    async with open_api(
        authenticator=CustomersByName(), max_request_bytes=LARGEST, max_agenda_bytes=LARGEST
    ) as api:
        yield api


async def test_slow_uploads_of_one_customer_keep_nobody_else_out(api):
    slow = [Slow(api, "hog", LARGEST - 10) for _ in range(4)]
    await asyncio.gather(*(one.sent.wait() for one in slow))
    assert await submit(api, "acme") == 202
    for _ in range(6):
        assert await submit(api, "acme", padding=LARGEST // 2) == 202
    done, _ = await asyncio.wait([one.answer for one in slow], timeout=0)
    assert len(done) <= 1
    assert [one.result().status for one in done] in ([], [503])
    for one in slow:
        one.go_on.set()
        await one.status()


async def test_whoever_holds_most_is_answered_with_503(api):
    async with AsyncExitStack() as stack:
        slow = [Slow(api, "hog", LARGEST - 10) for _ in range(4)]
        slow += [Slow(api, "acme", LARGEST // 2)]
        for one in slow:
            stack.callback(one.go_on.set)
        done, _ = await asyncio.wait(
            [one.answer for one in slow], return_when=asyncio.FIRST_COMPLETED, timeout=10
        )
        [refused] = done
        assert refused in [one.answer for one in slow[:4]]
        async with refused.result() as response:
            assert response.status == 503
            assert (await response.json(content_type=None))["code"] == "busy"
        for one in slow:
            one.go_on.set()
        assert await slow[4].status() == 422
        assert sorted([await one.status() for one in slow[:4] if one.answer not in done]) == [
            422,
            422,
            422,
        ]


async def test_room_is_given_back_by_those_who_leave_are_refused_or_evicted(api):
    for _ in range(5):
        slow = [Slow(api, "hog", LARGEST - 10) for _ in range(6)]
        await asyncio.gather(*(one.sent.wait() for one in slow))
        assert await submit(api, "acme", padding=LARGEST // 2) == 202
        for one in slow:
            one.answer.cancel()
        await asyncio.gather(*(one.answer for one in slow), return_exceptions=True)
    slow = [Slow(api, "hog", LARGEST - 10) for _ in range(4)]
    await asyncio.gather(*(one.sent.wait() for one in slow))
    for one in slow:
        one.go_on.set()
    assert [await one.status() for one in slow] == [422] * 4


async def test_body_that_falls_behind_the_least_rate_is_408(api, monkeypatch):
    monkeypatch.setattr("pop_stream.api.http.body._GRACE_S", 0.05)
    monkeypatch.setattr("pop_stream.api.http.body._LEAST_BYTES_PER_S", 1_000_000)
    one = Slow(api, "hog", 1_000)
    assert await one.status() == 408
    one.go_on.set()
    monkeypatch.setattr("pop_stream.api.http.body._LEAST_BYTES_PER_S", 100)
    keeps_up = Slow(api, "acme", 1_000)
    await keeps_up.sent.wait()
    await asyncio.sleep(0.2)
    keeps_up.go_on.set()
    assert await keeps_up.status() == 422


@pytest.mark.parametrize(
    "begun", [b"", b"G", b"POST /v1/agendas HTTP/1.1\r\nHost: a\r\nX-Slow: "]
)
async def test_headers_that_do_not_arrive_in_time_end_the_connection(begun, monkeypatch):
    monkeypatch.setattr("pop_stream.api.http.server._HEADERS_WITHIN_S", 0.2)
    async with serving() as one:
        reader, writer = await one.connect()
        writer.write(begun)
        async with within(10):
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        one.stop.set()


async def test_headers_of_a_second_request_have_their_time_too(monkeypatch):
    monkeypatch.setattr("pop_stream.api.http.server._HEADERS_WITHIN_S", 0.2)
    async with serving() as one:
        reader, writer = await one.connect()
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
            await asyncio.sleep(0.3)  # an idle connection is kept
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        async with within(10):
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        one.stop.set()


async def test_request_that_takes_longer_than_headers_may_is_served(monkeypatch):
    monkeypatch.setattr("pop_stream.api.http.server._HEADERS_WITHIN_S", 0.2)
    async with serving() as one:
        reader, writer = await one.connect()
        writer.write(
            b"POST /v1/agendas HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\n"
            b"Content-Length: 2\r\n\r\n["
        )
        await asyncio.sleep(0.5)
        writer.write(b"]")
        async with within(10):
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 422 ")
        one.stop.set()


async def test_others_have_their_turn_while_a_body_is_there_at_once(monkeypatch):
    turns, reading = 0, True

    async def others():
        nonlocal turns
        while reading:
            turns += 1
            await asyncio.sleep(0)

    class AtOnce:  # as what is decompressed here comes: no chunk of it has to be waited for
        async def iter_any(self):
            for _ in range(100):
                yield b"[" + b" " * (SLICE_BYTES // 2 - 1)

    class Request:
        content_type, charset, content_length, content = (
            "application/json",
            None,
            None,
            AtOnce(),
        )

    monkeypatch.setattr("pop_stream.api.http.body.sender_of", lambda _: "acme")
    settings = Settings(max_request_bytes=LARGEST * 100, max_agenda_bytes=LARGEST)
    waiting = asyncio.create_task(others())
    async with BodyReader(settings).read(Request()) as body:
        reading = False
        assert len(body) == 100 * SLICE_BYTES // 2
    await waiting
    assert turns >= 50
