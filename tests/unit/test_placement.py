"""Which insight an agenda belongs to."""

import pytest

from pop_stream.core.agenda import parse_agenda
from pop_stream.core.definitions import Insight, Mappers
from pop_stream.core.errors import SubmissionError
from pop_stream.core.placement import Placement


def insight(name: str, **mappers):
    changes = {key: mappers.pop(key) for key in ("precedence", "title") if key in mappers}
    return Insight(id=name, mappers=Mappers(**mappers), **changes)


def agenda(*operations: tuple[str, str], **changes):
    listed = [{"name": name, "type": kind} for name, kind in operations]
    return parse_agenda({"customer_id": "acme", "operations": listed, **changes})


SCAN = agenda(("Fetch", "HTTP"), ("look", "scan"), params={"Tier": "Gold", "n": 3, "on": True})


@pytest.mark.parametrize(
    "mappers",
    [
        {"operation_types": ("scan",)},
        {"operation_types": ("nothing", "http")},
        {"operation_names": ("FETCH",)},
        {"params": ("tier=gold",)},
        {"params": ("n=3",)},
        {"params": ("on=true",)},
    ],
)
def test_any_value_of_any_mapper_fits_ignoring_case(mappers):
    assert Placement([insight("other"), insight("this", **mappers)]).place(SCAN) == "this"


@pytest.mark.parametrize(
    "mappers",
    [{}, {"operation_types": ("sca",)}, {"operation_names": ("scan",)}, {"params": ("tier=",)}],
)
def test_nothing_fits_by_half(mappers):
    with pytest.raises(SubmissionError) as refused:
        Placement([insight("this", **mappers)]).place(SCAN)
    [issue] = refused.value.issues
    assert issue.field == "operations"
    assert issue.value == "HTTP, scan"
    assert "no insight takes" in issue.message


def test_params_of_operations_count_as_well():
    deep = parse_agenda(
        {
            "customer_id": "acme",
            "operations": [{"name": "a", "type": "t", "params": {"gpu": "yes", "deep": {}}}],
        }
    )
    assert Placement([insight("this", params=("gpu=yes",))]).place(deep) == "this"


def test_precedence_wins_then_the_more_specific_mapper_then_the_id():
    types = insight("types", operation_types=("scan",))
    names = insight("names", operation_names=("look",))
    params = insight("params", params=("tier=gold",))
    urgent = insight("urgent", operation_types=("scan",), precedence=1)
    twin = insight("another", operation_types=("scan",))
    assert Placement([types, names, params, urgent]).place(SCAN) == "urgent"
    assert Placement([types, names, params]).place(SCAN) == "params"
    assert Placement([types, names]).place(SCAN) == "names"
    assert Placement([types, twin]).place(SCAN) == "another"


def test_the_order_of_definition_does_not_matter():
    several = [insight(name, operation_types=("scan",)) for name in "cab"]
    assert {Placement(several[n:] + several[:n]).place(SCAN) for n in range(3)} == {"a"}


@pytest.mark.parametrize("wanted", ["slow", "SLOW", "The slow one"])
def test_a_wanted_insight_wins_if_it_fits(wanted):
    fast = insight("fast", operation_types=("scan",), precedence=9)
    slow = insight("slow", operation_types=("scan",), title="The slow one")
    asks = agenda(("look", "scan"), params={"defaultInsight": wanted})
    assert Placement([fast, slow]).place(asks) == "slow"


def test_a_wanted_insight_that_does_not_fit_is_passed_over():
    asks = agenda(("look", "scan"), params={"defaultInsight": "other"})
    known = [
        insight("this", operation_types=("scan",)),
        insight("other", operation_types=("x",)),
    ]
    assert Placement(known).place(asks) == "this"
