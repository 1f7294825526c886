"""What a template, a payload and parameters come to."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pop_stream.model import references
from pop_stream.model.agenda import encode_agenda, parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.template import (
    MAX_EXPANDED_CHARACTERS,
    OVERRIDES,
    TEMPLATE_CALL,
    AgendaTemplate,
    expand,
)

PAYLOAD = {
    "file": "s3://in/a.mov",
    "size": 3,
    "ratio": 1.5,
    "ok": True,
    "off": False,
    "nothing": None,
    "tags": ["a", {"b": 1}],
    "a/b": {"~x": "odd"},
    "zero": 0,
    "empty": "",
}


def template(payload=None, *, agenda=None, **changes) -> AgendaTemplate:
    """A template of one operation, whose payload is given."""
    skeleton = {
        "customer_id": "acme",
        "operations": [{"name": "scan", "type": "scan", "payload": payload}],
    }
    content = {"id": "t", "agenda": {**skeleton, **(agenda or {})}, **changes}
    return AgendaTemplate.model_validate(content)


def run(one: AgendaTemplate, payload=PAYLOAD, **call):
    return expand(one, TEMPLATE_CALL(payload=payload, **call), version=7)


def filled(token, payload=PAYLOAD, **changes):
    call = {"params": changes.pop("given")} if "given" in changes else {}
    return run(template(token, **changes), payload, **call).operations[0].payload


def refused(one: AgendaTemplate, payload=PAYLOAD, **call):
    with pytest.raises(SubmissionError) as error:
        run(one, payload, **call)
    return error.value.issues


@pytest.mark.parametrize(
    ("token", "value"),
    [
        # The whole text is one token: the node itself, of whatever type.
        ("@<pop.payload>", PAYLOAD),
        ("@<pop.payload::/>", PAYLOAD),
        ("@<pop.payload::>", PAYLOAD),
        ("@<pop.transformRequest::/file>", "s3://in/a.mov"),
        ("@<pop.payload::/file>", "s3://in/a.mov"),
        ("@<pop.payload::file>", "s3://in/a.mov"),
        ("@<pop.payload::/size>", 3),
        ("@<pop.payload::/ratio>", 1.5),
        ("@<pop.payload::/ok>", True),
        ("@<pop.payload::/off>", False),
        ("@<pop.payload::/nothing>", None),
        ("@<pop.payload::/zero>", 0),
        ("@<pop.payload::/empty>", ""),
        ("@<pop.payload::/tags>", ["a", {"b": 1}]),
        ("@<pop.payload::/tags/1>", {"b": 1}),
        ("@<pop.payload::/tags/1/b>", 1),
        ("@<pop.payload::/a~1b/~0x>", "odd"),
        # Within a longer text: scalars, as JSON writes them.
        ("in @<pop.payload::/file>!", "in s3://in/a.mov!"),
        ("@<pop.payload::/size>x@<pop.payload::/ratio>", "3x1.5"),
        (
            "@<pop.payload::/ok>,@<pop.payload::/off>,@<pop.payload::/nothing>",
            "true,false,null",
        ),
        (" @<pop.payload::/size>", " 3"),
        # Fallbacks, where the path is missing and only there.
        ("@<pop.payload::/none?there>", "there"),
        ("@<pop.payload::/none?>", None),
        ("@<pop.payload::/file?there>", "s3://in/a.mov"),
        ("@<pop.payload::/nothing?there>", None),
        ("@<pop.payload::/empty?there>", ""),
        ("a @<pop.payload::/none?b> c @<pop.payload::/none?>", "a b c null"),
        ("@<pop.payload::/tags/9?none>", "none"),
        ("@<pop.payload::/tags/01?none>", "none"),
        ("@<pop.payload::/tags/-1?none>", "none"),
        ("@<pop.payload::/file/deeper?none>", "none"),
        # Left for the run.
        ("@<scan.out::/x?y>", "@<scan.out::/x?y>"),
        ("@<pop.agendaId>", "@<pop.agendaId>"),
        ("a @<pop.operationName> b @<pop.payload::/size>", "a @<pop.operationName> b 3"),
        # No token at all.
        ("a@b <c> @<>", "a@b <c> @<>"),
        (
            {"k": ["@<pop.payload::/size>", {"@<pop.payload>": 1}]},
            {"k": [3, {"@<pop.payload>": 1}]},
        ),
    ],
)
def test_tokens_are_filled_in(token, value):
    two = template(
        agenda={
            "operations": [
                {"name": "scan", "type": "scan"},
                {"name": "then", "type": "scan", "payload": token},
            ]
        }
    )
    found = run(two).operations[1].payload
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("token", "payload", "words"),
    [
        ("@<pop.payload::/none>", PAYLOAD, "the payload has nothing at '/none'"),
        ("@<pop.payload::/tags/2>", PAYLOAD, "the payload has nothing at '/tags/2'"),
        ("@<pop.payload::/file>", None, "the payload has nothing at '/file'"),
        ("x @<pop.payload::/tags>", PAYLOAD, "leads to an object or a list"),
        ("x @<pop.payload>", PAYLOAD, "leads to an object or a list"),
        ("@<bucket::/name>", PAYLOAD, "'bucket' has nothing at '/name'"),
    ],
)
def test_a_token_that_leads_nowhere_is_named(token, payload, words):
    [issue] = refused(template({"deep": [token]}, static_params={"bucket": "b"}), payload)
    assert issue.field == "agenda.operations[0].payload.deep[0]"
    assert issue.value == token.removeprefix("x ")
    assert words in issue.message


def test_every_fault_is_named_up_to_ten():
    many = [f"@<pop.payload::/none{n}>" for n in range(30)]
    found = refused(template(many))
    assert [one.value for one in found] == many[:10]


def test_parameters_keep_their_types_and_defaults():
    params = {
        "n": {"type": "integer", "required": True},
        "list": {"type": "array", "default": [1]},
        "on": {"type": "boolean", "default": False},
        "who": {"type": "string"},
    }
    payload = {
        "n": "@<n>",
        "list": "@<list::/0>",
        "on": "@<on>",
        "who": "@<who::?nobody>",
        "text": "@<n> of @<who::?nobody>",
        "static": "@<where::/bucket>",
    }
    one = template(payload, params=params, static_params={"where": {"bucket": "b"}})
    assert run(one, params={"n": 3}).operations[0].payload == {
        "n": 3,
        "list": 1,
        "on": False,
        "who": "nobody",
        "text": "3 of nobody",
        "static": "b",
    }
    given = run(one, params={"n": 3, "who": "me", "on": True}).operations[0].payload
    assert (given["who"], given["on"], given["text"]) == ("me", True, "3 of me")


def test_a_parameter_without_a_value_or_a_fallback_is_named():
    [issue] = refused(template("@<who>", params={"who": {"type": "string"}}))
    assert "parameter 'who' was not given and has no default" in issue.message


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "x"], [1, None, True, []]),
        ("integer", [0, -3, 4.0], [1.5, True, "1", None]),
        ("number", [0, 1.5], [True, "1", None]),
        ("boolean", [True, False], [0, 1, "true", None]),
        ("object", [{}, {"a": 1}], [[], None, "{}"]),
        ("array", [[], [1]], [{}, None, "[]"]),
    ],
)
def test_values_must_be_of_the_declared_type(kind, good, bad):
    one = template("@<it>", params={"it": {"type": kind, "required": True}})
    for value in good:
        assert run(one, params={"it": value}).operations[0].payload == value
    for value in bad:
        [issue] = refused(one, params={"it": value})
        assert (issue.field, issue.message) == ("params.it", f"must be of type {kind}")


def test_missing_and_unknown_parameters_are_named():
    one = template("@<n>", params={"n": {"type": "integer", "required": True}})
    found = refused(one, params={"m": 1})
    assert [(issue.field, issue.value) for issue in found] == [
        ("params.m", "1"),
        ("params.n", "nothing"),
    ]
    assert "it has: n" in found[0].message


def test_the_payload_must_fit_the_schema():
    schema = {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "uri"}, "n": {"maximum": 3}},
    }
    one = template("@<pop.payload::/file>", payload_schema=schema)
    assert run(one, {"file": "https://x/y"}).operations[0].payload == "https://x/y"
    assert [issue.field for issue in refused(one, {"n": 4})] == ["payload", "payload.n"]
    assert "maximum" in refused(one, {"file": "a:b", "n": 4})[0].message
    assert refused(one, None)[0].field == "payload"


def test_text_that_was_filled_in_is_not_read_again():
    for sly in ("@<pop.payload::/secret>", "@<scan.out>", "@<pop.agendaId>", ["@@<scan.out>"]):
        given = {"file": sly, "secret": "s"}
        written = filled("@<pop.payload::/file>", given)
        assert not references.find(written)
        assert references.resolve(written, {}) == sly


PARTS = st.lists(
    st.sampled_from(["@", "<", ">", "@<", "scan.out", "scan.out>", "@<scan.out>", "x"])
).map("".join)


@given(st.lists(PARTS, min_size=4, max_size=4))
def test_what_a_customer_gives_is_data_wherever_it_stands(given_texts):
    """Beside the template's own texts and references, too: nothing of both makes another."""
    params = {name: {"type": "string"} for name in "abcd"}
    values = dict(zip("abcd", given_texts, strict=True))
    text = "@<a>@<b><scan.out> @@@<c>@<scan.out>@<d>@<pop.agendaId>"
    operations = [
        {"name": "scan", "type": "scan"},
        {"name": "use", "type": "use", "payload": {"deep": [text]}},
    ]
    one = template(agenda={"operations": operations}, params=params)
    written = run(one, None, params=values).operations[1].payload
    names = {"scan.out": "RESULT", "pop.agendaId": "ID"}
    a, b, c, d = given_texts
    expected = f"{a}{b}<scan.out> @{c}RESULT{d}ID"
    assert references.resolve(written, names) == {"deep": [expected]}


