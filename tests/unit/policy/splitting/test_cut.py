"""What a payload is divided into, case by case; and what is wrong with those that cannot be."""

import pytest
from pydantic import ValidationError

from pop_stream.model.errors import SubmissionError
from pop_stream.model.split import Split
from pop_stream.policy.splitting import cut as cut_module
from pop_stream.policy.splitting.cut import cut

SPLIT = Split(
    attributes=("section", "store", "product"),
    schemas={"by_store": ("store",), "whole": ()},
    max_children=100,
)
NESTED = {
    "section": {
        "food": {"stores": {"s1": {"products": ["milk", "eggs"]}, "s2": None}},
        "toys": {"stores": ["s3", "s4"]},
        "idle": None,
    },
    "currency": "EUR",
}


def children(payload, split=SPLIT):
    found = cut(payload, split)
    made = [*found.payloads()]
    assert len(made) == found.count
    return made


def issue(payload, split=SPLIT):
    with pytest.raises(SubmissionError) as refused:
        cut(payload, split)
    return refused.value.issues[0]


def test_without_directives_the_payload_is_one_child():
    assert children(NESTED) == [NESTED]
    assert children({"a": 1}) == [{"a": 1}]


def test_flat_values_that_stay_together_are_a_list_under_the_plural_name():
    assert children({"section": {"a": None, "b": None}}) == [{"sections": ["a", "b"]}]
    assert children({"section": ["a"]}) == [{"sections": ["a"]}]
    assert children({"section": "a"}) == [{"section": "a"}]


def test_isolated_attribute_gives_each_value_a_child_and_keeps_the_rest():
    payload = {"isolate_sections": True, "sections": ["a", "b"], "currency": "EUR"}
    assert children(payload) == [
        {"sections": ["a"], "currency": "EUR"},
        {"sections": ["b"], "currency": "EUR"},
    ]


@pytest.mark.parametrize("directive", ["isolate_store", "isolate_stores"])
@pytest.mark.parametrize("name", ["store", "stores"])
def test_attributes_and_directives_are_named_in_singular_or_plural(directive, name):
    assert children({directive: True, name: ["a", "b"]}) == [
        {"stores": ["a"]},
        {"stores": ["b"]},
    ]


@pytest.mark.parametrize("directive", ["max_product_per_batch", "max_products_per_batch"])
def test_batches_have_so_many_values_at_most(directive):
    payload = {directive: 2, "products": [1, 2, 3], "isolate_products": True}
    assert children(payload) == [{"products": [1, 2]}, {"products": [3]}]


def test_directive_of_the_root_counts_below_in_the_order_of_the_schema():
    payload = {**NESTED, "isolate_stores": True}
    assert [(one["sections"], one.get("stores")) for one in children(payload)] == [
        (["food"], ["s1"]),
        (["food"], ["s2"]),
        (["toys"], ["s3"]),
        (["toys"], ["s4"]),
        (["idle"], None),
    ]


def test_directive_deep_inside_cuts_what_is_around_it():
    inner = {"products": ["milk", "eggs"], "isolate_products": True}
    payload = {
        "sections": {"food": {"stores": {"s1": inner}}, "toys": {"stores": ["s3", "s4"]}}
    }
    assert children(payload) == [
        {"sections": ["food"], "stores": ["s1"], "products": ["milk"]},
        {"sections": ["food"], "stores": ["s1"], "products": ["eggs"]},
        {"sections": ["toys"], "stores": ["s3", "s4"]},
    ]


def test_nearest_directive_wins():
    payload = {
        "isolate_stores": True,
        "sections": {
            "food": {"stores": [1, 2], "isolate_stores": False},
            "toys": {"stores": [3, 4]},
        },
    }
    assert [one["stores"] for one in children(payload)] == [[1, 2], [3], [4]]


