"""What an agenda can be looked for by besides its id."""

import json

import pytest

from pop_stream.model.ids import MAX_ALTERNATE_ID_LENGTH, AlternateIds, alternate_ids


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"params": {"external_id": "t-9", "externalId": "old"}}, ("t-9", None)),
        ({"params": {"externalId": "t-9"}}, ("t-9", None)),
        ({"params": {"external_id": None, "externalId": "t-9"}}, (None, None)),
        ({"params": {"external_id": 9}}, (None, None)),
        (
            {"params": {"external_id": "x" * MAX_ALTERNATE_ID_LENGTH}},
            ("x" * MAX_ALTERNATE_ID_LENGTH, None),
        ),
        ({"params": {"external_id": "x" * (MAX_ALTERNATE_ID_LENGTH + 1)}}, (None, None)),
        ({"trace": {"correlation_id": "req-7"}, "operations": []}, (None, "req-7")),
        ({"trace": None, "params": None}, (None, None)),
        ({"trace": 7, "params": []}, (None, None)),
        ([], (None, None)),
    ],
)
def test_names_are_found_where_they_are_texts_that_an_index_takes(body, names):
    assert alternate_ids(json.dumps(body).encode()) == AlternateIds(*names)


@pytest.mark.parametrize("body", [b"", b"no JSON", b'{"params": {"external_id": "\xff"}}'])
def test_what_is_no_agenda_has_none(body):
    assert alternate_ids(body) == AlternateIds()
