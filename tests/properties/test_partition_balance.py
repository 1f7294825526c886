"""Where agendas of a round go, for any round and any lines."""

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.policy.flow_control.emission_gate import spread


@st.composite
def rounds(draw):
    waiting = draw(st.lists(st.integers(0, 20), min_size=1, max_size=8))
    keyed_partitions = draw(st.lists(st.integers(0, len(waiting) - 1), max_size=40))
    return keyed_partitions, waiting


def replayed(keyed_partitions, waiting, chosen):
    """Each agenda's home and line, with the lengths of all lines before it."""
    counts = [*waiting]
    for home, line in zip(keyed_partitions, chosen, strict=True):
        yield home, line, [*counts]
        counts[line] += 1


@given(rounds())
def test_every_agenda_goes_to_a_shortest_line(one):
    keyed_partitions, waiting = one
    for _, line, counts in replayed(
        keyed_partitions, waiting, spread(keyed_partitions, waiting)
    ):
        assert counts[line] == min(counts)


@given(rounds())
def test_an_agenda_stays_at_home_where_no_line_is_shorter(one):
    keyed_partitions, waiting = one
    for home, line, counts in replayed(
        keyed_partitions, waiting, spread(keyed_partitions, waiting)
    ):
        assert (line == home) == (counts[home] == min(counts))


@given(rounds(), st.integers(0, 40))
def test_two_rounds_are_spread_as_one(one, cut):
    keyed_partitions, waiting = one
    first = spread(keyed_partitions[:cut], waiting)
    counts = [*waiting]
    for line in first:
        counts[line] += 1
    assert first + spread(keyed_partitions[cut:], counts) == spread(keyed_partitions, waiting)
