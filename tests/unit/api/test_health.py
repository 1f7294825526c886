"""Probes and metrics."""

import pytest
import pytest_asyncio
from api_fakes import agenda, open_api

from pop_stream.model.errors import UnavailableError


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        yield opened


async def test_alive_whatever_is_away(api):
    api.summaries.is_away = True
    assert await api.get("/healthz") == (200, {"status": "ok"})


async def test_ready_while_kafka_and_postgres_answer(api):
    parts = {"kafka": "ok", "postgres": "ok"}
    assert await api.get("/readyz") == (200, {"status": "ready", "parts": parts})


async def test_not_ready_tells_which_part_is_away(api):
    api.summaries.is_away = True
    status, body = await api.get("/readyz")
    assert (status, body["code"]) == (503, "not_ready")
    assert body["parts"] == {"kafka": "ok", "postgres": "away"}
    assert "secret" not in str(body)


@pytest.mark.parametrize("question", ["partitions", "ping"])
async def test_not_ready_while_kafka_is_unknown(api, monkeypatch, question):
    async def away(*_):
        raise UnavailableError

    monkeypatch.setattr(api.publisher, question, away)
    status, body = await api.get("/readyz")
    assert (status, body["parts"]) == (503, {"kafka": "away", "postgres": "ok"})


async def test_metrics_count_requests_and_agendas(api):
    await api.submit([agenda(), agenda(priority=0)])
    await api.submit(agenda())
    await api.get("/v1/agendas/none")
    async with api.client.request("BREW", "/pot/7") as response:
        assert response.status in {400, 404}
    async with api.client.get("/metrics") as response:
        assert response.content_type == "text/plain"
        text = await response.text()
    assert 'http_requests_total{method="POST",route="/v1/agendas",status="202"} 2.0' in text
    route = 'route="/v1/agendas/{agenda_id}"'
    assert f'http_requests_total{{method="GET",{route},status="404"}} 1.0' in text
    assert "submissions_accepted_total 2.0" in text
    assert 'submissions_refused_total{code="submission_refused"} 1.0' in text
    assert 'http_request_seconds_count{route="/v1/agendas"} 2.0' in text
    assert "event_streams 0.0" in text


@pytest.mark.parametrize("path", ["/pot/1", "/pot/2"])
async def test_a_made_up_path_makes_no_label(api, path):
    await api.get(path)
    async with api.client.get("/metrics") as response:
        text = await response.text()
    assert "/pot" not in text
    assert 'route="unknown"' in text
