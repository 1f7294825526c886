"""What other weights would do to a standing backlog, beside what they do."""

import pytest
from backlogs import START, backlog, incomparable_origins, several
from hypothesis import example, given
from hypothesis import strategies as st

from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.flow_control import what_if

NOW = START.timestamp() + 10
SHARES = {"acme": Share(weight=2.0), "beta": Share(weight=1.0), "gamma": Share(weight=1.0)}


def filled(shares, sizes, *, algorithm="weighted_fair", out=0, aging_s=None):
    target = backlog(shares, algorithm=algorithm, aging_s=aging_s)
    for customer, size in sizes.items():
        if size:
            agendas = several(customer, size, cost_s=2.0)
            target.filter_new(agendas, incomparable_origins(size))
            target.place(agendas)
    target.choose(out, NOW)
    return target


def by_customer(forecast):
    return {one.customer_id: one for one in forecast.customers}


def starts(target, count) -> list[str]:
    return [one.customer_id for one in target.choose(count, NOW)]


SIZES = st.fixed_dictionaries({one: st.integers(0, 25) for one in SHARES})
WEIGHT = st.sampled_from([0.5, 1.0, 3.0, 8.0])


@given(
    SIZES, WEIGHT, st.sampled_from(["weighted_fair", "round_robin", "fifo"]), st.integers(0, 9)
)
@example({"acme": 9, "beta": 7, "gamma": 1}, 3.0, "weighted_fair", 9)  # level, but for rounding
def test_it_says_what_comes_to_pass(sizes, weight, algorithm, out):
    target = filled(dict(SHARES), sizes, algorithm=algorithm, out=out)
    found = what_if.forecast(target, {"acme": weight}, now=NOW, rate_per_s=1.0)
    changed = dict(SHARES)
    really = filled(changed, sizes, algorithm=algorithm, out=out)
    changed["acme"] = Share(weight=weight)
    really.queue.refresh_shares()

    for seen, kind in ((target, "before"), (really, "after")):
        order = starts(seen, 10_000)
        for customer, one in by_customer(found).items():
            expected = getattr(one, kind)
            assert expected.started[-1] == order.count(customer) == one.ready
            # All cost alike, so one starts each second.
            assert expected.next_s == order.index(customer)
            last = len(order) - 1 - order[::-1].index(customer)
            assert expected.last_s == last


def test_a_greater_weight_starts_sooner_and_another_later():
    target = filled(dict(SHARES), {"acme": 20, "beta": 20})
    found = by_customer(what_if.forecast(target, {"beta": 8.0}, now=NOW, rate_per_s=2.0))
    assert found["beta"].after.last_s < found["beta"].before.last_s
    assert found["acme"].after.last_s > found["acme"].before.last_s
    assert (found["beta"].weight, found["beta"].new_weight) == (1.0, 8.0)


def test_nothing_is_changed_by_asking():
    target = filled(dict(SHARES), {"acme": 5, "beta": 5})
    what_if.forecast(target, {"acme": 9.0}, now=NOW, rate_per_s=1.0)
    alike = filled(dict(SHARES), {"acme": 5, "beta": 5})
    assert starts(target, 10) == starts(alike, 10)


@pytest.mark.parametrize(
    ("share", "started", "last_s"),
    [
        (Share(paused=True), 0, None),
        (Share(rate_per_s=0.5), 10, 18.0),
        (Share(max_in_flight=1), 10, 18.0),
    ],
)
def test_limits_of_a_customer_hold(share, started, last_s):
    target = filled({"acme": share}, {"acme": 10})
    found = what_if.forecast(target, {"acme": 9.0}, now=NOW, rate_per_s=100.0)
    [acme] = found.customers
    assert acme.after.started[-1] == started
    assert acme.after.last_s == (pytest.approx(last_s) if last_s else None)


def test_a_backlog_is_played_to_a_bound(monkeypatch):
    monkeypatch.setattr(what_if, "MAX_STARTS", 6)
    monkeypatch.setattr(what_if, "MAX_CUSTOMERS", 1)
    target = filled(dict(SHARES), {"acme": 5, "beta": 50})
    found = what_if.forecast(target, {"acme": 1.0, "gamma": 1.0}, now=NOW, rate_per_s=1.0)
    assert [one.customer_id for one in found.customers] == ["acme"]
    assert found.others == 1
    [beta] = what_if.forecast(target, {"beta": 1.0}, now=NOW, rate_per_s=1.0).customers
    assert (beta.before.started[-1] < 6, beta.before.last_s) == (True, None)


def test_more_urgent_agendas_go_first():
    target = backlog({}, aging_s=1000.0)
    target.place([*several("late", 3, priority=1), *several("busy", 3, priority=5)])
    found = by_customer(what_if.forecast(target, {"busy": 100.0}, now=NOW, rate_per_s=1.0))
    assert found["late"].after.last_s < found["busy"].after.next_s


def test_without_weights_there_is_no_forecast():
    assert what_if.forecast(filled({}, {"acme": 1}), {}, now=NOW, rate_per_s=1.0) is None


def test_nobody_waiting_is_no_fault():
    found = what_if.forecast(filled({}, {}), {"acme": 2.0}, now=NOW, rate_per_s=0.0)
    assert (found.customers, found.horizon_s) == ((), 0.0)