@given(PARTS)
def test_operations_that_a_customer_gives_are_data_too(text):
    one = template(agenda={"operations": "@<pop.payload::/operations>"})
    made = run(one, {"operations": [{"name": "scan", "type": "noop", "payload": {"k": text}}]})
    assert references.resolve(made.operations[0].payload, {}) == {"k": text}


def test_marks_that_escape_are_gone_where_no_run_reads_references():
    one = template("@@<scan.out>", agenda={"title": "@@<x> @<pop.payload::/file>"})
    made = run(one, {"file": "@<y>"})
    assert made.title == "@<x> @<y>"
    assert made.operations[0].payload == "@@<scan.out>"


def test_the_agenda_remembers_its_template_and_takes_its_title():
    made = run(template(title="Scans"))
    assert made.title == "Scans"
    assert made.template.model_dump() == {"id": "t", "version": 7}
    assert (
        run(template(title="Scans", agenda={"title": "@<pop.payload::/file>"})).title
        == PAYLOAD["file"]
    )
    assert parse_agenda(encode_agenda(made)) == made


def test_fields_of_the_run_win():
    one = template(agenda={"priority": "@<pop.payload::/size>", "link_id": "l0"})
    assert (run(one).priority, run(one).link_id) == (3, "l0")
    made = run(one, id="a1", customer_id="other", link_id="l1", priority=1, title="mine")
    assert (made.id, made.customer_id, made.link_id, made.priority, made.title) == (
        "a1", "other", "l1", 1, "mine",
    )  # fmt: skip
    assert "operations" not in OVERRIDES
    with pytest.raises(ValidationError):
        TEMPLATE_CALL(priority=10)