def test_attributes_beside_each_other_are_cut_in_all_combinations():
    payload = {
        "isolate_sections": True,
        "sections": ["a", "b"],
        "isolate_stores": True,
        "stores": [1, 2],
    }
    found = [(one["sections"][0], one["stores"][0]) for one in children(payload)]
    assert found == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_flat_list_that_is_not_isolated_stays_whole_above_one_that_is():
    payload = {"sections": ["a", "b"], "stores": [1, 2], "isolate_stores": True}
    assert children(payload) == [
        {"sections": ["a", "b"], "stores": [1]},
        {"sections": ["a", "b"], "stores": [2]},
    ]


def test_value_without_the_attribute_that_is_isolated_is_not_lost():
    payload = {"isolate_stores": True, "sections": {"a": {"k": 1}, "b": {"stores": [1]}}}
    assert children(payload) == [
        {"k": 1, "sections": ["a"]},
        {"sections": ["b"], "stores": [1]},
    ]


def test_data_of_an_inner_object_wins_over_the_same_further_out():
    payload = {"isolate_sections": True, "sections": {"a": {"rate": 2}, "b": None}, "rate": 1}
    assert [one["rate"] for one in children(payload)] == [2, 1]


def test_data_below_the_last_attribute_stays_in_the_child():
    payload = {"isolate_stores": True, "stores": {"s1": {"colour": {"hue": 1}}}}
    [only] = children({**payload, "split_schema": "by_store"})
    assert only == {"stores": ["s1"], "colour": {"hue": 1}}


def test_list_of_objects_is_cut_object_by_object():
    payload = {"isolate_sections": True, "sections": [{"a": {"x": 1}}, {"b": None}]}
    assert children(payload) == [{"sections": ["a"], "x": 1}, {"sections": ["b"]}]


def test_schema_of_another_name_cuts_along_its_own_attributes():
    payload = {"sections": {"a": 1}, "stores": [1, 2], "isolate_stores": True}
    assert children({**payload, "split_schema": "by_store"}) == [
        {"sections": {"a": 1}, "stores": [1]},
        {"sections": {"a": 1}, "stores": [2]},
    ]
    assert children({"sections": ["a"], "split_schema": "default"}) == [{"sections": ["a"]}]


def test_days_alone_are_cut():
    payload = {"period": "last_2_days", "nominal": "2019-04-30"}
    whole = {"nominal": "2019-04-30", "date_list": ["2019-04-28", "2019-04-29"]}
    assert children(payload) == [whole]
    each = [one["date_list"] for one in children({**payload, "isolate_days": True})]
    assert each == [["2019-04-28"], ["2019-04-29"]]
    assert children({**payload, "isolate_days": True, "split_schema": "whole"})[0]["date_list"]


def test_days_are_the_outermost():
    payload = {
        "period": "last_3_days",
        "nominal": "2019-04-30",
        "max_days_per_batch": 2,
        "isolate_stores": True,
        "stores": [1, 2],
    }
    assert [(one["date_list"], one["stores"]) for one in children(payload)] == [
        (["2019-04-27", "2019-04-28"], [1]),
        (["2019-04-27", "2019-04-28"], [2]),
        (["2019-04-29"], [1]),
        (["2019-04-29"], [2]),
    ]


def test_days_that_the_payload_lists_itself_are_cut_too():
    payload = {"date_list": ["2026-01-01", "2026-01-05"], "isolate_days": True}
    assert [one["date_list"] for one in children(payload)] == [["2026-01-01"], ["2026-01-05"]]


@pytest.mark.parametrize(
    ("nominal", "zone", "day"),
    [
        ("2026-03-01", None, "2026-03-01"),
        ("2026-03-01T23:30:00Z", None, "2026-03-01"),
        ("2026-03-01T23:30:00Z", "Europe/Berlin", "2026-03-02"),
        ("2026-03-02T00:30:00+02:00", None, "2026-03-02"),
        ("2026-03-02T00:30:00+02:00", "UTC", "2026-03-01"),
    ],
)
def test_the_nominal_day_is_that_of_the_zone(nominal, zone, day):
    payload = {"period": "today", "nominal": nominal}
    assert children(payload, Split(timezone=zone))[0]["date_list"] == [day]


