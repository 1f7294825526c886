"""Who is let in from Kafka: what others let in always, the rest by quotas, with the reason."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from consumer_records import record

from pop_stream.ingest.sender_authentication import KafkaSubmissionQuota
from pop_stream.ingest.submission_processor import SubmissionProcessor
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaRefused
from pop_stream.model.events.quota import BacklogUsage, CapacityLimit
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.policy.ingress.signature import (
    ADMITTED_HEADER,
    RECORD_SIGNATURE_HEADER,
    RecordSigner,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
SECRET = b"s" * 32
CUSTOMERS = {
    "few": Customer(id="few", max_ready=2),
    "slow": Customer(id="slow", max_submit_per_s=1, submit_burst=1),
}


class Hall:
    """A processor with a quota ledger of its own."""

    def __init__(self, secret=None, name="ingest", **insight_fields):
        self.ledger = QuotaLedger(name, CUSTOMERS.get)
        self.admission = KafkaSubmissionQuota(
            self.ledger, RecordSigner([secret] if secret else [])
        )
        insight = Insight(
            id="web", mappers=Mappers(operation_types=("http",)), **insight_fields
        )
        self.processor = SubmissionProcessor(
            Topics("pop."),
            Definitions(insights={insight.id: insight}),
            max_agenda_bytes=100_000,
            quota=self.admission,
        )

    def sort(self, *records, now=NOW):
        batch = self.processor.process(records, now=now)
        letters = [
            msgspec.json.decode(one.value, type=RecordRefused) for one in batch.dead_letters
        ]
        kinds = [type(one) for one in batch.lifecycle]
        return kinds.count(AgendaAccepted), kinds.count(AgendaRefused), letters

    def fill(self, present=12):
        near = CapacityLimit(what="agendas", limit=10, present=present)
        self.ledger.apply(BacklogUsage(insight_id="web", at=NOW, capacity_limit=near), now_s=0)


def sent(customer_id, offset=0, *, count=1, after_s=0.0, headers=()):
    body = {"customer_id": customer_id, "operations": [{"name": "x", "type": "http"}]}
    value = json.dumps([body] * count if count > 1 else body).encode()
    timestamp = NOW_MS + int(after_s * 1000)
    return record(value, offset=offset, timestamp=timestamp, headers=headers)


def test_of_a_list_so_many_are_admitted_as_may_be_ready_and_the_rest_is_answered_why():
    hall = Hall()
    accepted, refused, [letter] = hall.sort(sent("few", count=5), sent("free", 1, count=5))
    assert (accepted, refused) == (2 + 5, 3)
    assert letter.code == "quota"
    assert letter.reason.startswith("3 of 5 agendas refused: [2].customer_id = few")
    assert "may have 2" in letter.reason


def test_what_was_refused_can_be_submitted_again():
    hall = Hall()
    batch = hall.processor.process([sent("few", count=3)], now=NOW)
    [refused] = [one for one in batch.lifecycle if isinstance(one, AgendaRefused)]
    assert refused.agenda_id == "0-0-2"
    assert json.loads(bytes(refused.agenda))["customer_id"] == "few"


def test_what_waited_for_ingest_is_no_faster_for_it():
    hall = Hall()
    late = NOW + timedelta(hours=1)
    records = [sent("slow", offset, after_s=offset) for offset in range(5)]
    assert hall.sort(*records, now=late)[:2] == (5, 0)
    together = [sent("slow", offset, after_s=100) for offset in range(5, 10)]
    assert hall.sort(*together, now=late)[:2] == (1, 4)


def test_a_producer_whose_clock_is_ahead_gains_nothing():
    hall = Hall()
    records = [sent("slow", offset, after_s=100 * offset) for offset in range(5)]
    assert hall.sort(*records)[:2] == (1, 4)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_what_the_api_let_in_is_not_refused_any_more_but_counts(secret):
    hall = Hall(secret)
    hall.fill()
    plain = sent("few", count=4)
    signed = RecordSigner([SECRET]).headers(plain.topic, key=None, value=plain.value)
    [header] = [ADMITTED_HEADER] if secret is None else signed
    assert hall.sort(sent("few", count=4, headers=[header]))[:2] == (4, 0)
    assert hall.ledger.ready_count("few") == 4
    assert not hall.admission.take_has_decided()


def test_where_there_is_a_secret_a_word_without_a_seal_counts_for_nothing():
    hall = Hall(SECRET)
    headers = [ADMITTED_HEADER, (RECORD_SIGNATURE_HEADER, b"v1=00")]
    assert hall.sort(sent("few", count=4, headers=headers))[:2] == (2, 2)


def test_what_may_have_been_accepted_before_a_crash_is_not_refused_any_more():
    """Else it would be accepted, and never placed."""
    before, after = Hall(), Hall(name="another")
    records = [sent("few", 7, count=2), sent("few", 8)]
    assert before.sort(*records)[:2] == (2, 1)
    assert before.admission.take_has_decided()
    after.ledger.apply(before.ledger.begin({0: 9}), now_s=0)
    after.fill()
    assert after.sort(*records)[:2] == (3, 0)
    assert after.sort(sent("few", 9))[:2] == (0, 1)


def test_a_full_insight_refuses_everyone_with_the_reason():
    hall = Hall()
    hall.fill()
    accepted, refused, [letter] = hall.sort(sent("free"))
    assert (accepted, refused, letter.code) == (0, 1, "insight_full")
    assert "takes 10" in letter.reason


def test_nothing_is_decided_where_nobody_has_a_quota_and_there_is_room():
    hall = Hall()
    assert hall.sort(sent("free", count=50))[:2] == (50, 0)
    assert not hall.admission.take_has_decided()
    hall.fill(present=9)
    hall.sort(sent("free", 1))
    assert hall.admission.take_has_decided()  # it may be full when these records are read again


def test_a_customer_that_must_be_defined_is_refused_with_the_remedy_and_may_try_again():
    insight = Insight(id="web", mappers=Mappers(operation_types=("http",)))
    processor = SubmissionProcessor(
        Topics("pop."),
        Definitions(insights={insight.id: insight}, customers=CUSTOMERS),
        max_agenda_bytes=100_000,
        defined_customers_only=True,
    )
    batch = processor.process([sent("few"), sent("new", offset=1)], now=NOW)
    accepted, refused = batch.lifecycle
    assert (type(accepted), type(refused)) == (AgendaAccepted, AgendaRefused)
    assert refused.agenda is not msgspec.UNSET
    [letter] = batch.dead_letters
    assert b"only defined customers may submit here; define the customer" in letter.value


# ---- policies ----


def held(hall, *records):
    """Why the agendas of these records are held, as the scheduler gets them."""
    batch = hall.processor.process(records, now=NOW)
    routed = [decode_routed(one.body) for some in batch.routed.values() for one in some]
    return [one.held_reason if one.held else None for one in routed]


def test_what_a_policy_denies_is_a_dead_letter_and_can_be_submitted_again():
    hall = Hall(enabled=False)
    batch = hall.processor.process([sent("free")], now=NOW)
    [refused] = batch.lifecycle
    assert isinstance(refused, AgendaRefused)
    assert [one.field for one in refused.issues] == ["insight_id"]
    assert bytes(refused.agenda)
    assert hall.sort(sent("free"))[2][0].code == "admission_denied"


@pytest.mark.parametrize("secret", [None, SECRET])
def test_what_the_api_let_in_is_not_denied_any_more(secret):
    hall = Hall(secret, needs_labels=("l",))
    plain = sent("free")
    signed = RecordSigner([SECRET]).headers(plain.topic, key=None, value=plain.value)
    [header] = [ADMITTED_HEADER] if secret is None else signed
    assert held(hall, sent("free", headers=[header])) == [None]
    assert hall.sort(plain)[:2] == (0, 1)


def test_what_may_have_been_let_in_before_a_crash_is_held_where_it_is_denied_now():
    before, after = Hall(needs_labels=()), Hall(name="another", needs_labels=("l",))
    assert held(before, sent("free", 7)) == [None]
    before.admission.standing(sent("free", 7))
    after.ledger.apply(before.ledger.begin({0: 8}), now_s=0)
    [reason] = held(after, sent("free", 7))
    assert reason.startswith("denied now, but perhaps let in before a restart: customer_id")
    assert after.sort(sent("free", 8))[:2] == (0, 1)


def test_others_may_not_deny_what_this_one_lets_in_so_it_says_how_far_it_is():
    asked, free = Hall(needs_labels=("l",)), Hall()
    asked.sort(sent("free"))
    free.sort(sent("free"))
    assert asked.admission.take_has_decided()
    assert not free.admission.take_has_decided()
