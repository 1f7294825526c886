"""Who sends what is read from Kafka, and what becomes of what nobody may send."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from consumer_records import record

from pop_stream.ingest.sender_authentication import SenderAuthenticator
from pop_stream.ingest.submission_processor import BatchResult, SubmissionProcessor
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers, VersionedTemplate
from pop_stream.model.errors import UnauthenticatedError, UnavailableError
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.template import AgendaTemplate
from pop_stream.policy.ingress.signature import RecordSigner

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIGNER = RecordSigner([b"s" * 32])
NO_SECRET = RecordSigner()
TOPIC = "t.submissions"
GOOD = "acme-s3cret"
NO_SUBMITTER = "reader"
ACME = Principal("key:acme", "acme", frozenset({Role.SUBMIT}))
READER = Principal("key:reader", "acme", frozenset({Role.READ}))
AGENDA = {"id": "a1", "customer_id": "acme", "operations": [{"name": "x", "type": "http"}]}


class Tokens:
    def __init__(self):
        self.asked = []

    async def identify(self, authorization):
        self.asked.append(authorization)
        match authorization:
            case "Bearer acme-s3cret":
                return ACME
            case "Bearer reader":
                return READER
            case "Bearer away":
                raise UnavailableError
            case _:
                msg = "the key is unknown, revoked or expired"
                raise UnauthenticatedError(msg)


@pytest.fixture
def tokens():
    return Tokens()


def sent(body, *, token=None, offset=0, **headers):
    got = [(name.replace("_", "-"), value) for name, value in headers.items()]
    if token is not None:
        got.append(("Authorization", f"Bearer {token}".encode()))
    return record(json.dumps(body).encode(), key=b"k", offset=offset, headers=got)


async def sort(gate, *records):
    insight = Insight(id="web", mappers=Mappers(operation_types=("http",)))
    processor = SubmissionProcessor(
        Topics("pop."), Definitions(insights={insight.id: insight}), max_agenda_bytes=100_000
    )
    senders = await gate.senders(records)
    result = BatchResult()
    for one in records:
        sender = senders.get((one.partition, one.offset), ANYONE)
        processor.add(result, one, now=NOW, sender=sender)
    letters = [
        msgspec.json.decode(one.value, type=RecordRefused) for one in result.dead_letters
    ]
    return result, letters


def strict(tokens):
    return SenderAuthenticator(tokens, signer=SIGNER, is_strict=True)


def lenient(tokens):
    return SenderAuthenticator(tokens, signer=NO_SECRET, is_strict=False)


async def test_a_token_speaks_for_its_customer(tokens):
    result, letters = await sort(strict(tokens), sent(AGENDA, token=GOOD))
    assert (len(result.routed["web"]), letters) == (1, [])


@pytest.mark.parametrize("make", [strict, lenient])
async def test_a_token_speaks_for_nobody_else(tokens, make):
    foreign = AGENDA | {"customer_id": "beta"}
    result, (letter,) = await sort(make(tokens), sent([AGENDA, foreign], token=GOOD))
    assert len(result.routed["web"]) == 1
    assert (letter.code, letter.issues[0].field) == ("forbidden", "[1].customer_id")
    # No event may stand in the agenda of the customer that was named.
    assert [type(one).__name__ for one in result.lifecycle] == ["AgendaAccepted"]


@pytest.mark.parametrize("make", [strict, lenient])
@pytest.mark.parametrize(
    ("token", "code"),
    [("wrong", "unauthenticated"), ("away", "unavailable"), ("reader", "forbidden")],
)
async def test_a_token_that_does_not_hold_is_refused_with_its_record(tokens, make, token, code):
    result, (letter,) = await sort(make(tokens), sent(AGENDA, token=token))
    assert (letter.code, result.routed, result.lifecycle) == (code, {}, [])


async def test_a_record_without_a_token_is_refused_only_where_one_is_required(tokens):
    _, (letter,) = await sort(strict(tokens), sent(AGENDA))
    assert (letter.code, "authorization" in letter.reason) == ("unauthenticated", True)
    result, letters = await sort(lenient(tokens), sent(AGENDA))
    assert (len(result.routed["web"]), letters) == (1, [])


async def test_what_the_api_has_sealed_needs_no_token(tokens):
    value = json.dumps(AGENDA).encode()
    [(_, stamp)] = SIGNER.headers(TOPIC, key=b"k", value=value)
    result, letters = await sort(strict(tokens), sent(AGENDA, pop_signature=stamp))
    assert (len(result.routed["web"]), letters, tokens.asked) == (1, [], [])


async def test_a_seal_fits_its_own_record_only(tokens):
    value = json.dumps(AGENDA).encode()
    [(_, stamp)] = SIGNER.headers(TOPIC, key=b"k", value=value)
    [(_, elsewhere)] = SIGNER.headers("t.agenda-events", key=b"k", value=value)
    other = AGENDA | {"title": "other"}
    for forged in (
        sent(other, pop_signature=stamp),
        sent(AGENDA, pop_signature=b"v1=00"),
        sent(AGENDA, pop_signature=elsewhere),
    ):
        result, (letter,) = await sort(strict(tokens), forged)
        assert (letter.code, result.routed) == ("unauthenticated", {})


async def test_without_a_secret_no_seal_counts(tokens):
    gate = SenderAuthenticator(tokens, signer=NO_SECRET, is_strict=True)
    value = json.dumps(AGENDA).encode()
    [(_, stamp)] = RecordSigner([b""]).headers(TOPIC, key=b"k", value=value)
    _, (letter,) = await sort(gate, sent(AGENDA, pop_signature=stamp))
    assert letter.code == "unauthenticated"


async def test_a_token_is_judged_once_for_a_whole_batch(tokens):
    batch = [sent(AGENDA, token=GOOD, offset=number) for number in range(50)]
    result, _ = await sort(strict(tokens), *batch)
    assert (len(result.routed["web"]), tokens.asked) == (50, [f"Bearer {GOOD}"])


async def test_no_token_reaches_the_dead_letters(tokens):
    for token in ("wrong-s3cret", GOOD):
        result, letters = await sort(strict(tokens), sent({"no": "agenda"}, token=token))
        assert letters
        assert all(token.encode() not in (one.value or b"") for one in result.dead_letters)
        assert all(not one.headers for one in result.dead_letters)


async def test_ids_that_customers_choose_are_theirs_and_those_of_operators_are_for_all(tokens):
    keyed = {"customer_id": "acme", "operations": AGENDA["operations"]}
    batch = [
        sent(AGENDA, token=GOOD),
        sent(keyed, token=GOOD, offset=1),
        sent(AGENDA, offset=2),
    ]
    result, letters = await sort(lenient(tokens), *batch)
    assert letters == []
    assert [one.agenda_id for one in result.lifecycle] == ["a1@acme", "k@acme", "a1"]
    assert json.loads(bytes(result.lifecycle[0].agenda))["id"] == "a1@acme"


@pytest.mark.parametrize(
    "fault", [{"operations": []}, {"priority": "urgent"}, {"template_id": "none"}]
)
async def test_what_is_refused_is_shown_to_nobody_but_its_sender(tokens, fault):
    """A record that is not sound either must not leave a trace among another's agendas."""
    foreign = AGENDA | {"customer_id": "beta"} | fault
    result, (letter,) = await sort(strict(tokens), sent(foreign, token=GOOD))
    assert (letter.code, result.lifecycle) == ("forbidden", [])
    result, (letter,) = await sort(strict(tokens), sent(AGENDA | fault, token=NO_SUBMITTER))
    assert (letter.code, result.lifecycle) == ("forbidden", [])
    own = {key: value for key, value in (AGENDA | fault).items() if key != "customer_id"}
    result, (letter,) = await sort(strict(tokens), sent(own, token=GOOD))
    assert letter.code == "submission_refused"
    assert [(one.agenda_id, one.customer_id) for one in result.lifecycle] == [
        ("a1@acme", "acme")
    ]


