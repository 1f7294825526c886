"""What parts serve beside their work: formats, probes, and scrapers that do not read."""

import asyncio
import socket
from contextlib import ExitStack
from time import monotonic

import aiohttp
import pytest
from deadlines import within
from prometheus_client import CollectorRegistry, Gauge

from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.telemetry.server import serve_metrics


@pytest.fixture
def port():
    return next(one for one in PORTS if is_free_port(one))


async def fetched(port, path, **headers):
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_without_a_port_nothing_is_served():
    async with serve_metrics(CollectorRegistry(), "127.0.0.1", None):
        pass


async def test_probes_say_that_it_lives_and_whether_it_is_ready(port):
    is_ready = asyncio.Event()
    async with serve_metrics(CollectorRegistry(), "127.0.0.1", port, is_ready=is_ready.is_set):
        assert (await fetched(port, "/healthz"))[0] == 200
        assert (await fetched(port, "/readyz"))[0] == 503
        is_ready.set()
        assert (await fetched(port, "/readyz"))[0] == 200


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        ("", "text/plain", ""),
        ("*/*", "text/plain", ""),
        (
            "application/openmetrics-text;version=nonsense",
            "application/openmetrics-text",
            "# EOF\n",
        ),
        ("text/plain;version=x;escaping=y", "text/plain", ""),
    ],
)
async def test_who_asks_for_open_metrics_gets_them(port, accept, content_type, end):
    registry = CollectorRegistry()
    Gauge("one", "A gauge.", registry=registry).set(1)
    async with serve_metrics(registry, "127.0.0.1", port):
        status, kind, text = await fetched(port, "/metrics", Accept=accept)
    assert status == 200
    assert kind.startswith(content_type)
    assert "one 1.0" in text
    assert text.endswith(end)


async def test_scrapers_that_do_not_read_hold_up_nobody_and_not_the_end(port):
    registry = CollectorRegistry()
    many = Gauge("many", "A large answer.", ["number"], registry=registry)
    for number in range(50_000):
        many.labels("x" * 100 + str(number)).set(1)
    async with within(60):
        with ExitStack() as hanging:
            async with serve_metrics(registry, "127.0.0.1", port):
                for _ in range(5):
                    one = hanging.enter_context(socket.create_connection(("127.0.0.1", port)))
                    one.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
                assert (await fetched(port, "/healthz"))[0] == 200
                stopped = monotonic()
            assert monotonic() - stopped < 10