@pytest.mark.parametrize(
    ("payload", "field", "value", "says"),
    [
        ([1], "payload", "[1]", "is an object"),
        ({"split_schema": "x"}, "payload.split_schema", "x", "default, by_store, whole"),
        ({"split_schema": ["x"]}, "payload.split_schema", "x", "name one of"),
        ({"isolate_shops": True}, "payload.isolate_shops", "true", "section, store, product"),
        ({"max_x_per_batch": 1}, "payload.max_x_per_batch", "1", "about no attribute"),
        ({"isolate_stores": "yes", "stores": [1]}, "payload.isolate_stores", "yes", "true or"),
        (
            {"max_stores_per_batch": 0, "stores": [1]},
            "payload.max_stores_per_batch",
            "0",
            "at l",
        ),
        (
            {"max_stores_per_batch": True, "stores": [1]},
            "payload.max_stores_per_batch",
            "t",
            "w",
        ),
        ({"store": 1, "stores": [2]}, "payload.store", "1", "stands beside stores"),
        (
            {"isolate_store": True, "isolate_stores": True, "stores": [1]},
            "payload.isolate_store",
            "true",
            "stands beside isolate_stores",
        ),
        ({"isolate_stores": True, "stores": [[1]]}, "payload.stores", "1", "list of texts and"),
        ({"isolate_stores": True, "stores": [{"a": 1}, 2]}, "payload.stores", "a", "list of"),
        ({"isolate_sections": True, "sections": {"a": "b"}}, "payload.sections.a", "b", "null"),
        (
            {"sections": {"a": {"sections": [1], "stores": [1]}}, "isolate_stores": True},
            "payload.sections.a.sections",
            "1",
            "inside a value of the same attribute",
        ),
        ({"period": "today"}, "payload.nominal", "nothing", "pop.occasion"),
        ({"period": "today", "nominal": "soon"}, "payload.nominal", "soon", "give a day"),
        (
            {"period": "today", "nominal": "2026-01-01T00:00:00"},
            "payload.nominal",
            "2026",
            "with its offset",
        ),
        (
            {"period": "today", "nominal": "2026-01-01", "date_list": []},
            "payload.date_list",
            "",
            "beside period",
        ),
        ({"isolate_stores": True, "stores": [*range(101)]}, "payload", "101 children", "100"),
        ({"isolate_days": 1, "date_list": ["x"]}, "payload.isolate_days", "1", "true or false"),
    ],
)
def test_payload_that_cannot_be_divided_says_field_value_and_remedy(
    payload, field, value, says
):
    found = issue(payload)
    assert found.field == field
    assert value in found.value
    assert says in found.message


def test_what_is_not_cut_may_be_anything():
    payload = {"sections": {"a": "text", "b": [1]}, "stores": [[1]]}
    assert children(payload) == [payload]


def test_time_of_a_cut_is_bounded(monkeypatch):
    monkeypatch.setattr(cut_module, "MAX_STEPS", 50)
    nested = {f"n{one}": {"stores": [1]} for one in range(30)}
    assert "too many values" in issue({"sections": nested}).value


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"attributes": ["stores"]}, "name it in the singular, 'store'"),
        ({"attributes": ["a", "a"]}, "listed twice"),
        ({"attributes": ["day"]}, "that of periods"),
        ({"schemas": {"x": ["ys"]}}, "singular"),
        ({"timezone": "Mars/Base"}, "Mars/Base"),
        ({"max_children": 0}, "max_children"),
    ],
)
def test_split_that_would_be_ambiguous_is_refused(given, says):
    with pytest.raises(ValidationError, match=says):
        Split.model_validate(given)
