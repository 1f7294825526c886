"""Rules: which records lead to an agenda, what it is, and where a chain ends."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pop_stream.model.definitions import decode_definition, encode_definition
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.rules import LinkCommanded
from pop_stream.model.identity import Role
from pop_stream.model.rule import Rule
from pop_stream.model.trace import Trace
from pop_stream.policy.rules import (
    RuleFiring,
    SourceRecord,
    definition_change,
    hops_of,
    match,
)

SUBMISSION = {
    "customer_id": "acme",
    "operations": [{"name": "a", "type": "noop", "payload": "@<pop.event::/value>"}],
}
AT = datetime(2026, 1, 1, tzinfo=UTC)
LARGE = {"type": "object", "required": ["size"], "properties": {"size": {"minimum": 10}}}


def rule(**fields):
    return Rule.model_validate(
        {"id": "big", "topic": "files", "submission": SUBMISSION, **fields}
    )


def record(value=None, *, offset=7, partition=2, **fields):
    raw = json.dumps(value).encode()
    return SourceRecord(
        **{"topic": "files", "partition": partition, "offset": offset, "value": raw, **fields}
    )


def test_only_what_fits_leads_to_an_agenda_of_the_record():
    large = rule(where=LARGE)
    assert match(large, record({"size": 9})) == "filtered"
    assert match(large, record(None)) == "filtered"
    broken = SourceRecord(topic="files", partition=0, offset=0, value=b"{")
    assert match(large, broken) == "unreadable"
    body = match(large, record({"size": 10}, key=b"k")).body()
    assert body["operations"][0]["payload"] == {"size": 10}
    assert body["link_id"] == "big"
    assert body["series"]["position"] == 7


@given(st.text(max_size=40), st.integers(0, 2**50), st.integers(0, 10_000))
def test_whatever_a_record_holds_it_is_data_and_its_agenda_is_the_same_each_time(
    text, offset, partition
):
    first, second = (
        match(rule(), record(text, offset=offset, partition=partition)) for _ in range(2)
    )
    assert first.body() == second.body()
    assert first.trace == second.trace
    other = match(rule(), record(text, offset=offset + 1, partition=partition))
    assert other.agenda_id != first.agenda_id
    assert other.series.id == first.series.id


@given(st.integers(1, 20))
def test_a_chain_ends_at_its_depth(most):
    headers, agendas = (), 0
    while True:
        firing = match(rule(max_hops=most), record(1, offset=agendas, headers=headers))
        assert isinstance(firing, RuleFiring)
        assert hops_of(firing.trace) == firing.hops == agendas + 1
        if firing.hops > most:
            with pytest.raises(SubmissionError, match="max_hops"):
                firing.body()
            break
        assert firing.body()["id"] == firing.agenda_id
        agendas += 1
        headers = tuple((name, one.encode()) for name, one in firing.trace.headers.items())
    assert agendas == most


def test_what_others_have_in_a_trace_stays():
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    headers = (("traceparent", parent.encode()), ("tracestate", b"x=1,pop=hops:2,y=2"))
    trace = match(rule(), record(1, headers=headers)).trace
    assert trace == Trace(traceparent=parent, tracestate="pop=hops:3,x=1,y=2")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"topic": "__consumer_offsets"}, "topic of Kafka itself"),
        ({"where": {"type": "nothing"}}, "cannot be used"),
        ({"submission": {**SUBMISSION, "id": "x"}}, "leave it out"),
        ({"submission": {"customer_id": "acme"}}, "template_id"),
        ({"submission": {"operations": SUBMISSION["operations"]}}, "name the customer"),
        ({"submission": {**SUBMISSION, "title": "@<pop.evnt::/x>"}}, "names nothing"),
        ({"owner": "beta"}, "the rule's owner"),
        ({"id": "x" * 61}, "at most 60"),
        ({"topic": None}, "either `topic` or `on`"),
        ({"on": "agenda.ended"}, "either `topic` or `on`"),
        ({"topic": None, "on": "agenda.begun"}, "agenda.ended"),
        ({"submission": None}, "exactly one of"),
        ({"cancel": {"customer_id": "acme", "link_id": "x"}}, "exactly one of"),
        (
            {"owner": "acme", "topic": None, "on": "definition.changed"},
            "sees no others' definitions",
        ),
        (
            {"owner": "acme", "topic": None, "on": "insight.idle"},
            "shows what others run",
        ),
        (
            {
                "submission": None,
                "owner": "acme",
                "cancel": {"customer_id": "b", "link_id": "x"},
            },
            "the rule's owner",
        ),
        (
            {"submission": None, "release": {"customer_id": "acme", "link_id": "@<x::>"}},
            "names nothing",
        ),
        ({"max_per_s": 0}, "greater than or equal"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(fields, says):
    with pytest.raises(ValidationError, match=says):
        rule(**fields)


def test_an_operators_rule_is_for_operators_and_a_customers_is_seen_by_it_alone():
    assert not rule().ownership.is_seen_by("acme")
    own = rule(owner="acme")
    assert own.ownership.is_seen_by("acme")
    assert not own.ownership.is_seen_by("beta")
    assert rule(visibility="global").ownership.is_seen_by("acme")


def test_what_a_rule_submits_for_its_owner_is_in_the_owners_name_space():
    firing = match(rule(owner="acme"), record({}))
    assert firing.agenda_id.endswith("-7@acme")
    assert (firing.sender.customer_id, firing.sender.roles) == ("acme", {Role.SUBMIT})
    assert match(rule(), record({})).sender.is_operator


ENDED = {"agenda_id": "a1", "customer_id": "acme", "state": "succeeded", "template_id": "scan"}


def on_ends(**fields):
    given = {"id": "next", "on": "agenda.ended", "submission": SUBMISSION, **fields}
    return Rule.model_validate(given)


def test_a_rule_with_an_owner_meets_ends_of_the_owners_agendas_alone():
    own, anyone = on_ends(owner="acme"), on_ends()
    assert isinstance(match(own, record(ENDED)), RuleFiring)
    for other in ({**ENDED, "customer_id": "beta"}, {**ENDED, "customer_id": None}, [], "acme"):
        assert match(own, record(other)) == "filtered"
    assert isinstance(match(anyone, record({**ENDED, "customer_id": "beta"})), RuleFiring)


def test_ends_differ_by_state_customer_and_template():
    where = {"properties": {"state": {"const": "failed"}, "template_id": {"const": "scan"}}}
    failures = on_ends(where=where)
    assert match(failures, record(ENDED)) == "filtered"
    assert isinstance(match(failures, record({**ENDED, "state": "failed"})), RuleFiring)


def test_the_end_of_what_a_rule_submitted_leads_it_to_nothing():
    first = match(on_ends(), record(ENDED, place="3", position=77))
    assert first.agenda_id.endswith("-3-77")
    assert first.series.position == 77
    again = {**ENDED, "agenda_id": first.agenda_id}
    assert match(on_ends(), record(again)) == "filtered"
    assert isinstance(match(on_ends(id="other"), record(again)), RuleFiring)


def test_a_changed_definition_comes_with_its_version_and_a_key_never_does():
    made = definition_change(b"customer/acme", b'{"id":"acme"}', 1)
    assert json.loads(made) == {
        "kind": "customer",
        "id": "acme",
        "version": 1,
        "change": "created",
        "definition": {"id": "acme"},
    }
    assert json.loads(definition_change(b"customer/acme", b"{}", 2))["change"] == "changed"
    gone = json.loads(definition_change(b"customer/acme", None, 3))
    assert (gone["change"], gone["definition"]) == ("deleted", None)
    assert definition_change(b"key/k1", b"{}", 1) is None
    assert definition_change(None, b"{}", 1) is None


def acting(action, **fields):
    given = {"customer_id": "acme", "link_id": "file-@<pop.event::/value/id>", **fields}
    return Rule.model_validate({"id": "act", "topic": "files", action: given})


@pytest.mark.parametrize("action", ["cancel", "release"])
def test_a_rule_commands_a_link_of_one_customer(action):
    firing = match(acting(action), record({"id": 7}))
    assert firing.act(AT) == LinkCommanded(
        rule_id="act", at=AT, action=action, customer_id="acme", link_id="file-7"
    )
    with pytest.raises(SubmissionError, match="link_id"):
        match(acting(action), record({"id": "a b"})).act(AT)
    with pytest.raises(SubmissionError):
        match(acting(action), record({})).act(AT)


def test_a_rule_gives_a_signal_and_refuses_one_that_is_too_large():
    signal = {
        "customer_id": "acme",
        "name": "paid-@<pop.event::/value/id>",
        "payload": "@<pop.event::/value>",
    }
    one = Rule.model_validate({"id": "act", "topic": "files", "signal": signal})
    given = match(one, record({"id": 7})).act(AT)
    assert (given.customer_id, given.name, given.keep_s) == ("acme", "paid-7", 86_400)
    assert json.loads(bytes(given.payload)) == {"id": 7}
    with pytest.raises(SubmissionError, match="payload"):
        match(one, record({"id": 7, "x": "x" * 70_000})).act(AT)


def test_a_chain_of_commands_ends_at_its_depth_too():
    headers = (
        ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01".encode()),
        ("tracestate", b"pop=hops:5"),
    )
    with pytest.raises(SubmissionError, match="max_hops"):
        match(acting("cancel"), record({"id": 7}, headers=headers)).act(AT)


def test_a_rule_survives_the_topic():
    one = rule(where=LARGE, owner="acme")
    assert decode_definition("rule/big", encode_definition(one)) == one