def test_whole_operations_may_come_from_the_payload():
    one = template(agenda={"operations": "@<pop.payload::/operations>"})
    made = run(one, {"operations": [{"name": "a", "type": "noop"}]})
    assert made.operations[0].name == "a"
    assert refused(one, {"operations": []})[0].field == "operations"


def test_what_comes_out_is_judged_like_any_agenda():
    [issue] = refused(template(agenda={"customer_id": "@<pop.payload::/size>"}))
    assert issue.field == "customer_id"


def test_a_small_run_cannot_grow_without_bound():
    large = "x" * (MAX_EXPANDED_CHARACTERS // 8)
    [issue] = refused(template(["@<pop.payload>"] * 10_000), large)
    assert "characters are filled in" in issue.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"agenda": {"x": "@<nope::/a>"}}, "agenda holds @<nope>, which names nothing"),
        ({"params": {"a.out": {"type": "string"}}}, "no parameter can be called 'a.out'"),
        ({"static_params": {"pop.x": 1}}, "no parameter can be called 'pop.x'"),
        ({"params": {"a": {"type": "string"}}, "static_params": {"a": 1}}, "'a' is both in"),
        ({"params": {"a": {"type": "text"}}}, "'string', 'integer'"),
        ({"params": {"a": {"type": "integer", "default": "1"}}}, "the default is no integer"),
        ({"params": {"a": {"type": "integer", "default": 1, "required": True}}}, "no use for"),
        ({"params": {"a?b": {"type": "string"}}}, "pattern"),
        ({"payload_schema": {"type": "text"}}, "payload_schema cannot be used"),
        (
            {"payload_schema": {"$ref": "http://127.0.0.1/s.json"}},
            "payload_schema cannot be used",
        ),
        ({"payload_schema": {"pattern": r"^(a+)\1$"}}, "payload_schema cannot be used"),
        ({"payload_schema": {"pattern": "("}}, "payload_schema cannot be used"),
    ],
)
def test_a_wrong_template_is_refused_with_the_reason(content, words):
    with pytest.raises(ValidationError, match=words.replace("(", r"\(")):
        AgendaTemplate.model_validate({"id": "t", "agenda": {}, **content})


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="@\0"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def pointers(node, path=""):
    yield path, node
    children = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, one in children:
        step = str(key).replace("~", "~0").replace("/", "~1")
        yield from pointers(one, f"{path}/{step}")


