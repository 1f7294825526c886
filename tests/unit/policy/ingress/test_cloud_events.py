"""What CloudEvents submit, in every mode, and which are refused for which attribute."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.policy.ingress.cloud_events import (
    BATCH,
    STRUCTURED,
    event_agenda_id,
    from_http_headers,
    from_kafka,
    from_structured,
    is_binary_over_http,
)

AGENDA = {"customer_id": "acme", "operations": [{"name": "fetch", "type": "http"}]}
CONTEXT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed"}
EVENT = {**CONTEXT, "data": AGENDA}
ID = event_agenda_id("/shop", "e-1", "acme")


def structured(**changes):
    given = {name: one for name, one in (EVENT | changes).items() if one is not ...}
    return json.dumps(given).encode()


def issues(error):
    return [(one.field, one.message) for one in error.value.issues]


def test_an_event_submits_its_data_under_an_id_of_its_own():
    submitted = from_structured(structured(), None)
    assert json.loads(submitted) == {**AGENDA, "id": ID}
    assert parse_agenda(submitted).id == ID


def test_data_that_names_its_id_keeps_it():
    submitted = from_structured(structured(data={**AGENDA, "id": "order-7"}), None)
    assert json.loads(submitted)["id"] == "order-7"


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=100))
def test_an_id_is_made_of_whatever_names_an_event(source, event_id, customer_id):
    made = event_agenda_id(source, event_id, customer_id)
    assert made == event_agenda_id(source, event_id, customer_id)
    assert parse_agenda(json.dumps({**AGENDA, "id": made})).id == made
    assert made != event_agenda_id(source, f"{event_id}x", customer_id)
    assert made != event_agenda_id(f"{source}x", event_id, customer_id)
    assert made != event_agenda_id(source, event_id, f"{customer_id}x")


def test_no_part_of_a_name_moves_to_another():
    assert event_agenda_id("a", "bc", "d") != event_agenda_id("ab", "c", "d")


def test_a_template_takes_any_data_as_its_payload():
    event = structured(data=[1, {"a": 2}], poptemplate="scan", popcustomer="acme")
    assert json.loads(from_structured(event, None)) == {
        "template_id": "scan",
        "payload": [1, {"a": 2}],
        "customer_id": "acme",
        "id": ID,
    }


def test_a_customer_need_not_be_named_by_itself():
    event = structured(data={"template_id": "scan"})
    made = json.loads(from_structured(event, "acme"))
    assert made == {"template_id": "scan", "id": ID}


def test_on_behalf_of_others_no_id_is_made():
    """Ids are in the name space of the agenda's customer, who alone chooses them."""
    assert "id" not in json.loads(from_structured(structured(), "other"))


def test_data_may_be_in_base64():
    text = base64.b64encode(json.dumps(AGENDA).encode()).decode()
    event = structured(data=..., data_base64=text)
    assert json.loads(from_structured(event, None))["customer_id"] == "acme"


def test_binary_mode_over_http_has_attributes_in_headers():
    headers = {"CE-Specversion": "1.0", "ce-id": quote("Ünit 1"), "Ce-Source": "/shop"}
    headers |= {"ce-type": "order.placed", "Content-Type": "application/json", "X-Other": "1"}
    assert is_binary_over_http(headers)
    submitted = from_http_headers(headers, json.dumps(AGENDA).encode(), None)
    assert json.loads(submitted)["id"] == event_agenda_id("/shop", "Ünit 1", "acme")
    assert not is_binary_over_http({"Content-Type": STRUCTURED})


def kafka(content_type=None, **attributes):
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items()]
    if content_type:
        headers.append(("content-type", content_type.encode()))
    return headers


