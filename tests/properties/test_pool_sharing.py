"""Whatever insights want of a pool, nothing is wasted and nobody is wronged."""

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.policy.flow_control.pool_sharing import PoolDemand, SharedPool, pool_limits

WEIGHTS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 7.0])


@st.composite
def claims(draw):
    demands = []
    for number in range(draw(st.integers(1, 6))):
        demand = draw(st.integers(0, 40))
        demands.append(
            PoolDemand(
                insight_id=f"i{number}",
                weight=draw(WEIGHTS),
                minimum=draw(st.integers(0, 12)),
                demand=demand,
                in_flight=draw(st.just(0) | st.integers(0, demand)),
            )
        )
    return demands


@given(st.integers(0, 80), claims())
def test_all_of_the_capacity_is_given_to_those_who_want_it(capacity, demands):
    given_out = pool_limits(capacity, demands)
    wanted = min(capacity, sum(one.demand for one in demands))
    assert sum(given_out.values()) == max(wanted, sum(one.in_flight for one in demands))
    assert all(one.in_flight <= given_out[one.insight_id] <= one.demand for one in demands)


@given(st.integers(0, 80), claims())
def test_minimums_come_first(capacity, demands):
    """Who may have more than its minimum only keeps what it has, while others lack theirs."""
    given_out = pool_limits(capacity, demands)
    floors = {one.insight_id: min(one.minimum, one.demand) for one in demands}
    if any(given_out[name] < floor for name, floor in floors.items()):
        for one in demands:
            assert given_out[one.insight_id] <= max(floors[one.insight_id], one.in_flight)


@given(st.integers(0, 80), claims())
def test_who_got_less_than_asked_has_no_less_per_weight_than_anyone_above_its_minimum(
    capacity, demands
):
    """But for what runs."""
    given_out = pool_limits(capacity, demands)
    for short in demands:
        if given_out[short.insight_id] == short.demand:
            continue
        for other in demands:
            own = max(other.in_flight, min(other.minimum, other.demand) + 1)
            if given_out[other.insight_id] > own:
                level = (given_out[other.insight_id] - 1) / other.weight
                assert (given_out[short.insight_id] + 1) / short.weight >= level - 1e-9


@given(
    st.integers(1, 8),
    st.lists(st.sampled_from([0.125, 0.5, 1.0, 3.0]), min_size=2, max_size=6),
    st.randoms(use_true_random=False),
)
def test_in_the_long_run_each_has_its_exact_share(capacity, weights, random):
    """All want everything; agendas end at random and are followed by others."""
    pool, ends = SharedPool(), [[] for _ in weights]
    held_s, now, until = [0.0 for _ in weights], 0.0, 200.0
    while now < until:
        for mine, out in enumerate(ends):
            demands = [
                PoolDemand(f"i{one}", weight, 0, 99, len(ends[one]), held_s[one])
                for one, weight in enumerate(weights)
            ]
            room = pool.limits(capacity, demands, now)[f"i{mine}"] - len(out)
            out += [now + random.choice([0.5, 1.0, 2.0]) for _ in range(room)]
        then = min(end for out in ends for end in out)
        for one, out in enumerate(ends):
            held_s[one] += len(out) * (then - now)
            out[:] = [end for end in out if end > then]
        now = then
    for held, weight in zip(held_s, weights, strict=True):
        due = capacity * weight / sum(weights)
        assert abs(held / now - due) < 0.03 * capacity
