"""Over HTTP: an insight that is full, a submission that waits for space, a reported health."""

import asyncio

import pytest
import pytest_asyncio
from api_fakes import AT, agenda, open_api
from deadlines import within

from pop_stream.api.submissions import submissions
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.events.base import HealthValue
from pop_stream.model.events.codec import decode_ready
from pop_stream.model.events.quota import BacklogUsage, IngressUsage
from pop_stream.model.events.scheduling import InsightHealth
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.policy.ingress.usage import insight_account

FILES = Insight(id="files", mappers=Mappers(operation_types=("http",)), max_ready=2)


class WatchedLedger(QuotaLedger):
    """Counts how often it was asked to admit an agenda."""

    tries = 0

    def admit(self, *args, **kwargs):
        self.tries += 1
        super().admit(*args, **kwargs)


class Full:
    """An API whose insight takes two agendas, and the ledger that counts them."""

    def __init__(self, api, ledger):
        self.api = api
        self.ledger = ledger
        self.reports = 0

    async def submit(self, query="", **changes):
        return await self.api.call("POST", f"/v1/agendas{query}", agenda(**changes))

    def settle(self, ready):
        """The scheduler has so many, and nothing is on its way."""
        self.reports += 1
        report = BacklogUsage(
            insight_id="files",
            at=AT,
            customers={insight_account("files"): ready},
            is_complete=True,
        )
        self.ledger.apply(report, now_s=0.0)
        ends = {str(partition): 1_000 for partition in range(8)}
        done = IngressUsage(ingress_id="in", number=self.reports, processed_up_to=ends)
        self.ledger.apply(done, now_s=0.0)

    async def until_tries(self, count):
        async with within(5):
            while self.ledger.tries < count:  # noqa: ASYNC110  # the API tells nobody
                await asyncio.sleep(0)


@pytest_asyncio.fixture
async def full():
    ledger = WatchedLedger("api", {}.get, {"files": FILES}.get)
    async with open_api(quota_ledger=ledger) as api:
        world = Full(api, ledger)
        world.settle(2)
        yield world


async def test_a_full_insight_is_429_with_retry_after_and_says_what_it_takes(full):
    status, body, headers = await full.submit()
    assert (status, int(headers["Retry-After"])) == (429, 5)
    assert (body["code"], body["insight_id"], body["quota"]) == (
        "insight_quota", "files", "max_ready",
    )  # fmt: skip
    assert (body["limit"], body["present"]) == (2, 2)
    assert body["issues"][0]["field"] == "insight_id"


async def test_priority_1_passes_a_full_insight(full):
    assert [(await full.submit(priority=1))[0] for _ in range(3)] == [202, 202, 429]


async def test_each_agenda_of_a_list_is_refused_by_itself(full):
    full.settle(1)
    status, body, _ = await full.api.call("POST", "/v1/agendas", [agenda(), agenda()])
    assert (status, [one["status"] for one in body["results"]]) == (202, [202, 429])


async def test_a_submission_waits_until_there_is_space(full):
    waiting = asyncio.create_task(full.submit("?wait_for_space_s=20"))
    await full.until_tries(2)
    assert not waiting.done()
    full.settle(1)
    async with within(5):
        assert (await waiting)[0] == 202


async def test_a_wait_in_vain_is_429(full):
    assert (await full.submit("?wait_for_space_s=0.05"))[0] == 429


async def test_of_many_that_wait_the_rest_is_refused_at_once(full, monkeypatch):
    monkeypatch.setattr(submissions, "MAX_WAITING_OF_CUSTOMER", 2)
    waiting = [asyncio.create_task(full.submit("?wait_for_space_s=20")) for _ in range(2)]
    await full.until_tries(2)
    async with within(5):
        assert (await full.submit("?wait_for_space_s=20"))[0] == 429
        full.settle(0)
        assert {(await one)[0] for one in waiting} == {202}


@pytest.mark.parametrize("value", ["-1", "31", "nan", "soon", ""])
async def test_a_wait_out_of_bounds_is_refused(full, value):
    status, body, _ = await full.submit(f"?wait_for_space_s={value}")
    assert (status, body["issues"][0]["field"]) == (422, "wait_for_space_s")


async def test_a_list_does_not_wait(full):
    path = "/v1/agendas?wait_for_space_s=1"
    status, body, _ = await full.api.call("POST", path, [agenda()])
    assert (status, body["issues"][0]["field"]) == (422, "wait_for_space_s")
    assert "submit the agenda alone" in body["issues"][0]["message"]


async def test_a_reported_health_goes_to_the_scheduler():
    async with open_api() as api:
        report = {"coefficient": 0.25, "ttl_s": 60, "source": "disk", "reason": "slow"}
        status, body, _ = await api.call("PUT", "/v1/insights/files/health", report)
        assert (status, body["coefficient"], body["source"]) == (202, 0.25, "disk")
        (record,) = api.publisher.on("pop.ready")
        (event,) = decode_ready(record.value)
        assert isinstance(event, InsightHealth)
        assert (event.insight_id, event.source) == ("files", "disk")
        assert event.value == HealthValue(0.25, event.value.until, "slow")


@pytest.mark.parametrize(
    ("report", "field"),
    [
        ({}, "coefficient"),
        ({"coefficient": 1.5}, "coefficient"),
        ({"coefficient": -0.1}, "coefficient"),
        ({"coefficient": 1, "ttl_s": 0}, "ttl_s"),
        ({"coefficient": 1, "ttl_s": 1e9}, "ttl_s"),
        ({"coefficient": 1, "source": "failures"}, "source"),
        ({"coefficient": 1, "source": "a b"}, "source"),
        ({"coefficient": 1, "reason": "x" * 201}, "reason"),
        ({"coefficient": 1, "colour": "red"}, "colour"),
    ],
)
async def test_an_unsound_report_is_refused(report, field):
    async with open_api() as api:
        status, body, _ = await api.call("PUT", "/v1/insights/files/health", report)
        assert (status, [one["field"] for one in body["issues"]]) == (422, [field])
        assert not api.publisher.records


async def test_the_health_of_an_unknown_insight_is_404():
    async with open_api() as api:
        path = "/v1/insights/nothing/health"
        assert (await api.call("PUT", path, {"coefficient": 1}))[0] == 404
