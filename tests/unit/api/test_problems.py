"""Errors as every client sees them, and the ids that tie them to the log."""

import re

import pytest
import pytest_asyncio
import structlog
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from api_fakes import agenda, open_api, ports

from pop_stream.api.app import create_app
from pop_stream.api.http.errors import TooLargeError
from pop_stream.api.http.problems import status_of
from pop_stream.model.errors import (
    InUseError,
    LeaseLostError,
    NotFoundError,
    PopStreamError,
    SubmissionError,
    UnavailableError,
)
from pop_stream.settings import Settings


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        yield opened


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (SubmissionError, 422),
        (NotFoundError, 404),
        (UnavailableError, 503),
        (TooLargeError, 413),
        (LeaseLostError, 409),
        (InUseError, 409),
        (PopStreamError, 500),
    ],
)
def test_every_error_has_a_status(kind, status):
    assert status_of(kind) == status


def test_what_is_in_use_says_by_whom():
    error = InUseError("pool/gpu", ["insight/a", "insight/b"])
    assert error.used_by == ("insight/a", "insight/b")
    assert str(error) == "pool/gpu is in use by insight/a, insight/b; change these first"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "unknown_path"),
        ("GET", "/v1/agendas/a/b/c", 404, "unknown_path"),
        ("GET", "/v1/agendas/", 404, "unknown_path"),
        ("PUT", "/v1/agendas", 405, "method_not_allowed"),
        ("PUT", "/v1/agendas/a1", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/agendas", 405, "method_not_allowed"),
        ("POST", "/v1/agendas", 415, "unsupported_media_type"),
    ],
)
async def test_every_refusal_is_a_problem(api, method, path, status, code):
    async with api.client.request(method, path) as response:
        body = await response.json(content_type=None)
        assert response.content_type == "application/problem+json"
        assert response.status == body["status"] == status
        assert (body["code"], body["instance"]) == (code, path)
        assert body["type"] == f"urn:pop-stream:problem:{code}"
        assert {"title", "detail"} <= body.keys()


async def test_a_method_that_is_not_served_is_answered_with_those_that_are(api):
    async with api.client.put("/v1/agendas/a1") as response:
        assert set(response.headers["Allow"].split(",")) == {"GET", "HEAD", "DELETE"}


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_no_page_of_another_site_is_let_in(api, method):
    headers = {"Origin": "https://evil.test", "Access-Control-Request-Method": "POST"}
    async with api.client.request(method, "/v1/agendas", headers=headers) as response:
        assert not [name for name in response.headers if name.startswith("Access-Control")]
        assert response.ok is (method == "GET")


async def test_head_is_get_without_a_body(api):
    async with api.client.head("/healthz") as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_a_fault_of_ours_is_500_and_its_words_stay_in_the_log(api):
    api.summaries.fault = ZeroDivisionError("private words")
    with structlog.testing.capture_logs() as logs:
        async with api.client.get("/v1/agendas/a1") as response:
            text = await response.text()
            body = await response.json(content_type=None)
    assert (response.status, body["code"]) == (500, "internal")
    assert "private words" not in text
    assert "Traceback" not in text
    (line,) = [one for one in logs if one["event"] == "request.failed"]
    assert isinstance(line["exc_info"], ZeroDivisionError)


async def test_the_clients_correlation_id_is_echoed_and_logged():
    async with open_api() as api:
        structlog.contextvars.clear_contextvars()
        processors = [structlog.contextvars.merge_contextvars]
        with structlog.testing.capture_logs(processors=processors) as logs:
            headers = {"X-Correlation-Id": "order-17"}
            async with api.client.post("/v1/agendas", json=agenda(), headers=headers) as answer:
                assert answer.headers["X-Correlation-Id"] == "order-17"
        (line,) = [one for one in logs if one["event"] == "agenda.submitted"]
        assert (line["correlation_id"], line["agenda_id"]) == ("order-17", "made-1")


@pytest.mark.parametrize("sent", ["", "two words", "x" * 129, '"}', "é"])
async def test_an_unfit_correlation_id_is_replaced(api, sent):
    async with api.client.get("/nowhere", headers={"X-Correlation-Id": sent}) as response:
        made = response.headers["X-Correlation-Id"]
        assert re.fullmatch("[0-9a-f]{32}", made)
        assert (await response.json(content_type=None))["correlation_id"] == made


async def test_requests_on_one_connection_have_ids_of_their_own(api):
    seen = set()
    for _ in range(3):
        async with api.client.get("/healthz") as response:
            seen.add(response.headers["X-Correlation-Id"])
    assert len(seen) == 3


async def test_an_error_after_the_answer_began_cuts_the_connection():
    behind = ports()
    app = create_app(behind, Settings())

    async def half(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise ZeroDivisionError

    app.router.add_get("/half", half)
    async with TestClient(TestServer(app)) as client, client.get("/half") as response:
        with pytest.raises(Exception, match=r"payload|disconnected|closed"):
            await response.read()