@given(JSON)
def test_any_node_of_any_payload_arrives_as_it_is(payload):
    """Every pointer of the payload, in one template; then each node must be the payload's."""
    reachable = [
        (path, node)
        for path, node in pointers(payload)
        if not set("<>?") & set(path) and path != "/"
    ]
    tokens = [f"@<pop.payload::{path}>" for path, _ in reachable]
    found = filled(tokens, payload)
    assert json.dumps(found) == json.dumps([node for _, node in reachable])


@given(JSON)
def test_static_parameters_arrive_as_they_are(value):
    assert filled("@<it>", None, static_params={"it": value}) == value


@given(TEXT)
def test_text_without_tokens_is_left_alone(text):
    assert filled(text) == text


def test_a_template_waits_for_what_its_payload_names_and_for_nothing_if_that_is_null():
    agenda = {
        "customer_id": "acme",
        "operations": [{"name": "a", "type": "noop"}],
        "wait_for": [{"agenda": "@<pop.payload::/after?>"}, {"signal": "sales.@<day>"}],
    }
    one = AgendaTemplate.model_validate(
        {"id": "report", "params": {"day": {"type": "string"}}, "agenda": agenda}
    )
    params = {"day": "2026-01-01"}
    call = TEMPLATE_CALL.model_validate({"payload": {"after": "import"}, "params": params})
    found = expand(one, call, version=1)
    assert [each.key for each in found.wait_for] == ["import", "sales.2026-01-01"]
    bare = TEMPLATE_CALL.model_validate({"payload": {}, "params": params})
    assert [each.key for each in expand(one, bare, version=1).wait_for] == ["sales.2026-01-01"]
