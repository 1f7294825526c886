"""The listener: where it listens, what it says to noise, how it stops."""

import asyncio
import json

import pytest
from aiohttp import ClientSession
from api_fakes import agenda, ports, serving, summary
from yarl import URL

from pop_stream.api.app import create_app
from pop_stream.api.http.server import serve
from pop_stream.settings import Settings


async def test_port_0_takes_a_free_one_and_tells_which():
    async with serving() as one, ClientSession() as session:
        url = one.url.result()
        assert url.startswith("http://127.0.0.1:")
        async with session.get(f"{url}/healthz") as response:
            assert response.status == 200


async def test_an_address_of_ipv6_is_shown_with_brackets():
    async with serving(http_host="::1") as one:
        assert one.url.result().startswith("http://[::1]:")


async def test_a_port_that_is_taken_is_an_error_at_once():
    async with serving() as one:
        settings = Settings(http_port=URL(one.url.result()).port)
        with pytest.raises(OSError, match="address already in use"):
            await serve(create_app(ports(), settings), settings, asyncio.Event())


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no http\r\n\r\n",
        b"GET / HTTP/9.9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"POST /v1/agendas HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    ],
    ids=["tls", "version", "header", "long header", "length"],
)
async def test_noise_is_answered_with_a_problem(noise):
    async with serving() as one:
        reader, writer = await one.connect()
        writer.write(noise)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b" 400 " in head.partition(b"\r\n")[0]
        assert b"application/problem+json" in head
        assert b"x-correlation-id" in head.lower()
        assert json.loads(body)["code"] == "malformed_request"


@pytest.mark.parametrize("expect", ["100-continue", "200-ok"])
async def test_a_client_that_waits_to_be_asked_is_asked(expect):
    async with serving() as one:
        body = json.dumps(agenda()).encode()
        reader, writer = await one.connect()
        head = (
            "POST /v1/agendas HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\nExpect: {expect}\r\n\r\n"
        )
        writer.write(head.encode())
        if expect == "100-continue":
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert b"202 Accepted" in await reader.read()


async def test_a_body_cut_off_is_no_fault_of_ours():
    async with serving() as one:
        reader, writer = await one.connect()
        writer.write(
            b"POST /v1/agendas HTTP/1.1\r\nHost: 1.1.1.1\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
        )
        assert b"400 Bad Request" in await reader.readline()
        assert not one.behind.publisher.records


async def test_a_submission_under_way_is_answered_before_the_end():
    async with serving() as one, ClientSession() as session:
        arrived, acknowledged = asyncio.Event(), asyncio.Event()
        publish = one.behind.publisher.publish

        async def slowly(records):
            arrived.set()
            await acknowledged.wait()
            return await publish(records)

        one.behind.publisher.publish = slowly
        url = f"{one.url.result()}/v1/agendas"
        sending = asyncio.create_task(session.post(url, json=agenda()))
        await arrived.wait()
        one.stop.set()
        acknowledged.set()
        async with await sending as response:
            assert response.status == 202


async def test_stopping_ends_the_streams_at_once():
    async with serving() as one, ClientSession() as session:
        one.behind.summaries.put(summary("a1"))
        async with session.get(f"{one.url.result()}/v1/agendas/a1/events") as response:
            await response.content.readuntil(b"\n\n")
            one.stop.set()
            assert await response.content.read() == b""
