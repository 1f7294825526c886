"""The policy keeps its promises in any run of the simulator, and the audit judges rightly."""

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.core.audit import audit
from pop_stream.core.definitions import Customer, Insight
from pop_stream.core.ids import CustomerId
from pop_stream.core.simulation import simulate
from pop_stream.core.workload import (
    Arrival,
    Plant,
    Redefine,
    Regroup,
    Reload,
    Setting,
)

CUSTOMERS = tuple(map(CustomerId, "abcd"))
COSTS = (0.001, 0.005, 0.02, 0.1, 1.0)
WEIGHTS = (0.5, 1.0, 2.0, 7.0)

customers = st.sampled_from(CUSTOMERS)
weights = st.sampled_from(WEIGHTS)
instants = st.floats(0, 3).map(lambda seconds: round(seconds, 3))
delays = st.sampled_from((0.0, 0.001, 0.005, 0.03))
targets = st.sampled_from(("auto", 1, 3, 20))
plants = st.builds(
    Plant,
    runners=st.integers(3, 9),
    partitions=st.integers(1, 3),
    intake_s=delays,
    emission_s=delays,
    relay_s=delays,
)


@st.composite
def arrivals(draw, *, declared=None):
    """Bursts of agendas of one customer each; `declared` draws what they say they cost."""
    bursts = draw(
        st.lists(
            st.tuples(instants, customers, st.integers(1, 60), st.sampled_from(COSTS)),
            min_size=1,
            max_size=12,
        )
    )
    found = []
    for at, customer, count, runtime in bursts:
        cost = runtime if declared is None else draw(declared)
        found += [Arrival(at, customer, runtime, cost)] * count
    return sorted(found, key=lambda one: one.at)


@st.composite
def changes(draw):
    kinds = {
        "weight": st.builds(
            Redefine, instants, st.builds(Customer, id=customers, weight=weights)
        ),
        "pause": st.builds(
            Redefine, instants, st.builds(Customer, id=customers, paused=st.booleans())
        ),
        "cap": st.builds(
            Redefine,
            instants,
            st.builds(Customer, id=customers, max_in_flight=st.integers(1, 4)),
        ),
        "crash": st.builds(Reload, instants, st.sampled_from((0.0, 0.1, 1.0))),
        "regroup": st.builds(Regroup, instants, st.sampled_from((0.0, 0.1, 1.0))),
    }  # fmt: skip
    return draw(st.lists(st.one_of(*kinds.values()), max_size=4))


@st.composite
def runs(draw, *, declared=None):
    setting = Setting(
        insight=Insight(id="x", target=draw(targets)),
        customers={
            one: Customer(id=one, weight=draw(weights)) for one in CUSTOMERS
        },
        plant=draw(plants),
        changes=draw(changes()),
    )  # fmt: skip
    return simulate(draw(arrivals(declared=declared)), setting)


@given(runs())
def test_worst_gap_is_within_the_bound(run):
    assert audit(run.log, depth=run.depth).gap_over_bound <= 1 + 1e-9


@given(runs(declared=st.none() | st.sampled_from((0.0001, *COSTS, 100.0))))
def test_worst_gap_is_within_the_bound_whatever_costs_are_declared(run):
    assert audit(run.log, depth=run.depth).gap_over_bound <= 1 + 1e-9
