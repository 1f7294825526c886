"""What parameters of a list mean, and which mean nothing."""

from datetime import UTC, datetime

import pytest

from pop_stream.model.definition_lists import (
    DEFAULT_LIMIT,
    Filter,
    Sort,
    cursor_of,
    defaults_of,
    fields_of,
    microseconds,
    parse_list,
)
from pop_stream.model.errors import QueryError

BY_ID = (Sort(("id",)),)


def filters(kind, *parameters):
    return parse_list(kind, parameters, seen_by=None).query.filters


def sorts(text):
    return parse_list("customer", [("sort", text)], seen_by=None).query.sorts


def faults(kind, *parameters):
    with pytest.raises(QueryError) as error:
        parse_list(kind, parameters, seen_by=None)
    return [issue.field for issue in error.value.issues]


def test_nothing_asked_is_all_by_id():
    request = parse_list("pool", [], seen_by="acme")
    assert (request.query.filters, request.query.sorts) == ((), BY_ID)
    assert (request.query.limit, request.query.after) == (DEFAULT_LIMIT, None)
    assert (request.query.seen_by, request.fields) == ("acme", None)


@pytest.mark.parametrize(
    ("kind", "name", "text", "values"),
    [
        ("customer", "weight", "2", (2.0,)),
        ("customer", "weight", "-1", (-1.0,)),
        ("customer", "max_in_flight", "null", (None,)),
        ("customer", "max_in_flight", "7", (7,)),
        ("customer", "title", "null", ("null",)),
        ("customer", "title", "", ("",)),
        ("customer", "paused", "true", (True,)),
        ("insight", "target", "auto", ("auto",)),
        ("insight", "target", "5", (5,)),
        ("insight", "algorithm", "fifo", ("fifo",)),
        ("insight", "allowed", "acme", ("acme",)),
        ("insight", "mappers.params", "a=b", ("a=b",)),
        ("insight", "mappers.unknown", "1", ("1", 1)),
        ("insight", "mappers", "x", ("x",)),
        ("insight", "backoff.factor", "2", ("2", 2)),
        ("template", "agenda.priority", "3", ("3", 3)),
        ("template", "agenda.title", "a b", ("a b",)),
        ("template", "agenda.title", "NaN", ("NaN",)),
        ("template", "agenda", "[1]", ("[1]",)),
        ("template", "params.depth.type", "x", ("x",)),
        ("template", "payload_schema", "true", ("true", True)),
        ("pool", "created_at", "1970-01-01T00:00:01Z", (1_000_000,)),
        ("pool", "created_at", "1970-01-01T00:00:01", (1_000_000,)),
        ("pool", "version", "3", (3,)),
    ],
)
def test_a_filter_is_read_by_the_type_of_its_field(kind, name, text, values):
    [found] = filters(kind, (name, text))
    assert found == Filter(tuple(name.split(".")), values)
    assert [type(one) for one in found.values] == [type(one) for one in values]


def test_a_filter_given_twice_fits_either():
    [found] = filters("customer", ("id", "a"), ("id", "b"))
    assert found.values == ("a", "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", BY_ID),
        ("-weight", (Sort(("weight",), descending=True), *BY_ID)),
        ("weight,weight", (Sort(("weight",)), *BY_ID)),
        ("-id,weight", (Sort(("id",), descending=True),)),
        ("pool,-title,id", (Sort(("pool",)), Sort(("title",), descending=True), *BY_ID)),
    ],
)
def test_an_order_ends_with_the_id(text, expected):
    assert sorts(text) == expected


@pytest.mark.parametrize(("text", "limit"), [("1", 1), ("7", 7), ("1000", 1_000)])
def test_a_limit_is_as_many_as_it_says(text, limit):
    assert parse_list("pool", [("limit", text)], seen_by=None).query.limit == limit


def test_no_order_is_by_id_and_an_empty_one_is_a_fault():
    assert parse_list("customer", [], seen_by=None).query.sorts == BY_ID
    assert faults("customer", ("sort", "")) == ["sort"]


@pytest.mark.parametrize(
    "parameters",
    [
        [("limit", "0")],
        [("limit", "1e3")],
        [("limit", "9" * 5000)],
        [("sort", "a")],
        [("fields", "a")],
        [("weight", "inf")],
        [("weight", "heavy")],
        [("weight.", "1")],
        [("a", "1")],
        [("cursor", "%")],
        [("cursor", "bnVsbA")],
        [("cursor", cursor_of(BY_ID, [["list"]]))],
        [("cursor", cursor_of(BY_ID, ["a", "b"]))],
        [("cursor", cursor_of((Sort(("weight",)), *BY_ID), [1, "b"]))],
    ],
)
def test_what_means_nothing_is_named(parameters):
    assert faults("customer", *parameters) == [parameters[0][0]]


def test_all_faults_are_named_at_once():
    asked = [("limit", "x"), ("sort", "a"), ("b", "c"), ("fields", "d"), ("limit", "y")]
    assert faults("customer", *asked) == ["limit", "sort", "b", "limit", "fields"]


@pytest.mark.parametrize("text", ["\0", "\ud800"])
def test_text_that_nothing_can_hold_is_refused(text):
    assert faults("customer", ("title", text)) == ["query"]


def test_a_path_may_not_be_endless():
    assert faults("template", ("agenda" + ".a" * 9, "1"))


def test_a_cursor_survives_its_text():
    order = (Sort(("weight",), descending=True), *BY_ID)
    asked = [("sort", "-weight"), ("cursor", cursor_of(order, [2.5, "ä"]))]
    assert parse_list("customer", asked, seen_by=None).query.after == (2.5, "ä")


def test_pools_show_their_insights_and_cannot_be_filtered_by_them():
    asked = [("fields", "id,insight_ids,id")]
    assert parse_list("pool", asked, seen_by=None).fields == ("id", "insight_ids")
    assert faults("pool", ("insight_ids", "a")) == ["insight_ids"]


def test_every_field_is_known_with_its_default():
    assert {"weight", "version", "updated_at"} <= fields_of("customer").keys()
    assert defaults_of("customer")["weight"] == 1.0
    assert "max_in_flight" not in defaults_of("pool"), "it has none"


def test_instants_are_compared_to_the_microsecond():
    assert microseconds(datetime(1970, 1, 2, 0, 0, 0, 7, UTC)) == 86_400_000_007
