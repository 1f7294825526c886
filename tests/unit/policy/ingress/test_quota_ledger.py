"""What an ingress admits, by what it counts itself and what the others report."""

from datetime import UTC, datetime

import pytest

from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.errors import CapacityError, InsightFullError, QuotaError
from pop_stream.model.events.codec import decode_usage, encode
from pop_stream.model.events.quota import BacklogUsage, CapacityLimit, IngressUsage
from pop_stream.policy.ingress import quotas
from pop_stream.policy.ingress.quotas import (
    FULL_REPORT_INTERVAL_S,
    PEER_EXPIRY_S,
    InFlightSubmissions,
    QuotaLedger,
)
from pop_stream.policy.ingress.usage import (
    MAX_CUSTOMERS_PER_RECORD,
    MemoryLoad,
    UsageDelta,
    UsageTotals,
    capacity_limits,
    chunks,
    insight_account,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
CUSTOMERS = {
    "ready": Customer(id="ready", max_ready=3),
    "rate": Customer(id="rate", max_submit_per_s=2, submit_burst=4),
    "free": Customer(id="free"),
}


def ledger(name="one", customers=None):
    return QuotaLedger(name, (CUSTOMERS if customers is None else customers).get)


def admitted(one, customer_id, most=100, *, now_s=0.0, insight_id="media"):
    """How many are let in before one is not."""
    for number in range(most):
        try:
            one.admit(customer_id, insight_id, now_s=now_s)
        except (QuotaError, CapacityError):
            return number
    return most


def counted(insight_id="media", placed=None, *, is_complete=False, near=None, **customers):
    return BacklogUsage(
        insight_id=insight_id,
        at=START,
        customers=customers,
        is_complete=is_complete,
        placed=placed or {},
        capacity_limit=near,
    )


def tell(one, *others, now_s=0.0):
    """What it has to say, over the wire."""
    got = [decode_usage(encode(event)) for event in one.drain_reports(now_s)]
    for event in got:
        for other in others:
            other.apply(event, now_s=now_s)
    return got


# ---- ready agendas ----


def test_no_more_are_let_in_than_may_be_ready_and_nobody_else_is_held_up():
    one = ledger()
    assert admitted(one, "ready") == 3
    assert admitted(one, "free") == 100
    assert admitted(one, "unknown") == 100


def test_a_refusal_names_customer_limit_and_what_there_is():
    one = ledger()
    one.apply(counted(ready=7), now_s=0)
    with pytest.raises(
        QuotaError, match=r"has 7 ready agendas and may have 3.*max_ready"
    ) as got:
        one.admit("ready", "media", now_s=0)
    error = got.value
    assert (error.customer_id, error.quota, error.limit, error.present) == (
        "ready", "max_ready", 3, 7,
    )  # fmt: skip
    assert error.retry_after_s > 0


def test_what_is_ready_counts_over_all_insights_and_leaves_with_its_emission():
    one = ledger()
    one.apply(counted("media", ready=1), now_s=0)
    one.apply(counted("other", ready=1), now_s=0)
    assert one.ready_count("ready") == 2
    one.apply(counted("media", ready=0), now_s=0)
    assert one.ready_count("ready") == 1
    one.apply(counted("other", is_complete=True), now_s=0)
    assert admitted(one, "ready") == 3


def test_an_agenda_is_counted_by_one_after_the_other_on_its_way():
    api, ingest, third = ledger("api"), ledger("ingest"), ledger("third")
    api.admit("ready", "media", now_s=0)
    assert (api.ready_count("ready"), third.ready_count("ready")) == (1, 0)
    api.record_position("ready", "media", (7, 0), lane=2)
    tell(api, ingest, third)
    assert third.ready_count("ready") == 1
    ingest.count_admitted("ready", "media")
    ingest.record_position("ready", "media", (7, 0), lane=("media", 2))
    ingest.mark_processed({2: 8})
    tell(ingest, api, third)
    tell(api, ingest, third)
    assert [one.ready_count("ready") for one in (api, ingest, third)] == [1, 1, 1]
    for one in (api, ingest, third):
        one.apply(counted(placed={"2": (7, 0)}, ready=1), now_s=0)
    tell(ingest, api, third)
    assert [one.ready_count("ready") for one in (api, ingest, third)] == [1, 1, 1]
    for one in (api, ingest, third):
        one.apply(counted(placed={"2": (7, 0)}, ready=0), now_s=0)
    assert [one.ready_count("ready") for one in (api, ingest, third)] == [0, 0, 0]


def test_what_could_not_be_written_counts_no_more():
    one = ledger()
    one.admit("ready", "media", now_s=0)
    one.release("ready", "media")
    one.release("ready", "media")
    assert one.ready_count("ready") == 0
    assert admitted(one, "ready") == 3


def test_what_is_not_processed_counts_however_long_ingest_is_away():
    one = ledger()
    for offset in range(3):
        one.admit("ready", "media", now_s=0)
        one.record_position("ready", "media", (offset, 0), lane=0)
    assert admitted(one, "ready", now_s=1e6) == 0
    one.apply(IngressUsage(ingress_id="ingest", number=1, processed_up_to={"0": 2}), now_s=1e6)
    assert admitted(one, "ready", now_s=1e6) == 2


def test_an_ingress_that_fell_silent_counts_no_more_and_one_that_reports_does():
    one, other = ledger(), ledger("other")
    other.admit("ready", "media", now_s=0)
    tell(other, one)
    assert not tell(other, one, now_s=1)
    tell(other, one, now_s=FULL_REPORT_INTERVAL_S)
    one.drain_reports(FULL_REPORT_INTERVAL_S + PEER_EXPIRY_S)
    assert one.ready_count("ready") == 1
    one.drain_reports(FULL_REPORT_INTERVAL_S + PEER_EXPIRY_S + 1)
    assert one.ready_count("ready") == 0


def test_nothing_is_reported_while_nothing_changes():
    one = ledger()
    assert not one.drain_reports(0)
    assert admitted(one, "free", 5) == 5
    assert not one.drain_reports(1)


def test_a_new_ingress_knows_all_within_seconds():
    one, late = ledger(), ledger("late")
    one.admit("ready", "media", now_s=0)
    tell(one)
    tell(one, late, now_s=FULL_REPORT_INTERVAL_S)
    assert late.ready_count("ready") == 1


def test_what_is_reported_again_counts_once():
    one, other = ledger(), ledger("other")
    other.admit("rate", "media", now_s=0)
    [got] = other.drain_reports(0)
    for _ in range(3):
        one.apply(got, now_s=0)
    assert admitted(one, "rate") == 3


def test_a_rate_that_is_no_more_is_not_counted_any_longer():
    """The other ingress does not know it yet, and reports what it admitted."""
    one = ledger(customers={"rate": Customer(id="rate")})
    other = ledger("other")
    assert admitted(other, "rate") == 4
    tell(other, one)
    assert admitted(one, "rate", most=50) == 50


def test_several_that_are_begun_together_end_one_by_one():
    in_flight = InFlightSubmissions()
    for _ in range(3):
        in_flight.reserve("acme")
    in_flight.locate("acme", "lane", (7, 0))
    in_flight.discard("acme")
    assert in_flight.counts == {"acme": 2}
    in_flight.advance("lane", (7, 0))
    in_flight.discard("acme")
    assert in_flight.counts == {}
    in_flight.discard("acme")
    assert in_flight.counts == {}, "no more end than began"


def test_many_customers_are_reported_in_several_records(monkeypatch):
    customers = {
        f"c{n}": Customer(id=f"c{n}", max_ready=1) for n in range(MAX_CUSTOMERS_PER_RECORD + 1)
    }
    one, other = ledger(customers=customers), ledger("other", customers)
    for name in customers:
        one.admit(name, "media", now_s=0)
    got = tell(one, other)
    assert [len(event.in_flight) for event in got] == [MAX_CUSTOMERS_PER_RECORD, 1]
    assert [event.is_complete for event in got] == [True, False]
    assert all(other.ready_count(name) == 1 for name in customers)


# ---- the rate ----


def test_a_burst_and_then_the_rate_over_all_ingresses():
    one, other = ledger(), ledger("other")
    assert admitted(one, "rate") == 4
    tell(one, other)
    assert admitted(other, "rate") == 0
    assert admitted(other, "rate", now_s=1.0) == 2
    tell(other, one, now_s=1.0)
    assert admitted(one, "rate", now_s=1.0) == 0


def test_what_others_let_in_unheard_is_made_up_for():
    one, other = ledger(), ledger("other")
    assert admitted(one, "rate") + admitted(other, "rate") == 8
    tell(one, other)
    tell(other, one)
    assert admitted(one, "rate", now_s=2.0) == 0
    assert admitted(one, "rate", now_s=2.5) == 1


def test_a_refusal_for_the_rate_says_when_to_come_back():
    one = ledger()
    admitted(one, "rate")
    with pytest.raises(QuotaError, match="2 agendas per second") as got:
        one.admit("rate", "media", now_s=0.25)
    error = got.value
    assert (error.limit, error.present, error.retry_after_s) == (2, 3.5, 0.25)


def test_the_allowances_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(quotas, "MAX_BUCKETS", 2)
    customers = {one: Customer(id=one, max_submit_per_s=1, submit_burst=1) for one in "abc"}
    one = ledger(customers=customers)
    for name in "abc":
        assert admitted(one, name) == 1
    assert admitted(one, "c") == 0
    assert admitted(one, "a") == 1  # forgotten, so full again


# ---- room with the scheduler ----


def test_a_full_insight_lets_nothing_in_and_one_that_is_nearly_full_does():
    one = ledger()
    near = CapacityLimit(what="agendas", limit=10, present=9)
    one.apply(counted(near=near), now_s=0)
    assert admitted(one, "free", 5) == 5
    assert one.is_limited("free", "media")
    full = CapacityLimit(what="agendas", limit=10, present=12)
    one.apply(counted(near=full), now_s=0)
    with pytest.raises(CapacityError, match=r"12 agendas waiting and takes 10"):
        one.admit("free", "media", now_s=0)
    assert admitted(one, "free", 5, insight_id="other") == 5
    one.apply(counted(), now_s=0)
    assert admitted(one, "free", 5) == 5
    assert not one.is_limited("free", "media")


def test_small_insights_stay_open_while_large_ones_fill_a_scheduler():
    limit = MemoryLoad(agendas=100, size=10_000)
    loads = {
        "large": MemoryLoad(95, 950),
        "small": MemoryLoad(6, 60),
        "empty": MemoryLoad(0, 0),
    }
    assert {one: got.is_full for one, got in capacity_limits(loads, limit).items()} == {
        "large": True
    }
    assert capacity_limits({"large": MemoryLoad(80, 800)}, limit) == {}
    [near] = capacity_limits({"large": MemoryLoad(92, 800)}, limit).values()
    assert (near.what, near.present, near.is_full) == ("agendas", 92, False)


def test_bytes_fill_a_scheduler_too_and_what_is_full_is_reported_first():
    limit = MemoryLoad(agendas=100, size=10_000)
    [full] = capacity_limits({"a": MemoryLoad(95, 10_000)}, limit).values()
    assert (full.what, full.limit, full.is_full) == ("bytes", 10_000, True)
    [full] = capacity_limits({"a": MemoryLoad(100, 9_500)}, limit).values()
    assert (full.what, full.is_full) == ("agendas", True)


# ---- what counts are made of ----


def test_changes_are_reported_once_and_zeros_only_after_something():
    changes = UsageDelta()
    assert not changes
    assert changes.take_changed({"a": 1}, ["a", "b"]) == {"a": 1}
    assert changes.take_changed({"a": 1}, ["a"]) == {}
    assert changes
    assert changes.take_changed({}, ["a"]) == {"a": 0}
    assert changes.complete({"a": 2, "b": 0}) == {"a": 2}


def test_sums_follow_each_teller():
    sums = UsageTotals()
    sums.apply("x", {"a": 2, "b": 1}, is_complete=True)
    sums.apply("y", {"a": 3}, is_complete=False)
    sums.apply("x", {"a": 1, "b": 0}, is_complete=False)
    assert (sums.of("a"), sums.of("b")) == (4, 0)
    sums.apply("x", {"c": 1}, is_complete=True)
    assert (sums.of("a"), sums.of("c")) == (3, 1)
    sums.forget("y")
    assert sums.of("a") == 0


def test_portions_of_nothing_are_one():
    assert [*chunks({})] == [{}]


def test_in_a_long_lane_neighbours_of_a_customer_leave_together_and_late_ones_too(monkeypatch):
    monkeypatch.setattr(quotas, "LONG_LANE", 0)
    in_flight = InFlightSubmissions()
    for offset in (5, 7, 6):
        in_flight.reserve("a")
        in_flight.locate("a", "lane", (offset, 0))
    in_flight.reserve("b")
    in_flight.locate("b", "lane", (8, 0))
    in_flight.locate("b", "lane", (9, 0))  # never reserved
    in_flight.advance("lane", (6, 0))
    assert in_flight.counts == {"a": 3, "b": 1}
    in_flight.advance("lane", (8, 0))
    assert in_flight.counts == {}
    in_flight.advance("lane", (9, 0))
    assert in_flight.drain_changed() == {"a", "b"}


# ---- insights ----


def insight_ledger(name="one"):
    insights = {"media": Insight(id="media", max_ready=3)}
    return QuotaLedger(name, CUSTOMERS.get, insights.get)


def test_an_insight_takes_so_many_of_all_customers_together():
    one = insight_ledger()
    assert admitted(one, "ready", 2) == 2
    assert admitted(one, "free") == 1
    assert admitted(one, "unknown") == 0
    assert admitted(one, "unknown", insight_id="other") == 100


def test_a_full_insight_lets_priority_1_pass_up_to_twice_as_many():
    one = insight_ledger()
    admitted(one, "free")
    for _ in range(3):
        one.admit("free", "media", now_s=0.0, is_urgent=True)
    with pytest.raises(InsightFullError) as refused:
        one.admit("free", "media", now_s=0.0, is_urgent=True)
    assert (refused.value.limit, refused.value.present) == (6, 6)
    assert "may have 6 (max_ready)" in str(refused.value)


def test_priority_1_does_not_pass_the_customers_own_limit():
    one = insight_ledger()
    for _ in range(3):
        one.admit("ready", "media", now_s=0.0, is_urgent=True)
    with pytest.raises(QuotaError, match="customer 'ready' has 3 ready agendas"):
        one.admit("ready", "media", now_s=0.0, is_urgent=True)


def test_an_insights_agendas_are_counted_by_somebody_all_the_way():
    api, ingest = insight_ledger("api"), insight_ledger("ingest")
    api.admit("free", "media", now_s=0.0)
    tell(api, ingest)
    account = insight_account("media")
    assert ingest.ready_count(account) == 1
    api.record_position("free", "media", (7, 0), lane=2)
    ingest.count_admitted("free", "media")
    ingest.record_position("free", "media", (7, 0), lane=("media", 2))
    ingest.mark_processed({2: 8})
    tell(ingest, api)
    assert api.ready_count(account) == 1
    report = BacklogUsage(
        insight_id="media", at=START, customers={account: 1}, placed={"2": (7, 0)}
    )
    for one in (api, ingest):
        one.apply(report, now_s=0.0)
    tell(ingest, api)
    tell(api, ingest)
    assert api.ready_count(account) == ingest.ready_count(account) == 1
    assert admitted(api, "free") == 2


def test_an_insights_agenda_that_was_not_written_makes_room_again():
    one = insight_ledger()
    admitted(one, "free")
    one.release("free", "media")
    assert admitted(one, "free") == 1