async def test_an_id_of_another_customers_is_refused_and_leaves_no_trace(tokens):
    result, (letter,) = await sort(lenient(tokens), sent(AGENDA | {"id": "a1@beta"}))
    assert (letter.code, letter.issues[0].field) == ("submission_refused", "id")
    assert [one.agenda_id for one in result.lifecycle] == ["k"]


async def test_a_sender_runs_only_templates_that_it_sees(tokens):
    agenda = {"customer_id": "@<pop.payload::/for?acme>", "operations": AGENDA["operations"]}
    insight = Insight(id="web", mappers=Mappers(operation_types=("http",)))
    templates = {
        one.id: VersionedTemplate(one, 1)
        for one in (
            AgendaTemplate(id="theirs", owner="beta", agenda=agenda),
            AgendaTemplate(id="ours@acme", owner="acme", agenda=agenda),
        )
    }
    processor = SubmissionProcessor(
        Topics("pop."),
        Definitions(insights={insight.id: insight}, templates=templates),
        max_agenda_bytes=10_000,
    )
    for named, code in (("theirs", "submission_refused"), ("ours", None)):
        result = BatchResult()
        run = sent({"template_id": named}, token=GOOD)
        processor.add(result, run, now=NOW, sender=ACME)
        got = [
            msgspec.json.decode(one.value, type=RecordRefused).code
            for one in result.dead_letters
        ]
        assert got == [code] * len(got)
        assert bool(result.routed) is (code is None)
