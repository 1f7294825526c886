"""What a customer's schema may ask is counted before it is done."""

import json
import subprocess
import sys
import time

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.payload_schema import (
    MAX_SCHEMA_BYTES,
    MAX_WORK,
    pattern_states,
    payload_issues,
    schema_error,
)

WORST_CPU_S = 0.5
"""Twenty times what `MAX_WORK` is meant to take: a busy machine's clock is no stopwatch."""

WORST_MEMORY_MB = 64


def nested(levels: int, rule: str, ways: int = 2) -> dict[str, object]:
    """A schema in which each level refers to the next as often as that."""
    defs: dict[str, object] = {
        f"d{level}": {rule: [{"$ref": f"#/$defs/d{level + 1}"}] * ways}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "integer"}}}


def issues(schema: dict[str, object] | bool, payload: object) -> list[str]:
    return [f"{one.field}: {one.message}" for one in payload_issues(schema, payload, field="p")]


TOO_MUCH = {
    "anyOf doubling with each level": nested(16, "anyOf"),
    "allOf doubling": nested(9, "allOf"),
    "oneOf by ten": nested(3, "oneOf", 10),
    "a reference to itself": {"$ref": "#"},
    "a reference to itself by a way round": {"anyOf": [{"not": {"$ref": "#"}}]},
    "doubling with each level of the payload": {
        "items": {"$ref": "#"},
        "allOf": [{"items": {"$ref": "#"}}],
    },
    "doubling under a name": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {
                "properties": {"x": {"$ref": "#/$defs/a"}},
                "patternProperties": {"^x": {"$ref": "#/$defs/a"}},
            }
        },
    },
    "unevaluatedProperties in each other": {
        "unevaluatedProperties": False,
        "anyOf": [
            {
                "unevaluatedProperties": False,
                "anyOf": [
                    {
                        "unevaluatedProperties": False,
                        "anyOf": [{"unevaluatedProperties": False, "anyOf": [{}, {}, {}, {}]}],
                    }
                ],
            }
        ],
    },
    "a chain of references": {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{one}": {"$ref": f"#/$defs/d{one + 1}"} for one in range(500)}
        | {"d500": {}},
    },
    "repetitions of repetitions": {"pattern": "((a{1,100}){1,100}){1,100}"},
    "repetitions that hide behind a star": {"pattern": "(a{1,60})*{50}"},
    "many patterns": {"patternProperties": {f"x{one}{{99}}": {} for one in range(50)}},
    "many bytes": {"enum": ["x" * 1000] * 70},
    "a place in no part of the document": {"$ref": "#/$defs/none"},
    "another document": {"$ref": "https://example.org/schema.json"},
    "an anchor": {"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}},
    "a base of its own": {"properties": {"a": {"$id": "https://example.org/", "type": "null"}}},
    "a dynamic reference": {"$dynamicRef": "#a"},
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_schema_that_asks_for_too_much_is_refused_quickly_and_says_why(name: str) -> None:
    started = time.process_time()
    fault = schema_error(TOO_MUCH[name])
    assert fault
    assert len(fault) > 20
    assert time.process_time() - started < WORST_CPU_S


SOUND = {
    "a tree": (
        {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "c": {"items": {"$ref": "#"}}},
        },
        {"v": 1, "c": [{"v": 2, "c": [{"v": "x"}]}]},
        "p.c[0].c[0].v",
    ),
    "an expression": (
        {
            "$ref": "#/$defs/e",
            "$defs": {
                "e": {
                    "oneOf": [
                        {"type": "integer"},
                        {"required": ["and"], "properties": {"and": {"$ref": "#/$defs/l"}}},
                        {"required": ["or"], "properties": {"or": {"$ref": "#/$defs/l"}}},
                    ],
                    "type": ["object", "integer"],
                },
                "l": {"type": "array", "items": {"$ref": "#/$defs/e"}},
            },
        },
        {"and": [1, {"or": [2, "x"]}]},
        "p",
    ),
    "a thousand fields": (
        {"properties": {f"k{one}": {"type": "integer"} for one in range(1000)}},
        {f"k{one}": one if one else "no" for one in range(1000)},
        "p.k0",
    ),
    "ids by a pattern": (
        {"items": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}},
        [f"{one:08x}-1111-2222-3333-444444444444" for one in range(4000)] + ["no"],
        "p[4000]",
    ),
    "unevaluated fields": (
        {
            "allOf": [{"properties": {"a": {"type": "integer"}}}],
            "properties": {"b": {"type": "string"}},
            "unevaluatedProperties": False,
        },
        {"a": 1, "b": "x", "c": 1},
        "p",
    ),
    "an older draft": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a/b": {"type": "null"}},
            "items": [{"$ref": "#/definitions/a~1b"}, {"type": "integer"}],
            "additionalItems": False,
            "dependencies": {"x": ["y"]},
        },
        [None, 1, 2],
        "p",
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_ordinary_schema_is_taken_and_says_where_a_payload_is_wrong(name: str) -> None:
    schema, payload, where = SOUND[name]
    assert schema_error(schema) is None
    found = issues(schema, payload)
    assert found
    assert found[0].startswith(f"{where}: ")


def test_payload_that_would_cost_too_much_is_refused_by_count_alone() -> None:
    schema: dict[str, object] = {"items": {"multipleOf": 0.01}}
    assert schema_error(schema) is None
    assert not issues(schema, [1e300] * 1000)
    [refusal] = issues(schema, [1e300] * 100_000)
    assert refusal.startswith("p: is too much to check")
    assert f"{MAX_WORK:,}" in refusal


def test_schema_that_was_accepted_by_looser_rules_takes_no_payload() -> None:
    [refusal] = issues(nested(16, "anyOf"), 1)
    assert refusal.startswith("p: cannot be checked: payload_schema one value would be")


