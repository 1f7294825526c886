"""How POP's documents are read, and what is found in them."""

import json

import pytest

from pop_stream.pop_import.objects import MAX_DEPTH, read_objects

POOL = {"id": "kiln", "title": "Kiln", "insightIds": []}
CUSTOMER = {"id": "nora", "resourcePoolId": "kiln"}


def read(*texts, kind=None):
    raw = [text if isinstance(text, bytes) else text.encode() for text in texts]
    return read_objects([(f"{n}.json", one) for n, one in enumerate(raw)], kind)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([POOL, CUSTOMER]),
        f"{json.dumps(POOL)}\n{json.dumps(CUSTOMER)}\n",
        json.dumps(POOL, indent=2) + json.dumps(CUSTOMER, indent=2),
        json.dumps({"all": [POOL, CUSTOMER], "count": 2, "cid": "c", "error": False}),
        "\ufeff" + json.dumps([POOL, CUSTOMER]),
    ],
)
def test_objects_stand_alone_in_lists_on_lines_and_in_answers(text):
    found, unreadable = read(text)
    assert not unreadable
    assert [(one.number, one.kind) for one in found] == [(1, "ResourcePool"), (2, "Customer")]
    assert found[1].fields == CUSTOMER


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"operations": []}, "Agenda"),
        ({"agenda": {}}, "AgendaTemplate"),
        ({"mappers": {}}, "Insight"),
        ({"title": "x", "queueSize": 0, "resourcePoolId": "p"}, "Insight"),
        ({"insightId": "i", "agendaId": "a", "customerId": "c"}, "ReadyAgenda"),
        ({"agendaId": "a", "processingState": "WAITING"}, "AgendaProgress"),
        (
            {"agendaProgressId": "p", "operation": "x", "processingState": "x"},
            "OperationProgress",
        ),
        ({"id": "p-i", "pendingCustomerIds": []}, "InsightScheduleInfo"),
        ({"agendaTemplateId": "t", "payload": "{}"}, "Run"),
        ({"agendaTemplateId": "t", "linkId": "l"}, "TransformRequest"),
        ({"id": "x", "title": "X"}, None),
    ],
)
def test_an_object_is_known_by_its_fields(fields, kind):
    [one], _ = read(json.dumps(fields))
    assert one.kind == kind


def test_an_object_with_base_fields_only_is_what_others_take_it_for():
    bare = {"id": "kiln", "title": "Kiln"}
    found, _ = read(json.dumps([bare, CUSTOMER]))
    assert found[0].kind == "ResourcePool"
    [alone], _ = read(json.dumps(bare), kind="Customer")
    assert alone.kind == "Customer"


def test_null_counts_as_absent():
    [one], _ = read('{"id": "x", "operations": null, "resourcePoolId": "p"}')
    assert one.kind == "Customer"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no object"),
        ("[]", "holds no object"),
        ("[1]", "no JSON object"),
        ('"text"', "no JSON object"),
        ('{"id": ', "no JSON"),
        ('{"id": NaN}', "no number"),
        ('{"id": 1e999}', "no number"),
        ('{"id": ' + "9" * 5000 + "}", "no JSON"),
        ('{"id": "a", "id": "b"}', "stands twice"),
        ('{"id": "\\ud800"}', "no text can"),
        ('{"id": "\\u0000"}', "no text can"),
        ('{"\\udfff": 1}', "no text can"),
        (b'{"id": "\xff"}', "UTF-8"),
        ("[" * 100_000, "deep"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "deep"),
        ('{"error": true, "errorResponse": {"title": "No"}}', "ask it again"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_other_documents_are_read(text, says):
    found, unreadable = read(text, json.dumps(POOL))
    assert [one.fields["id"] for one in found] == ["kiln"]
    [(source, issue)] = unreadable
    assert source == "0.json"
    assert says in str(issue)