def test_a_record_of_kafka_is_an_event_in_either_mode_or_none():
    value = json.dumps(AGENDA).encode()
    binary = from_kafka(kafka("application/json; charset=utf-8", **CONTEXT), value, None)
    assert json.loads(binary) == {**AGENDA, "id": ID}
    whole = from_kafka(kafka(f"{STRUCTURED}; charset=UTF-8"), structured(), None)
    assert json.loads(whole) == {**AGENDA, "id": ID}
    assert from_kafka([("other", b"1"), ("empty", None)], value, None) is None
    assert from_kafka([("content-type", b"application/json")], value, None) is None
    with pytest.raises(SubmissionError, match="one event a record"):
        from_kafka(kafka(BATCH), b"[]", None)


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"specversion": "0.3"}, "specversion", "send version 1.0"),
        ({"specversion": ...}, "specversion", "is missing"),
        ({"id": ""}, "id", "is missing"),
        ({"id": None}, "id", "is missing"),
        ({"source": ...}, "source", "is missing"),
        ({"type": ...}, "type", "is missing"),
        ({"id": ["x"]}, "id", "must be a text"),
        ({"subject": ""}, "subject", "leave it out"),
        ({"time": "yesterday"}, "time", "RFC 3339"),
        ({"time": "2026-01-01T12:00:00"}, "time", "RFC 3339"),
        ({"datacontenttype": "text/xml"}, "datacontenttype", "is not JSON"),
        ({"Bad-Name": "x"}, "Bad-Name", "lower-case letters and digits"),
        ({"source": "x" * 2_001}, "source", "2,000 at most"),
        ({"data": "text"}, "data", "poptemplate"),
        ({"data": ...}, "data", "poptemplate"),
        ({"data_base64": "e30="}, "data_base64", "one of them"),
        ({"data": ..., "data_base64": "%"}, "data_base64", "Base64"),
    ],
)
def test_what_is_wrong_is_said_of_its_attribute(changes, field, why):
    with pytest.raises(SubmissionError) as error:
        from_structured(structured(**changes), None)
    found = issues(error)
    assert field in {name for name, _ in found}
    assert any(why in message for name, message in found if name == field)


@pytest.mark.parametrize("whole", [b"", b"[]", b"{", b"null", b"\xff"])
def test_what_is_no_object_is_no_event(whole):
    with pytest.raises(SubmissionError, match="must be a JSON object"):
        from_structured(whole, None)


HOSTILE = (
    "\udcff",
    "a\0b",
    "\ud800",
    "\udc80\ud800",
    "9" * 4_400,
    "%00",
    "%ED%A0%80",
    "\u202e",
)
ATTRIBUTES = (*CONTEXT, "subject", "time", "poptemplate", "popcustomer", "datacontenttype", "x")


@pytest.mark.parametrize("name", [*ATTRIBUTES, "\udcff", "n\0"])
@pytest.mark.parametrize("text", HOSTILE, ids=lambda one: ascii(one)[:20])
def test_no_text_of_an_attribute_is_more_than_a_wrong_attribute(name, text):
    """As aiohttp reads headers: what is no UTF-8 is a lone surrogate each byte."""
    said = {**CONTEXT, name: text}
    for made in (
        lambda: from_http_headers(
            {f"ce-{key}": one for key, one in said.items()}, b"{}", "acme"
        ),
        lambda: from_structured(json.dumps({**EVENT, name: text}).encode(), "acme"),
        lambda: from_kafka(
            [
                (
                    f"ce_{key}",
                    one.encode(errors="surrogateescape" if "\udcff" in one else "replace"),
                )
                for key, one in said.items()
            ],
            b"{}",
            "acme",
        ),
    ):
        try:
            submitted = made()
        except SubmissionError as error:
            shown = json.dumps([[one.field, one.value, one.message] for one in error.issues])
            assert "\\ud" not in shown.replace("\\\\ud", "")  # can be answered, and stored
        else:
            json.loads(submitted.decode())


@given(st.binary(max_size=80), st.dictionaries(st.text(max_size=8), st.binary(max_size=20)))
def test_what_is_no_event_is_refused_and_no_fault(value, headers):
    with pytest.raises(SubmissionError, match="CloudEvent: "):
        from_kafka([*headers.items(), ("ce_specversion", b"1.0")], value, None)
