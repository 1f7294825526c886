"""What an executor holds becomes its insight's cap, by reports of health."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from memory_executor import MemoryExecutor

from pop_stream.api.definitions.insight_health import HealthReport
from pop_stream.puller.executors.capacity import CapacityReporter, report_capacity
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.settings import Settings


@pytest.fixture
async def api():
    reports = []

    async def put(request):
        assert request.headers["Authorization"] == "Bearer key"
        reports.append(HealthReport.model_validate(await request.json()))
        return web.json_response({}, status=202)

    app = web.Application()
    app.router.add_put("/v1/insights/farm/health", put)
    async with TestServer(app) as server:
        yield Settings(api_url=str(server.make_url("")), api_token="key"), reports  # noqa: S106


@pytest.mark.parametrize(
    ("away", "cap", "part", "reason"),
    [
        ("", 8, 0.5, "memory holds 4 of 8 runs"),
        ("", 2, 1.0, "memory holds 4 of 2 runs"),
        ("the cluster does not answer", 8, 0.0, "the cluster does not answer"),
    ],
)
async def test_an_insight_is_as_well_as_its_executor_holds_of_its_cap(
    api, away, cap, part, reason
):
    settings, reports = api
    executor = MemoryExecutor()
    executor.away = away
    reporter = CapacityReporter(executor, "farm", cap, settings)
    assert await reporter.report() == part
    (report,) = reports
    assert (report.coefficient, report.reason) == (part, reason)
    assert (report.source, report.ttl_s) == ("executor-memory", 120.0)
    await reporter.close()


async def test_an_executor_that_cannot_say_reports_nothing(api):
    settings, reports = api

    class Silent(MemoryExecutor):
        async def capacity(self):
            return None

    assert await CapacityReporter(Silent(), "farm", 8, settings).report() is None
    assert reports == []


async def test_an_api_that_is_away_is_no_error():
    settings = Settings(api_url="http://127.0.0.1:1")
    reporter = CapacityReporter(MemoryExecutor(), "farm", 8, settings)
    assert await reporter.report() == 0.5
    await reporter.close()


def test_a_cap_of_nothing_is_refused():
    with pytest.raises(ValueError, match="max_in_flight = 0"):
        report_capacity(Handlers(), MemoryExecutor(), "farm", max_in_flight=0)
