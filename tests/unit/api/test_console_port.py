"""The web console at a port of its own, beside the API's."""

import asyncio
from datetime import timedelta

import pytest
from aiohttp import ClientSession
from api_fakes import ports
from deadlines import within

from pop_stream.composition import api as composed
from pop_stream.settings import Settings


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        ({}, "http://127.0.0.1:8080/ui/"),
        ({"console_port": 9090}, "http://127.0.0.1:9090/ui/"),
        ({"console_path": "/look"}, "http://127.0.0.1:8080/look/"),
    ],
)
def test_its_address_follows_path_and_port(changes, url):
    assert Settings(api_url="http://127.0.0.1:8080", **changes).console_url == url


async def test_it_is_served_at_its_port_and_not_at_the_apis(monkeypatch, unused_tcp_port):
    class NoDispatcher:
        def __init__(self, *_):
            pass

        async def run(self):
            await asyncio.Event().wait()

    class Opened:
        async def __aenter__(self):
            return ports()

        async def __aexit__(self, *_):
            pass

    monkeypatch.setattr(composed, "open_ports", lambda _: Opened())
    monkeypatch.setattr(composed, "Dispatcher", NoDispatcher)
    settings = Settings(http_port=0, console_port=unused_tcp_port, console_session=timedelta(1))
    url, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    async with within(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(composed.run_api(settings, stop, url.set_result))
        api = await url
        async with ClientSession() as session:
            place = f"http://127.0.0.1:{unused_tcp_port}/ui/"
            async with session.get(place) as answer:
                assert (answer.status, "Overview" in await answer.text()) == (200, True)
            async with session.get(f"{api}/ui/") as answer:
                assert answer.status == 404
        stop.set()
