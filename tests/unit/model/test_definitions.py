"""Definitions: what may be defined, and how a set of them changes."""

from collections.abc import Mapping

import pytest

from pop_stream.model.definitions import (
    Customer,
    Definitions,
    Insight,
    Mappers,
    ResourcePool,
    decode_definition,
    definition_key,
    encode_definition,
)
from pop_stream.model.definitions_file import parse_definitions_file
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.template import AgendaTemplate

ONE_OF_EACH = [
    Customer(id="acme", weight=2.0),
    Insight(id="media", mappers=Mappers(operation_types=("scan",)), pool="gpu"),
    ResourcePool(id="gpu", max_in_flight=4),
]


@pytest.mark.parametrize("definition", ONE_OF_EACH, ids=lambda one: one.id)
def test_a_definition_survives_its_record(definition):
    key, value = definition_key(definition), encode_definition(definition)
    assert decode_definition(key, value) == definition


def test_keys_name_kind_and_id():
    assert [definition_key(one) for one in ONE_OF_EACH] == [
        "customer/acme",
        "insight/media",
        "pool/gpu",
    ]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("plan/x", b"{}", "no kind of definition is called 'plan'"),
        ("customer/acme", b"{", "JSON"),
        ("customer/acme", b'{"id":"acme","weight":0}', "greater than or equal to 0.001"),
        ("customer/acme", b'{"id":"other"}', "the record's key says 'acme'"),
        ("insight/a", b'{"id":"a","low_water":9,"target":3}', "no refill would ever end"),
        ("insight/a", b'{"id":"a","mappers":{"params":["tier"]}}', "pattern"),
    ],
)
def test_a_wrong_record_is_answered_with_why(key, value, words):
    with pytest.raises(UnreadableRecordError, match=words):
        decode_definition(key, value)


def test_what_a_newer_version_has_added_anywhere_is_passed_over():
    value = (
        b'{"id":"media","colour":1,"mappers":{"operation_types":["x"],"colour":2},'
        b'"backoff":{"first_s":2,"colour":3}}'
    )
    insight = decode_definition("insight/media", value)
    assert (insight.mappers.operation_types, insight.backoff.first_s) == (("x",), 2.0)


def test_a_tombstone_is_no_definition():
    assert decode_definition("customer/acme", None) is None


def test_a_set_takes_up_changes_one_by_one():
    known = Definitions()
    for one in ONE_OF_EACH:
        known = known.updated(definition_key(one), one)
    assert known.customers["acme"].weight == 2.0
    assert known.insights["media"].pool == "gpu"
    assert known.pools["gpu"].max_in_flight == 4
    without = known.updated("customer/acme", None).updated("pool/gpu", None)
    assert (without.customers, without.pools) == ({}, {})
    assert known.customers, "the older set stays as it was"


@pytest.mark.parametrize("key", ["plan/x", "customer/acme", "insight/gpu"])
def test_what_does_not_fit_its_key_changes_nothing(key):
    known = Definitions()
    assert known.updated(key, ONE_OF_EACH[2]) is known


def test_a_pool_is_not_taken_for_a_customer():
    known = Definitions()
    assert known.updated("pool/acme", ONE_OF_EACH[0]) is known


def test_a_customer_nobody_defined_has_the_defaults():
    assert Definitions().customer("who").weight == 1.0


def test_insights_of_a_pool_are_at_home_together():
    known = Definitions(insights={"a": Insight(id="a", pool="gpu"), "b": Insight(id="b")})
    assert known.routing_key("a") == b"pool/gpu"
    assert known.routing_key("b") == b"b"
    assert known.routing_key("unknown") == b"unknown"


def test_a_file_is_read_by_tables():
    found = parse_definitions_file(
        {
            "customers": {"acme": {"weight": 2}},
            "insights": {"media": {"pool": "gpu", "mappers": {"operation_types": ["scan"]}}},
            "pools": {"gpu": {"max_in_flight": 4}},
        }
    )
    assert found == tuple(ONE_OF_EACH)


@pytest.mark.parametrize(
    ("document", "error", "words"),
    [
        ({"customer": {}}, ValueError, "unknown table 'customer'"),
        ({"customers": {"acme": {"wait": 1}}}, ValueError, r"\[customers.acme\]"),
        ({"customers": {"acme": 1}}, TypeError, r"\[customers.acme\] must be a table"),
        ({"customers": 1}, TypeError, "must be a table of tables"),
        ({"pools": {"gpu": {}}}, ValueError, "max_in_flight"),
    ],
)
def test_a_wrong_file_names_the_table(document, error, words):
    with pytest.raises(error, match=words):
        parse_definitions_file(document)


def test_low_water_may_be_left_to_the_target():
    assert Insight(id="a", target=10).low_water is None
    assert Insight(id="a", target=10, low_water=10).low_water == 10
    assert Insight(id="a", target="auto", low_water=99).low_water == 99


@pytest.mark.parametrize(("quota", "matters"), [(None, False), (1, True), (5, True)])
def test_what_is_ready_matters_once_one_customer_has_a_quota(quota, matters):
    customers = {"acme": Customer(id="acme"), "big": Customer(id="big", max_ready=quota)}
    assert Definitions(customers=customers).has_quotas is matters


class ReadOnce(Mapping):
    """Counts how many of its entries are read."""

    def __init__(self, entries):
        self.entries, self.read = entries, 0

    def __getitem__(self, key):
        self.read += 1
        return self.entries[key]

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)


def pool(name):
    return ResourcePool(id=name, max_in_flight=1)


def test_many_changes_copy_what_is_defined_once():
    pools = ReadOnce({f"p{one}": pool(f"p{one}") for one in range(500)})
    known = Definitions(pools=pools)
    changed = known.with_changes([(f"pool/q{one}", pool(f"q{one}"), 1) for one in range(500)])
    assert len(changed.pools) == 1_000
    assert pools.read == 500


def test_changes_in_turn_and_at_once_lead_to_the_same():
    changes = [("pool/a", pool("a"), 1), ("pool/b", pool("b"), 1), ("pool/a", None, 2)]
    changes += [("pool/b", None, 2), ("pool/a", pool("a"), 3), ("key/x", None, 1)]
    changes += [("customer/a", pool("a"), 1)]
    in_turn = Definitions()
    for key, definition, version in changes:
        in_turn = in_turn.updated(key, definition, version=version)
    assert in_turn == Definitions().with_changes(changes)
    assert [*in_turn.pools] == ["a"]


def test_a_template_changes_nothing_that_is_scheduled_by():
    known = Definitions()
    template = AgendaTemplate(id="t", agenda={})
    assert known.updated("template/t", template).decides_like(known)
    assert not known.updated("customer/a", Customer(id="a")).decides_like(known)
