"""Deduplication keys: what makes agendas the same."""

from datetime import UTC, datetime, timedelta

import pytest

from pop_stream.model.agenda import dedupe_rule, encode_agenda, parse_agenda, routed_agenda

AT = datetime(2026, 1, 1, tzinfo=UTC)


def agenda(customer_id="acme", payload=None, **dedupe):
    return parse_agenda(
        {
            "customer_id": customer_id,
            "operations": [{"name": "scan", "type": "scan", "payload": payload}],
            "dedupe": dedupe,
        }
    )


def key(**fields):
    return dedupe_rule(agenda(**fields)).key


def test_the_order_of_an_objects_fields_makes_no_difference_and_its_values_do():
    assert key(key={"a": 1, "b": [2]}) == key(key={"b": [2], "a": 1})
    assert key(key={"a": 1}) != key(key={"a": 2}) != key(key="a")
    assert key(key="1") != key(key=1)


def test_no_two_customers_share_a_key():
    assert key(key="k") != key(key="k", customer_id="other")


def test_fields_of_the_agenda_are_part_of_the_key():
    at = ["/operations/0/payload/host"]
    assert key(fields=at, payload={"host": "a", "x": 1}) == key(
        fields=at, payload={"host": "a"}
    )
    assert key(fields=at, payload={"host": "a"}) != key(fields=at, payload={"host": "b"})
    assert key(fields=at, payload={"host": "a"}, key="k") != key(key="k")
    assert key(fields=["/priority"])  # a default counts as what it is


def test_an_agenda_goes_on_with_its_rule_as_it_was_given():
    given = {"key": "k", "while": "waiting", "within_s": 5.0}
    made = agenda(**given)
    assert b'"while":"waiting"' in encode_agenda(made)
    assert parse_agenda(encode_agenda(made)) == made
    routed = routed_agenda(made, encode_agenda(made), agenda_id="a", accepted_at=AT)
    assert (routed.dedupe.during, routed.dedupe.within_s) == ("waiting", 5.0)


def test_without_a_rule_nothing_is_said_of_it():
    made = parse_agenda({"customer_id": "a", "operations": [{"name": "x", "type": "x"}]})
    assert b"dedupe" not in encode_agenda(made)
    assert routed_agenda(made, b"{}", agenda_id="a", accepted_at=AT).dedupe is None


@pytest.mark.parametrize(("start_s", "expected_s"), [(None, 10), (5, 10), (60, 60)])
def test_a_debounced_agenda_waits_for_its_pause_or_its_own_start(start_s, expected_s):
    made = agenda(key="k", on_duplicate="debounce", debounce_s=10)
    if start_s is not None:
        made = made.model_copy(update={"not_before": AT + timedelta(seconds=start_s)})
    routed = routed_agenda(made, encode_agenda(made), agenda_id="a", accepted_at=AT)
    assert routed.not_before == AT + timedelta(seconds=expected_s)
    assert routed.dedupe.during == "waiting"
