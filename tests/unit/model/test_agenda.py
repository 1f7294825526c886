"""What is an agenda, and what is said of one that is not."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pop_stream.model.agenda import (
    MAX_OPERATIONS,
    Agenda,
    dependencies,
    encode_agenda,
    parse_agenda,
    plan,
)
from pop_stream.model.errors import SubmissionError


def document(*operations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    known = {"customer_id": "acme", "operations": [*operations] or [operation("only")]}
    return known | changes


def operation(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "type": "noop", **changes}


def faults(data: Any) -> dict[str, str]:
    with pytest.raises(SubmissionError) as refused:
        parse_agenda(data if isinstance(data, bytes | str) else json.dumps(data))
    return {issue.field: issue.message for issue in refused.value.issues}


def test_a_least_agenda_takes_defaults():
    agenda = parse_agenda(b'{"customer_id":"acme","operations":[{"name":"a","type":"noop"}]}')
    assert (agenda.id, agenda.priority, agenda.rank, agenda.fairness_key) == (None, 5, 0, "")
    assert agenda.operations[0].payload is None


def test_encoding_leaves_out_defaults_and_comes_back_the_same():
    whole = document(
        operation("a", payload={"x": [1, True, None, "ü"]}, params={"k": 1}),
        operation("b", depends_on=["a"], payload="@<a.out>"),
        id="x-1",
        title="t",
        link_id="l",
        params={"p": {}},
        priority=1,
        rank=7,
        fairness_key="k",
        cost_s=0.5,
    )
    agenda = parse_agenda(whole)
    assert json.loads(encode_agenda(agenda)) == whole
    assert parse_agenda(encode_agenda(agenda)) == agenda
    least = parse_agenda(document())
    assert encode_agenda(least) == (
        b'{"customer_id":"acme","operations":[{"name":"only","type":"noop"}]}'
    )


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        (b"{", "agenda", "Invalid JSON"),
        (b"\xff\xfe", "agenda", "Invalid JSON"),
        (b"", "agenda", "Invalid JSON"),
        (b"[]", "agenda", "an object"),
        (b"3", "agenda", "an object"),
        (document(customer_id="a b"), "customer_id", "letters, digits and"),
        (document(customer_id="x" * 129), "customer_id", "128"),
        ({"operations": [operation("a")]}, "customer_id", "required"),
        ({"customer_id": "acme"}, "operations", "required"),
        (document(operations=[]), "operations", "at least 1"),
        (document(operations="x"), "operations", "array"),
        (document(operation("a", typo=1)), "operations[0].typo", "no field here"),
        (document(typo=1), "typo", "no field here"),
        (document(operation("")), "operations[0].name", "at least 1"),
        (document(operation("<a>")), "operations[0].name", "pattern"),
        (document({"name": "a"}), "operations[0].type", "required"),
        (document(priority=0), "priority", "greater than or equal to 1"),
        (document(priority=10), "priority", "less than or equal to 9"),
        (document(priority="high"), "priority", "integer"),
        (document(rank=-1), "rank", "greater than or equal to 0"),
        (document(cost_s=0), "cost_s", "greater than 0"),
        (document(title="x" * 501), "title", "500"),
        (document(fairness_key="x" * 129), "fairness_key", "128"),
        (
            document(operation("a"), operation("A")),
            "operations[1].name",
            "taken by operations[0]; names are unique, ignoring case",
        ),
        (
            document(operation("a", depends_on=["b"])),
            "operations[0].depends_on[0]",
            "no operation of this agenda; name one of: a",
        ),
        (
            document(operation("a", payload={"x": ["@<b.out::/y>"]})),
            "operations[0].payload",
            "refers neither",
        ),
        (
            document(operation("a", payload="@<pop.payload>")),
            "operations[0].payload",
            "neither",
        ),
        (document(operation("a", depends_on=["a"])), "operations", "wait for each other"),
        (
            document(operation("a", payload="@<b.out>"), operation("b", depends_on=["a"])),
            "operations",
            "wait for each other",
        ),
    ],
)
def test_a_malformed_agenda_is_refused_with_field_and_remedy(data, field, words):
    found = faults(data)
    assert field in found
    assert words in found[field]


def test_every_fault_is_reported_at_once():
    found = faults(document(operation("a", depends_on=["x", "y"]), operation("a"), priority=5))
    assert {*found} == {
        "operations[0].depends_on[0]",
        "operations[0].depends_on[1]",
        "operations[1].name",
    }


def test_what_pop_called_otherwise_is_answered_with_its_name_here():
    as_in_pop = {
        "customerId": "acme",
        "linkId": "l1",
        "external_id": "x",
        "doNotRun": None,
        "params": {"externalId": "x"},
        "operations": [{"name": "a", "type": "noop", "id": "1"}],
    }
    assert faults(as_in_pop) == {
        "customer_id": "is required; give it",
        "operations[0].id": "is no field here; leave it out, or correct its name",
        "customerId": "is no field here; use customer_id of an agenda, owner of a definition",
        "linkId": "is no field here; use link_id",
        "external_id": "is no field here; use external_id in params",
        "doNotRun": "is no field here; use hold",
    }


def test_an_account_that_was_an_url_is_answered_with_what_an_id_may_be():
    account = document(operation("a"), customer_id="http://host/data/Account/31")
    words = "may hold letters, digits and ._:~-, and begins with a letter or digit"
    assert faults(account) == {"customer_id": words}


def test_params_that_steered_an_agenda_in_pop_are_not_ignored_in_silence():
    steering = document(
        operation("a"),
        operation("b", params={"dependsOn": "a", "codec": "h264"}),
        operation("c", params={"agenda.operation.generator": {"operationsJsonPointer": "/x"}}),
        params={"doNotRun": True, "maximumAttempts": 2, "externalId": "x", "dependsOn": "a"},
    )
    got = faults(steering)
    assert {field: one.split("use ")[1] for field, one in got.items()} == {
        "params.doNotRun": "the agenda's field hold",
        "params.maximumAttempts": "the agenda's field max_attempts",
        "operations[1].params.dependsOn": "the operation's field depends_on, a list",
        "operations[2].params.agenda.operation.generator": (
            "an operation of type append with this one's result"
        ),
    }
    assert parse_agenda(json.dumps(steering), is_accepted=True).params["doNotRun"]


def test_at_most_ten_issues_are_reported():
    with pytest.raises(SubmissionError) as refused:
        parse_agenda(document(operation("a", depends_on=[f"n{n}" for n in range(500)])))
    assert len(refused.value.issues) == SubmissionError.MAX_ISSUES


def test_a_cycle_is_reported_as_a_path():
    wheel = [operation(name, depends_on=[other]) for name, other in ("ab", "bc", "ca")]
    with pytest.raises(SubmissionError) as refused:
        parse_agenda(document(*wheel))
    [issue] = refused.value.issues
    assert sorted(issue.value.split(" -> ")[1:]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [(r'"a\u0000b"', True), (r'"a\\u0000b"', False), (r'"\\\u0000"', True)],
)
@pytest.mark.parametrize("encode", [str, str.encode])
def test_a_nul_is_refused_but_not_the_text_that_looks_like_one(text, is_refused, encode):
    data = encode(json.dumps(document()).replace('"acme"', f'"acme","title":{text}'))
    if is_refused:
        assert "NUL" in faults(data)["agenda"]
    else:
        assert parse_agenda(data).title == "a\\u0000b"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_cannot_carry_are_refused(number):
    text = json.dumps(document(operation("a", payload="N"))).replace('"N"', number)
    assert faults(text)


def test_too_many_operations_are_refused_before_each_is_looked_at():
    least = b'{"customer_id":"a","operations":[' + b",".join([b"{}"] * 170_000) + b"]}"
    assert faults(least) == {"operations": f"at most {MAX_OPERATIONS} fit"}


def test_a_large_agenda_that_is_no_list_of_operations_is_reported_so():
    assert "array" in faults(document(operations="x" * 70_000))["operations"]


def test_decoded_documents_are_held_to_the_same_rules():
    assert parse_agenda(document()) == parse_agenda(json.dumps(document()))
    with pytest.raises(SubmissionError):
        parse_agenda({"customer_id": object()})


def test_long_values_are_shortened():
    with pytest.raises(SubmissionError) as refused:
        parse_agenda(document(title="x" * 10_000))
    assert len(refused.value.issues[0].value) == 200


def test_dependencies_are_named_or_referred_to():
    agenda = parse_agenda(
        document(
            operation("a"),
            operation("b"),
            operation("c", depends_on=["a"], payload={"x": "n: @<b.out::/n?0>"}),
        )
    )
    assert dependencies(agenda.operations[2]) == {"a", "b"}


def test_a_plan_hands_out_what_can_run():
    agenda = parse_agenda(
        document(operation("c", depends_on=["a", "b"]), operation("a"), operation("b"))
    )
    todo = plan(agenda.operations)
    assert {*todo.get_ready()} == {"a", "b"}
    todo.done("a")
    assert todo.get_ready() == ()
    todo.done("b")
    assert todo.get_ready() == ("c",)


def test_agendas_do_not_change():
    agenda = parse_agenda(document())
    assert isinstance(agenda, Agenda)
    with pytest.raises(ValueError, match="frozen"):
        agenda.title = "other"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", "1"),
        ("priority", True),
        ("priority", 1.5),
        ("hold", 1),
        ("hold", "true"),
        ("cost_s", "1"),
        ("title", 1),
        ("not_before", 0),
        ("not_before", "0.5"),
        ("not_before", "2026-01-01"),
    ],
)
def test_nothing_stands_for_something_of_another_type(field, value):
    assert [*faults(document(**{field: value}))] == [field]


def test_a_whole_number_may_be_written_with_a_point():
    assert parse_agenda(document(priority=3.0)).priority == 3


def test_what_was_accepted_once_is_read_as_it_was():
    assert parse_agenda(document(priority="3"), is_accepted=True).priority == 3


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31t13:00:00.5+01:00"])
def test_instants_are_rfc_3339(text):
    got = parse_agenda(document(not_before=text)).not_before
    assert got.astimezone(UTC).replace(microsecond=0) == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "soon"])
def test_what_is_no_instant_is_refused(text):
    assert [*faults(document(not_before=text))] == ["not_before"]


@pytest.mark.parametrize("expires_at", ["2026-01-01T00:00:00Z", "2025-12-31T23:59:59Z"])
def test_one_that_would_expire_before_it_may_start_is_refused(expires_at):
    got = faults(document(not_before="2026-01-01T01:00:00+01:00", expires_at=expires_at))
    assert [*got] == ["expires_at"]
    assert "must be later than not_before, 2026-01-01T01:00:00+01:00" in got["expires_at"]


def test_one_may_expire_right_after_it_may_start():
    agenda = parse_agenda(
        document(not_before="2026-01-01T00:00:00Z", expires_at="2026-01-01T00:00:00.001Z")
    )
    assert agenda.expires_at > agenda.not_before
