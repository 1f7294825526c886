"""What a dead letter says of itself, whatever is in it."""

import base64
import json
from datetime import UTC, datetime

import pytest

from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.policy.lifecycle.dead_letters import (
    letter_of_record,
    letter_of_webhook,
    submissions_of,
)
from pop_stream.policy.lifecycle.webhooks import WebhookExhausted

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOPICS = Topics("pop.")
AGENDA = {"id": "a1", "customer_id": "acme", "operations": []}


def refused(value=AGENDA, key=b"k1", **changes):
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    facts = {
        "topic": "pop.submissions", "partition": 2, "offset": 7, "at": AT, "part": "ingest",
        "code": "submission_refused", "reason": "operations = []: too few",
        "value_base64": base64.b64encode(content).decode(),
    }  # fmt: skip
    record = encode(RecordRefused(**(facts | changes)))
    return letter_of_record(record, key=key, insight_of=TOPICS.insight_of)


def test_a_refused_submission_belongs_to_the_customer_that_it_names():
    letter = refused()
    assert (letter.kind, letter.customer_id, letter.agenda_id) == ("refused", "acme", "a1")
    assert json.loads(letter.value) == AGENDA


def test_whoever_sent_it_comes_before_what_it_says():
    letter = refused(sender_customer_id="beta")
    assert (letter.customer_id, letter.sender_id) == ("beta", "beta")


@pytest.mark.parametrize("code", ["forbidden", "unauthenticated"])
def test_a_sender_who_may_not_speak_for_a_customer_puts_nothing_into_its_list(code):
    assert refused(code=code).customer_id is None


@pytest.mark.parametrize(
    ("value", "customer"),
    [
        ([AGENDA, AGENDA | {"id": "a2"}], "acme"),
        ([AGENDA, AGENDA | {"customer_id": "beta"}], None),
        ([AGENDA, {"operations": []}], None),
        ({"customer_id": "<script>"}, None),
        ({"customer_id": 7}, None),
        (b"\xff\xfe{", None),
        ([], None),
    ],
)
def test_a_record_of_several_belongs_to_a_customer_only_if_all_do(value, customer):
    letter = refused(value)
    assert (letter.customer_id, letter.kind) == (customer, "refused")


def test_an_exhausted_agenda_is_known_by_its_key_and_topic():
    letter = refused(
        key=b"a1", topic="pop.insight.files", partition=-1, offset=-1, part="scheduler",
        code="attempts_exhausted", reason="attempt 3: no such file",
    )  # fmt: skip
    assert (letter.kind, letter.insight_id, letter.agenda_id) == ("exhausted", "files", "a1")
    assert letter.customer_id == "acme"


@pytest.mark.parametrize("part", ["rollup", "scheduler", "puller", "ingest"])
def test_what_cannot_be_read_belongs_to_nobody(part):
    letter = refused(part=part, code="unreadable_record", topic="pop.share.media")
    assert (letter.kind, letter.customer_id, letter.insight_id) == ("unreadable", None, "media")


def test_a_repeated_letter_has_the_same_id_and_another_attempt_has_not():
    assert refused().letter_id == refused(at=datetime(2026, 1, 2, tzinfo=UTC)).letter_id
    assert refused().letter_id != refused(offset=8).letter_id
    agenda = {"partition": -1, "offset": -1, "code": "final_failure"}
    first, second = (refused(**agenda, reason=f"attempt {one}: no") for one in (1, 2))
    assert first.letter_id != second.letter_id
    assert refused(**agenda, reason="attempt 1: no").letter_id == first.letter_id


def test_a_webhook_is_its_customers():
    webhook = WebhookExhausted(
        webhook_id="w1", agenda_id="a1", customer_id="acme", url="https://acme.example/hook",
        tries=9, reason="answered with 500\0", at=AT, body="{}",
    )  # fmt: skip
    letter = letter_of_webhook(encode(webhook))
    assert (letter.kind, letter.customer_id, letter.value) == ("webhook", "acme", b"{}")
    assert "\0" not in letter.reason


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\xff", b'{"type": "record.refused"}'])
def test_what_is_no_letter_is_said_to_be_none(value):
    for read in (
        lambda: letter_of_record(value, key=None, insight_of=TOPICS.insight_of),
        lambda: letter_of_webhook(value),
    ):
        with pytest.raises(UnreadableRecordError):
            read()


def test_a_value_that_is_no_base64_is_no_letter():
    with pytest.raises(UnreadableRecordError):
        refused(value_base64="%%%")


def test_the_submissions_of_a_record_are_one_or_many():
    assert submissions_of(b'{"id": 1}') == [b'{"id": 1}']
    assert submissions_of(b'[{"id": 1}, {"id": 2}]') == [b'{"id": 1}', b'{"id": 2}']
    with pytest.raises(UnreadableRecordError):
        submissions_of(b"\xff")
