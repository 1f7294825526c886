"""Which insight an agenda belongs to."""

import pytest

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.definitions import Customer, Insight, Mappers
from pop_stream.model.errors import MissingDefinitionError, SubmissionError
from pop_stream.policy.ingress.routing import InsightRouter


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
    assert InsightRouter([insight("other"), insight("this", **mappers)]).route(SCAN) == "this"


@pytest.mark.parametrize(
    "mappers",
    [{}, {"operation_types": ("sca",)}, {"operation_names": ("scan",)}, {"params": ("tier=",)}],
)
def test_nothing_fits_by_half(mappers):
    with pytest.raises(SubmissionError) as refused:
        InsightRouter([insight("this", **mappers)]).route(SCAN)
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
    assert InsightRouter([insight("this", params=("gpu=yes",))]).route(deep) == "this"


def test_precedence_wins_then_the_more_specific_mapper_then_the_id():
    types = insight("types", operation_types=("scan",))
    names = insight("names", operation_names=("look",))
    params = insight("params", params=("tier=gold",))
    urgent = insight("urgent", operation_types=("scan",), precedence=1)
    twin = insight("another", operation_types=("scan",))
    assert InsightRouter([types, names, params, urgent]).route(SCAN) == "urgent"
    assert InsightRouter([types, names, params]).route(SCAN) == "params"
    assert InsightRouter([types, names]).route(SCAN) == "names"
    assert InsightRouter([types, twin]).route(SCAN) == "another"


def test_the_order_of_definition_does_not_matter():
    several = [insight(name, operation_types=("scan",)) for name in "cab"]
    assert {InsightRouter(several[n:] + several[:n]).route(SCAN) for n in range(3)} == {"a"}


@pytest.mark.parametrize("wanted", ["slow", "SLOW", "The slow one"])
def test_a_wanted_insight_wins_if_it_fits(wanted):
    fast = insight("fast", operation_types=("scan",), precedence=9)
    slow = insight("slow", operation_types=("scan",), title="The slow one")
    asks = agenda(("look", "scan"), params={"defaultInsight": wanted})
    assert InsightRouter([fast, slow]).route(asks) == "slow"


def test_a_wanted_insight_that_does_not_fit_is_passed_over():
    asks = agenda(("look", "scan"), params={"defaultInsight": "other"})
    known = [
        insight("this", operation_types=("scan",)),
        insight("other", operation_types=("x",)),
    ]
    assert InsightRouter(known).route(asks) == "this"


def placed(*insights, agenda=SCAN, **customer):
    known = {"acme": Customer(id="acme", **customer)} if customer else {}
    return InsightRouter(insights, known).route(agenda)


def owned(name, **changes):
    return Insight(id=name, mappers=Mappers(operation_types=("scan",)), **changes)


def test_only_insights_that_serve_the_customer_take_its_work():
    foreign = owned("a", owner="beta", precedence=9)
    allowed = owned("b", owner="beta", visibility="allowed", allowed=("ACME",))
    assert placed(foreign, owned("z")) == "z"
    assert placed(foreign, allowed, owned("z")) == "b"
    assert placed(owned("mine", owner="acme", precedence=1), owned("a")) == "mine"
    with pytest.raises(MissingDefinitionError):
        placed(foreign)


def test_a_customer_bound_to_a_pool_stays_in_it():
    elsewhere = owned("a", pool="gpu", precedence=9)
    assert placed(elsewhere, owned("z", pool="cpu"), pool="cpu") == "z"
    assert placed(elsewhere, owned("z", pool="cpu"), weight=2) == "a"


def test_what_fits_nothing_goes_to_the_customers_default():
    rest = insight("rest")
    assert placed(rest, default_insight="rest") == "rest"
    assert placed(rest, owned("a"), default_insight="rest") == "a"
    for nothing in ({"default_insight": "gone"}, {"weight": 2}):
        with pytest.raises(MissingDefinitionError):
            placed(rest, **nothing)
    with pytest.raises(MissingDefinitionError):
        placed(Insight(id="rest", owner="beta"), default_insight="rest")


@pytest.mark.parametrize("name", ["default_insight", "defaultInsight"])
def test_the_wish_has_two_names(name):
    asks = agenda(("look", "scan"), params={name: "slow"})
    assert placed(owned("fast", precedence=9), owned("slow"), agenda=asks) == "slow"


def test_every_insight_is_explained_but_those_of_others():
    several = [
        owned("a", precedence=1, pool="cpu"),
        owned("b", pool="cpu"),
        owned("c", pool="gpu"),
        insight("d"),
        owned("e", owner="beta"),
    ]
    known = {"acme": Customer(id="acme", pool="cpu")}
    got = InsightRouter(several, known).explain(SCAN)
    assert [(one.insight_id, one.outcome, one.specificity) for one in got] == [
        ("a", "chosen", 1),
        ("b", "outranked", 1),
        ("c", "other_pool", 1),
        ("d", "no_match", 0),
    ]
    assert [one.why.partition(",")[0] for one in got[:2]] == [
        "it fits by operation_types 'scan'"
    ] * 2
    assert "'gpu', not 'cpu'" in got[2].why


def test_a_default_and_a_dead_end_are_explained_too():
    known = {"acme": Customer(id="acme", default_insight="d")}
    [one] = InsightRouter([insight("d")], known).explain(SCAN)
    assert (one.outcome, one.matches) == ("chosen", ())
    assert "default insight" in one.why
    [one] = InsightRouter([insight("d")]).explain(SCAN)
    assert one.outcome == "no_match"
