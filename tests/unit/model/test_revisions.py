"""Merge patches, preconditions and what may not change."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.definitions import (
    Customer,
    Definitions,
    Insight,
    ResourcePool,
    deletion_blocked_by,
    references_of,
)
from pop_stream.model.errors import DefinitionError, NotFoundError, PreconditionError
from pop_stream.model.revisions import (
    Precondition,
    VersionedDefinition,
    apply_merge_patch,
    parse_definition,
    patch,
    put,
    remove,
)
from pop_stream.model.template import AgendaTemplate

AT = datetime(2026, 1, 1, tzinfo=UTC)


def stored(definition, version=3):
    return VersionedDefinition(definition, version, AT, AT)


@pytest.mark.parametrize(
    ("target", "change", "outcome"),
    [  # the examples of RFC 7396, appendix A, whose patch is an object
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merging_follows_the_rfc(target, change, outcome):
    assert apply_merge_patch(target, change) == outcome


DOCUMENTS = st.dictionaries(st.text(max_size=3), st.integers() | st.none(), max_size=5)


@given(DOCUMENTS, DOCUMENTS)
def test_merging_twice_is_merging_once_and_changes_no_argument(target, change):
    before = dict(target), dict(change)
    once = apply_merge_patch(target, change)
    assert apply_merge_patch(once, change) == once
    assert (target, change) == before


@pytest.mark.parametrize(
    ("condition", "version", "holds"),
    [
        (Precondition(), None, True),
        (Precondition(), 3, True),
        (Precondition(exists=True), 3, True),
        (Precondition(exists=True), None, False),
        (Precondition(exists=False), None, True),
        (Precondition(exists=False), 3, False),
        (Precondition(versions=frozenset({2, 3})), 3, True),
        (Precondition(versions=frozenset({2})), 3, False),
        (Precondition(versions=frozenset({2})), None, False),
        (Precondition(versions=frozenset()), 3, False),
    ],
)
def test_preconditions(condition, version, holds):
    known = None if version is None else stored(Customer(id="acme"), version)
    if holds:
        condition.check(known)
        return
    with pytest.raises(PreconditionError):
        condition.check(known)


def test_an_insight_may_grow_and_not_move():
    known = stored(Insight(id="a", pool="gpu", partitions=4))
    assert patch("insight", "a", {"partitions": 8}).decide(known).partitions == 8
    for change in ({"partitions": 3}, {"pool": None}, {"pool": "cpu"}):
        with pytest.raises(DefinitionError):
            patch("insight", "a", change).decide(known)
    with pytest.raises(DefinitionError):
        put(Insight(id="a")).decide(known)
    assert put(Customer(id="a")).decide(stored(Customer(id="a", weight=2))).weight == 1


@pytest.mark.parametrize("content", [{"paused": "true"}, {"weight": "2"}, {"burst": True}])
def test_content_is_read_strictly(content):
    with pytest.raises(DefinitionError):
        parse_definition("customer", "acme", content)


def test_an_id_is_that_of_the_path():
    known = stored(Customer(id="acme", weight=2))
    assert patch("customer", "acme", {"id": "acme", "weight": 3}).decide(known).weight == 3
    for content, got in (
        ({"id": "beta"}, "the path says 'acme'"),
        ({"id": None}, "taken away"),
    ):
        with pytest.raises(DefinitionError) as error:
            patch("customer", "acme", content).decide(known)
        [issue] = error.value.issues
        assert issue.field == "id"
        assert got in issue.message


def test_what_a_definition_needs_and_keeps():
    customer = Customer(id="acme", pool="gpu", default_insight="media")
    assert [*references_of(customer)] == [
        ("pool", "pool/gpu"),
        ("default_insight", "insight/media"),
    ]
    assert deletion_blocked_by(Customer(id="acme")) == []
    assert deletion_blocked_by(Insight(id="a", pool="gpu", owner="acme")) == [
        "customer/acme",
        "pool/gpu",
    ]
    assert deletion_blocked_by(Insight(id="a")) == []
    assert deletion_blocked_by(ResourcePool(id="gpu", max_in_flight=1)) == []
    template = AgendaTemplate(id="t", owner="acme", agenda={"customer_id": "beta"})
    assert deletion_blocked_by(template) == ["customer/acme", "customer/beta"]
    filled = AgendaTemplate(id="t", agenda={"customer_id": "@<pop.payload::/customer>"})
    assert deletion_blocked_by(filled) == []


def test_all_definitions_come_with_those_first_that_others_need():
    known = Definitions()
    template = AgendaTemplate(id="t", agenda={})
    for key, one in (
        ("template/t", template),
        ("customer/acme", Customer(id="acme")),
        ("insight/a", Insight(id="a")),
        ("pool/gpu", ResourcePool(id="gpu", max_in_flight=1)),
    ):
        known = known.updated(key, one, version=4)
    assert [one.id for one in known.all()] == ["gpu", "a", "acme", "t"]
    assert known.templates["t"].version == 4
    assert known.updated("template/t", None).templates == {}
    assert known.updated("template/t", Customer(id="t")) is known


def test_what_is_not_there_is_neither_patched_nor_removed():
    for revision in (patch("customer", "none", {}), remove("customer", "none")):
        with pytest.raises(NotFoundError):
            revision.decide(None)
    assert remove("customer", "acme").decide(stored(Customer(id="acme"))) is None


def test_the_group_type_of_an_insight_cannot_change():
    before = stored(Insight(id="media", partitions=1))
    revision = put(Insight(id="media", partitions=1, group_type="share"))
    with pytest.raises(DefinitionError) as refused:
        revision.decide(before)
    [issue] = refused.value.issues
    assert (issue.field, issue.value) == ("group_type", "share")
    assert "define a new insight" in issue.message


def test_an_insight_of_a_share_group_has_one_partition():
    content = {"group_type": "share"}
    with pytest.raises(DefinitionError) as refused:
        parse_definition("insight", "media", content)
    [issue] = refused.value.issues
    assert "set partitions to 1" in issue.message
    assert parse_definition("insight", "media", {**content, "partitions": 1}).partitions == 1
