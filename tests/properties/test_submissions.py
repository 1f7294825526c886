"""Whatever comes in: an agenda, or a refusal; and references that keep what they point to."""

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pop_stream.model.agenda import Agenda, encode_agenda, parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.references import UnresolvedReferenceError, find, resolve

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
FINITE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["a", "b", "A", "c d", "<", "", "x::y", "ü"])
OPERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES | JSON,
        "type": NAMES | JSON,
        "payload": JSON
        | st.builds("@<{}.out::{}>".format, NAMES, st.sampled_from(["", "/", "/x/0?", "?d"])),
        "depends_on": st.lists(NAMES, max_size=3) | JSON,
        "params": st.dictionaries(WORDS, JSON, max_size=2) | JSON,
        "typo": JSON,
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": WORDS | JSON,
        "customer_id": st.just("acme") | JSON,
        "priority": st.integers(-2, 12) | JSON,
        "cost_s": st.floats() | JSON,
        "fairness_key": WORDS,
        "operations": st.lists(OPERATIONS, max_size=4) | JSON,
        "typo": JSON,
    },
)


def judge(data):
    """An agenda, or None; anything else raises."""
    try:
        return parse_agenda(data)
    except SubmissionError as error:
        refusal = error
    assert 1 <= len(refusal.issues) <= SubmissionError.MAX_ISSUES
    for issue in refusal.issues:
        assert max(len(issue.field), len(issue.value)) <= 200
        assert issue.message
    return None


LARGE = {
    "lists in lists": b"[" * 100_000,
    "lists in operations": b'{"operations":' + b"[" * 100_000,
    "objects in objects": b'{"a":' * 100_000,
    "no text": b"\xff" * 100_000,
    "no text in a text": b'{"operations":"' + b"\xff" * 100_000 + b'"}',
    "a key": b'{"%s":1}' % (b"k" * 400_000),
    "an integer": b'{"customer_id":1' + b"0" * 5_000 + b"}",
    "backslashes": b'"' + b"\\" * 100_000 + b'"',
}


def judge_all_ways(data):
    judge(data)
    judge(bytearray(data))
    judge(data.decode(errors="surrogateescape"))


@pytest.mark.parametrize("data", LARGE.values(), ids=LARGE)
def test_nothing_large_is_more_than_refused(data):
    judge_all_ways(data)


@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf{}")
@example(b'{"customer_id":"a","customer_id":"b","operations":[]}')
def test_no_bytes_are_more_than_refused(data):
    judge_all_ways(data)


@given(DOCUMENTS)
def test_no_document_is_more_than_refused(document):
    judge(json.dumps(document))
    judge(document)


@given(JSON | st.lists(st.binary()))
def test_no_value_is_more_than_refused(value):
    judge(value)


@pytest.mark.parametrize("deep", [{}, []])
def test_no_depth_is_more_than_refused(deep):
    for _ in range(100_000):
        deep = [deep]
    assert judge({"customer_id": "a", "operations": deep}) is None


@given(
    DOCUMENTS,
    st.lists(
        st.fixed_dictionaries(
            {"type": st.just("noop"), "payload": FINITE, "params": st.just({})},
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_what_is_accepted_is_carried_unchanged(document, operations):
    """Through its own JSON, and inside the events that carry it to the pullers."""
    named = [{"name": f"n{index}", **one} for index, one in enumerate(operations)]
    agenda = judge(json.dumps({"customer_id": "acme", "operations": named}))
    for one in (agenda, judge(json.dumps(document))):
        if one is not None:
            assert isinstance(one, Agenda)
            encoded = encode_agenda(one)
            assert parse_agenda(encoded) == one
            assert encode_agenda(parse_agenda(encoded)) == encoded
            event = b'{"agenda_id":"a","customer_id":"c","agenda":%s,"accepted_at":"%s"}'
            carried = decode_routed(event % (encoded, b"2026-01-01T00:00:00Z"))
            assert bytes(carried.agenda) == encoded


# ---- references ----


@given(FINITE)
def test_a_whole_token_becomes_the_very_value(value):
    found = resolve("@<a.out>", {"a.out": value})
    assert json.dumps(found) == json.dumps(value)
    assert type(found) is type(value)


@given(st.dictionaries(WORDS, FINITE, min_size=1, max_size=4), st.data())
def test_a_pointer_finds_every_part(document, data):
    key = data.draw(st.sampled_from(sorted(document)))
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    if {"<", ">", "?"} & {*key} or pointer == "/":
        return
    found = resolve(f"@<a.out::{pointer}>", {"a.out": document})
    assert json.dumps(found) == json.dumps(document[key])
    assert type(found) is type(document[key])


@given(st.booleans() | st.none() | st.integers() | st.floats(allow_nan=False) | WORDS)
def test_inside_a_text_a_scalar_is_its_json(value):
    expected = value if isinstance(value, str) else json.dumps(value)
    assert resolve("n: @<a.out>!", {"a.out": value}) == f"n: {expected}!"


@given(FINITE)
def test_a_document_without_tokens_is_left_alone(document):
    if [*find(document)]:
        return
    assert json.dumps(resolve(document, {})) == json.dumps(document)


@given(JSON, st.dictionaries(NAMES, JSON, max_size=3), st.text(max_size=12))
def test_resolving_fails_in_one_way_only(document, names, inner):
    for value in (document, f"@<{inner}>", f"x @<{inner}> y", [f"@<a.out::/{inner}>"]):
        with suppress(UnresolvedReferenceError):
            resolve(value, {**names, "a.out": document})
