"""The cut against a slow oracle: whatever is cut, every element is in one child, once."""

from collections import Counter
from itertools import islice

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.split import Split
from pop_stream.policy.splitting.cut import cut

ORDER = ("section", "store", "product")
SPLIT = Split(attributes=ORDER, max_children=100_000)
NAMES = st.sampled_from("abcd")
SCALARS = st.one_of(NAMES, st.integers(0, 3))


@st.composite
def scopes(draw, order=ORDER):
    """An object with some attributes of the order, directives, and data of its own."""
    scope = draw(st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 2), max_size=2))
    for at, attribute in enumerate(order):
        plural = draw(st.sampled_from(["", "s"]))
        if draw(st.booleans()):
            scope[attribute + plural] = draw(values(order[at + 1 :]))
        if draw(st.integers(0, 3)) == 0:
            scope[f"isolate_{attribute}{plural}"] = draw(st.booleans())
        if draw(st.integers(0, 3)) == 0:
            scope[f"max_{attribute}{plural}_per_batch"] = draw(st.integers(1, 3))
    return scope


def values(below):
    """What an attribute may be: a value, a list, an object of names, or nested objects."""
    nested = st.dictionaries(NAMES, st.none() | scopes(below), min_size=1, max_size=3)
    return st.one_of(
        SCALARS,
        st.lists(SCALARS, max_size=4),
        st.dictionaries(NAMES, st.none(), max_size=3),
        nested,
        st.lists(nested, min_size=1, max_size=2),
    )


def plain(scope):
    """With attributes in the singular, and without directives."""
    named = {f"{one}s": one for one in ORDER}
    return {
        named.get(key, key): value
        for key, value in scope.items()
        if not key.startswith(("isolate_", "max_"))
    }


def pairs(value):
    """The values of an attribute, each with the object that belongs to it alone."""
    if isinstance(value, dict):
        return [(name, below or {}) for name, below in value.items()]
    if not isinstance(value, list):
        return [(value, {})]
    if value and all(isinstance(one, dict) for one in value):
        return [pair for one in value for pair in pairs(one)]
    return [(one, {}) for one in value]


def elements(scope, order=ORDER):
    """Every combination of values that a payload stands for, with the data of each."""
    scope = plain(scope)
    if not order:
        return [scope]
    attribute, *below = order
    if scope.get(attribute) in (None, [], {}):
        return elements(scope, below)
    rest = {key: value for key, value in scope.items() if key != attribute}
    return [
        {**found, attribute: name}
        for name, own in pairs(scope[attribute])
        for found in elements({**rest, **plain(own)}, below)
    ]


def counted(found):
    return Counter(msgspec.json.encode(one, order="sorted") for one in found)


@given(scopes())
def test_the_children_are_the_payload_each_element_once(payload):
    children = [*cut(payload, SPLIT).payloads()]
    found = [one for child in children for one in elements(child)]
    assert counted(found) == counted(elements(payload))


@given(scopes())
def test_no_child_has_a_directive_or_more_than_a_directive_of_the_root_allows(payload):
    for child in cut(payload, SPLIT).payloads():
        assert not [key for key in child if key.startswith(("isolate_", "max_"))]
    top = {"isolate_sections": True, "isolate_stores": True, "isolate_products": True}
    bare = bare_of(payload)
    for child in cut({**bare, **top}, SPLIT).payloads():
        assert all(len(child.get(f"{one}s") or [0]) == 1 for one in ORDER)


def bare_of(value):
    """The same without a directive anywhere."""
    if isinstance(value, list):
        return [bare_of(one) for one in value]
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not k.startswith(("isolate_", "max_"))}
        return {key: bare_of(one) for key, one in kept.items()}
    return value


@given(scopes(), st.integers(0, 50))
def test_the_count_is_that_of_the_children_and_any_may_be_first(payload, start):
    found = cut(payload, SPLIT)
    children = [*found.payloads()]
    assert len(children) == found.count
    assert [*found.payloads(start)] == children[start:]
    again = cut(msgspec.json.decode(msgspec.json.encode(payload)), SPLIT)
    assert [*islice(again.payloads(), 20)] == children[:20]


@given(scopes())
def test_a_payload_without_directives_is_one_child(payload):
    assert cut(bare_of(payload), SPLIT).count == 1
