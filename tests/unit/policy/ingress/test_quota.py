"""What a customer may submit: the bucket, and what becomes of the rest over HTTP."""

from dataclasses import replace

import pytest_asyncio
from api_fakes import AT, agenda, open_api

from pop_stream.model.definitions import Customer
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.quota import BacklogUsage, CapacityLimit
from pop_stream.model.ids import CustomerId
from pop_stream.policy.ingress.quotas import QuotaLedger, take_token
from pop_stream.policy.ingress.signature import ADMITTED_HEADER


def taken(seconds, *, rate_per_s, burst):
    """At which of these instants a token was there."""
    bucket, found = None, []
    for now in seconds:
        bucket, wait_s = take_token(bucket, rate_per_s=rate_per_s, burst=burst, now_s=now)
        found.append(wait_s)
    return found


def test_a_burst_passes_at_once_and_then_the_rate():
    assert taken([0, 0, 0], rate_per_s=2, burst=2) == [0, 0, 0.5]
    assert taken([0, 0, 0.25, 0.5], rate_per_s=2, burst=2) == [0, 0, 0.25, 0]


def test_a_rest_fills_no_more_than_the_burst():
    assert taken([0, 1000, 1000, 1000], rate_per_s=2, burst=2) == [0, 0, 0, 0.5]


def test_a_refusal_costs_nothing_and_a_clock_that_goes_back_gives_nothing():
    assert taken([0, 0, 0, 0, 1], rate_per_s=1, burst=1) == [0, 1, 1, 1, 0]
    assert taken([5, 0, 5], rate_per_s=1, burst=1) == [0, 1, 1]


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        limited = Customer(id="acme", max_submit_per_s=0.01, submit_burst=2)
        known = opened.definitions.current
        opened.definitions.current = replace(known, customers={CustomerId("acme"): limited})
        yield opened


async def test_what_goes_beyond_the_quota_is_answered_with_when_to_come_back(api):
    assert [(await api.submit(agenda()))[0] for _ in range(2)] == [202, 202]
    async with api.client.post("/v1/agendas", json=agenda()) as response:
        got = await response.json(content_type=None)
        assert (response.status, got["code"]) == (429, "quota")
        assert 90 <= int(response.headers["Retry-After"]) <= 100
    assert len(api.published) == 2


async def test_of_a_list_the_first_pass_and_one_customers_quota_is_no_others(api):
    items = [agenda(title=str(n)) for n in range(3)] + [agenda(customer_id="beta")]
    status, got = await api.submit(items)
    assert status == 202
    assert [one["status"] for one in got["results"]] == [202, 202, 429, 202]
    assert (await api.submit([agenda()]))[0] == 429


async def test_a_repeat_costs_nothing(api):
    for _ in range(5):
        assert (await api.submit(agenda(id="a1")))[0] == 202


async def test_a_refusal_names_customer_limit_and_present_value(api):
    known = api.definitions.current
    limited = Customer(id="acme", max_ready=2)
    api.definitions.current = replace(known, customers={CustomerId("acme"): limited})
    assert [(await api.submit(agenda()))[0] for _ in range(2)] == [202, 202]
    async with api.client.post("/v1/agendas", json=agenda()) as response:
        got = await response.json(content_type=None)
        assert (response.status, int(response.headers["Retry-After"]) > 0) == (429, True)
    shown = {key: got[key] for key in ("code", "customer_id", "quota", "limit", "present")}
    assert shown == {
        "code": "quota",
        "customer_id": "acme",
        "quota": "max_ready",
        "limit": 2,
        "present": 2,
    }
    assert "acme" in got["detail"]


async def test_what_kafka_did_not_take_uses_nothing_up(api):
    known = api.definitions.current
    limited = Customer(id="acme", max_ready=1)
    api.definitions.current = replace(known, customers={CustomerId("acme"): limited})
    api.publisher.failures.append(UnavailableError("away"))
    assert [(await api.submit(agenda()))[0] for _ in range(3)] == [503, 202, 429]


async def test_a_full_insight_is_answered_with_503_and_when_to_come_back():
    full = CapacityLimit(what="agendas", limit=10, present=12)
    ledger = QuotaLedger("api", lambda _: None)
    ledger.apply(BacklogUsage(insight_id="files", at=AT, capacity_limit=full), now_s=0)
    async with open_api(quota_ledger=ledger) as api:
        async with api.client.post("/v1/agendas", json=agenda()) as response:
            got = await response.json(content_type=None)
            assert (response.status, "Retry-After" in response.headers) == (503, True)
        shown = {key: got[key] for key in ("code", "insight_id", "limit", "present")}
        assert shown == {
            "code": "insight_full",
            "insight_id": "files",
            "limit": 10,
            "present": 12,
        }
        assert not api.publisher.records


async def test_the_apis_word_goes_with_what_it_let_in(api):
    await api.submit(agenda())
    [record] = api.publisher.records
    assert ADMITTED_HEADER in record.headers