def test_payload_with_room_for_many_errors_is_refused_without_a_list_of_them() -> None:
    schema: dict[str, object] = {"items": {"type": "string"}}
    assert len(issues(schema, [1] * 1000)) == 10
    [refusal] = issues(schema, [1] * 50_000)
    assert "too large to say where" in refusal
    large: dict[str, object] = {"allOf": [{"type": "string"}] * 250}
    [refusal] = issues(large, {"a": "x" * 400_000})
    assert "too large to say where" in refusal


_MEASURE = """
import json, resource, sys, time
from pop_stream.model.payload_schema import payload_issues, schema_error
schema, payload = json.load(sys.stdin)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, started = peak(), time.process_time()
fault = schema_error(schema)
found = 0 if fault else len(list(payload_issues(schema, payload, field="p")))
print(json.dumps([fault, found, time.process_time() - started, peak() - before]))
"""

FULL = 500_000
"""Characters of the largest payload that an agenda has room for."""

WORST: dict[str, tuple[object, object]] = {
    "all visits there are, by every item": (
        {"items": {"anyOf": [{"type": "string"}] * 250}},
        [1] * (FULL // 2),
    ),
    "as many items as there may be work for": (
        {"items": {"anyOf": [{"type": "string"}] * 250}},
        [1] * 1500,
    ),
    "a slow pattern and a long text": (
        {"pattern": "^(a|b|c)*a(a|b|c){150}$"},
        "abcacbbacaabcbbca" * (FULL // 17),
    ),
    "a slow pattern and as much text as may be": (
        {"pattern": "^(a|b|c)*a(a|b|c){150}$"},
        "abcacbbacaabcbbca" * 600,
    ),
    "all classes of letters": ({"pattern": r"^(\p{L}\p{N})+\p{P}$"}, "é" * FULL),
    "options that are fractions": (
        {"items": {"enum": [one + 0.5 for one in range(800)]}},
        [799.5] * 9,
    ),
    "options that are objects": (
        {"items": {"enum": [{"a": one} for one in range(2000)]}},
        [{"a": 1999}] * 10,
    ),
    "distinct objects": (
        {"uniqueItems": True},
        [{"a": [one]} for one in range(FULL // 12)],
    ),
    "numbers of many digits": ({"items": {"minimum": 7}}, [10**4000] * 100),
    "multiples of a fraction": ({"items": {"multipleOf": 0.01}}, [1e300] * 1300),
    "an error of every value, each with a long message": (
        {"items": {"enum": ["x" * 1000 for _ in range(60)]}},
        [1] * 4000,
    ),
    "an error of every field, with the whole payload in each": (
        {"allOf": [{"required": [f"k{one}"]} for one in range(250)]},
        {"a": "x" * FULL},
    ),
    "a formatted text": ({"items": {"format": "json-pointer"}}, ["/a" * 500] * 500),
    "as deep as JSON goes": ({"items": {"$ref": "#"}}, json.loads("[" * 900 + "]" * 900)),
    "2,000 places": (
        {
            "$ref": "#/$defs/k0",
            "$defs": {
                f"k{one}": {"properties": {"a": {"$ref": f"#/$defs/k{one + 1}"}}}
                for one in range(1000)
            }
            | {"k1000": {}},
        },
        {},
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_cpu_and_memory_of_the_worst_that_is_accepted_are_bounded(name: str) -> None:
    done = subprocess.run(  # noqa: S603  # this interpreter, our own text
        [sys.executable, "-c", _MEASURE],
        input=json.dumps(WORST[name]),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    fault, _, cpu_s, memory_mb = json.loads(done.stdout)
    assert fault is None
    assert cpu_s < WORST_CPU_S
    assert memory_mb < WORST_MEMORY_MB


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("abc", 3, 4),
        ("a{10}", 10, 25),
        ("(ab){10,20}", 40, 80),
        ("(a{10}){10}", 100, 300),
        ("[a-z]{3,}", 4, 12),
        (r"\p{L}{2}", 500, 1000),
        (r"(a{1,9})*{9}", 81, 300),
        (r"\{5\}a", 3, 10),
    ],
)
def test_states_of_a_pattern_are_counted_with_its_repetitions(
    pattern: str, least: int, most: int
) -> None:
    assert least <= pattern_states(pattern) <= most


leaves = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "string"},
        {"enum": [1, "x", [1]]},
        {"const": {"a": 1}},
        {"required": ["a"]},
        {"minimum": 2},
        {"maxItems": 1},
        True,
    ]
)


def _combined(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        *(some.map(lambda parts, rule=rule: {rule: parts}) for rule in ("anyOf", "allOf")),
        inner.map(lambda one: {"items": one}),
        inner.map(lambda one: {"properties": {"a": one}}),
        inner.map(lambda one: {"not": one}),
        inner.map(lambda one: {"additionalProperties": one, "properties": {"b": {}}}),
    )


payloads = st.recursive(
    st.sampled_from([1, 3, "x", None, True]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(schema=st.recursive(leaves, _combined, max_leaves=6), payload=payloads)
def test_counting_changes_nothing_of_what_fits(schema: object, payload: object) -> None:
    """Against a second implementation of JSON Schema."""
    assert isinstance(schema, dict | bool)
    assert schema_error(schema) is None
    fits = jsonschema.Draft202012Validator(schema).is_valid(payload)
    assert fits is (not issues(schema, payload))


def test_schema_of_the_largest_size_is_taken() -> None:
    schema: dict[str, object] = {"description": "x" * (MAX_SCHEMA_BYTES - 20)}
    assert schema_error(schema) is None
