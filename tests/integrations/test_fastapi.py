"""FastAPI and Starlette on the real system, by their test client and as the page has it."""

import asyncio
import json
import socket
import subprocess

import pytest
from deadlines import within
from fastapi import FastAPI
from one_process import one_process
from printed_page import PrintedPage
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pop_stream.client import NO_RETRY
from pop_stream.integrations.fastapi import (
    PopStreamClient,
    add_error_handler,
    client_of,
    pop_stream_lifespan,
    progress_response,
)
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.puller import Handlers

INSIGHT = Insight(id="media", mappers=Mappers(operation_types=("noop",)))
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
async def system(module_settings, tmp_path_factory):
    handlers, folder = Handlers(), tmp_path_factory.mktemp("fastapi")

    @handlers.handler("noop")
    async def print_report(call):
        await call.report(50, "half way")
        return {"payload": call.payload, "trace": call.trace and call.trace.traceparent}

    async with one_process(
        module_settings, folder, [INSIGHT], handlers, within_s=600
    ) as opened:
        yield opened


def application(url, **options):
    app = FastAPI(lifespan=pop_stream_lifespan(url, retry=NO_RETRY, **options))
    add_error_handler(app)

    @app.post("/agendas", status_code=202)
    async def submit(agenda: dict, client: PopStreamClient):
        return {"id": (await client.submit(agenda)).id}

    @app.get("/agendas/{agenda_id}/events")
    async def events(agenda_id: str, client: PopStreamClient):
        return await progress_response(client, agenda_id)

    return app


async def in_thread(work):
    async with within(60):
        return await asyncio.to_thread(work)


def agenda(agenda_id, **operation):
    operations = [{"name": "print", "type": "noop", **operation}]
    return {"id": agenda_id, "customer_id": "acme", "operations": operations}


async def test_an_agenda_is_submitted_with_its_trace_and_followed_to_its_end(system):
    def use():
        with TestClient(application(system.url)) as http:
            sent = http.post(
                "/agendas", json=agenda("one", payload=7), headers={"traceparent": PARENT}
            )
            return sent, http.get("/agendas/one/events")

    sent, followed = await in_thread(use)
    assert (sent.status_code, sent.json()) == (202, {"id": "one"})
    assert followed.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in followed.text.splitlines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert events[-1]["state"] == "succeeded"
    result = events[-1]["operations"][0]["result"]
    assert result["payload"] == 7
    assert result["trace"].split("-")[1] == PARENT.split("-")[1]


async def test_what_a_caller_can_mend_is_passed_on(system):
    def use():
        with TestClient(application(system.url)) as http:
            return (
                http.post("/agendas", json=agenda("two", kind="noop")),
                http.get("/agendas/nobody/events"),
            )

    refused, missing = await in_thread(use)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["issues"][0]["field"] == "operations[0].kind"
    assert (missing.status_code, missing.json()["status"]) == (404, 404)


async def test_an_api_that_is_away_is_503_with_the_time_to_come_back():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    def use():
        with TestClient(application(url)) as http:
            return http.post("/agendas", json=agenda("three"))

    away = await in_thread(use)
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
    assert away.json()["code"] == "unreachable"
    assert url not in away.text


async def test_the_applications_own_token_is_no_matter_of_its_callers(system, settings):
    async def unauthenticated(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(unauthenticated, "127.0.0.1", 0)
    port, token = server.sockets[0].getsockname()[1], "old"

    def use():
        with TestClient(application(f"http://127.0.0.1:{port}", token=token)) as http:
            return http.get("/agendas/one/events")

    async with server:
        answer = await in_thread(use)
    assert (answer.status_code, answer.json()["code"]) == (502, "unauthenticated")


async def test_starlette_has_the_client_by_its_requests(system):
    async def health(request: Request):
        return JSONResponse({"status": (await client_of(request).health()).status})

    routes = [Route("/health", health)]

    def use():
        with TestClient(
            Starlette(routes=routes, lifespan=pop_stream_lifespan(system.url))
        ) as http:
            return http.get("/health").json()

    assert await in_thread(use) == {"status": "ok"}
    bare = TestClient(Starlette(routes=routes))
    with pytest.raises(RuntimeError, match="give it the lifespan"):
        await in_thread(lambda: bare.get("/health"))


async def test_the_page_works_as_printed(system, tmp_path):
    page = PrintedPage("how-to/fastapi.md", tmp_path)
    page.write("reports.py", "app = FastAPI")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = page.environment(system.settings, system.url)
    (serve,) = page.commands("uvicorn reports:app")
    server = await asyncio.create_subprocess_shell(
        f"exec {serve.replace('8000', port)}", cwd=page.folder, env=environment
    )
    try:
        async with within(30):
            while True:
                try:
                    (await asyncio.open_connection("127.0.0.1", int(port)))[1].close()
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.05)
        printed = ""
        for command in page.commands("/events"):
            called = await asyncio.create_subprocess_shell(
                command.replace("8000", port), stdout=subprocess.PIPE
            )
            async with within(60):
                printed += (await called.communicate())[0].decode()
        assert printed.startswith('{"id":"report-7"}')
        assert '"state":"succeeded"' in printed
    finally:
        server.terminate()
        await server.wait()
