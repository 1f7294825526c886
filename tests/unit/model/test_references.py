"""Tokens that refer to results, and what they become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.references import (
    Reference,
    UnresolvedReferenceError,
    escaped,
    find,
    parse,
    resolve,
)

NAMES = {
    "a.out": {"n": 3, "t": True, "s": "x", "o": {"k": [1, 2]}, "z": None, "a/b": {"~": "deep"}},
    "pop.agendaId": "agenda-1",
}


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("a.out", Reference("a.out", "", None, null_fallback=False)),
        ("a.out::/", Reference("a.out", "", None, null_fallback=False)),
        ("a.out::/x/y", Reference("a.out", "/x/y", None, null_fallback=False)),
        ("a.out::x", Reference("a.out", "/x", None, null_fallback=False)),
        ("a.out::/x?none", Reference("a.out", "/x", "none", null_fallback=False)),
        ("a.out::/x?", Reference("a.out", "/x", None, null_fallback=True)),
    ],
)
def test_tokens_are_parsed(inner, expected):
    assert parse(inner) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("@@<a.out>", "@<a.out>"),
        ("@@@<a.out::/s>", "@x"),
        ("@@@@<a.out>", "@@<a.out>"),
        ("me@@@<a.out::/s>.org", "me@x.org"),
        ("@@ @<a.out::/n> @@<", "@@ 3 @<"),
        ("@<>", "@<>"),
        ("@<", "@<"),
        ("@<a<b>", "@<a<b>"),
    ],
)
def test_of_marks_before_a_bracket_two_stand_for_one(text, value):
    assert resolve({"k": text}, NAMES) == {"k": value}
    assert len(find(text)) == (value in {"@x", "me@x.org", "@@ 3 @<"})


@given(st.text("@<>a.out: ?"))
def test_escaped_text_stands_for_itself(text):
    assert find(escaped({"k": [text]})) == []
    assert resolve(escaped([text]), NAMES) == [text]


@pytest.mark.parametrize(
    ("inner", "operation"),
    [("a.out", "a"), ("a.b.out::/x", "a.b"), ("pop.agendaId", None), ("a", None)],
)
def test_outputs_name_their_operation(inner, operation):
    assert parse(inner).operation == operation


def test_all_tokens_of_a_document_are_found():
    value = {
        "x": ["@<a.out>", {"y": "to @<b.out::/z> and @<c.out>"}],
        "n": 3,
        "t": ("@<d.out>",),
    }
    assert [one.name for one in find(value)] == ["a.out", "b.out", "c.out", "d.out"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("@<a.out::/n>", 3),
        ("@<a.out::/t>", True),
        ("@<a.out::/z>", None),
        ("@<a.out::/o>", {"k": [1, 2]}),
        ("@<a.out::/o/k/1>", 2),
        ("@<a.out::/a~1b/~0>", "deep"),
        ("@<a.out>", NAMES["a.out"]),
        ("n=@<a.out::/n>, t=@<a.out::/t>, z=@<a.out::/z>", "n=3, t=true, z=null"),
        ("@<a.out::/s>@<a.out::/s>", "xx"),
        ("@<a.out::/none?some text>", "some text"),
        ("@<a.out::/none?>", None),
        ("id @<pop.agendaId>", "id agenda-1"),
        ({"k": ["@<a.out::/n>", 1]}, {"k": [3, 1]}),
        (("@<a.out::/n>",), [3]),
        ("no token", "no token"),
        (7, 7),
    ],
)
def test_tokens_become_what_they_point_to(value, expected):
    assert resolve(value, NAMES) == expected
    assert type(resolve(value, NAMES)) is type(expected)


def test_substituted_text_is_not_read_again():
    assert resolve("@<a.out>", {"a.out": "@<b.out>"}) == "@<b.out>"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("@<b.out>", "names nothing known here (known: a.out, pop.agendaId)"),
        ("@<a.out::/none>", "has nothing at '/none'"),
        ("@<a.out::/n/deeper>", "has nothing"),
        ("@<a.out::/o/k/9>", "has nothing"),
        ("@<a.out::/o/k/-1>", "has nothing"),
        ("x @<a.out::/o> y", "stands inside a text but points to an object or a list"),
    ],
)
def test_what_cannot_be_resolved_is_an_error_that_says_why(value, words):
    with pytest.raises(UnresolvedReferenceError) as error:
        resolve(value, NAMES)
    assert words in str(error.value)


def test_without_any_name_none_is_listed():
    with pytest.raises(UnresolvedReferenceError, match="known: none"):
        resolve("@<a.out>", {})


def test_the_document_is_left_as_it_was():
    value = {"x": ["@<a.out::/n>"]}
    resolve(value, NAMES)
    assert value == {"x": ["@<a.out::/n>"]}
