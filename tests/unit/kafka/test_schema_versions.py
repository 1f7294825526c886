"""Records of this version and of the one after, stored here, run through every reader."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from backlogs import START
from consumer_records import record
from fakes import FixedDefinitions, ManualClock, MemoryPublisher
from submission_processors import SORTER

from pop_stream.http_pull.dispatcher import _decoded
from pop_stream.kafka import clients
from pop_stream.kafka.attempt_stops import follow_controls
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.deliveries import KafkaHttpDeliveries
from pop_stream.kafka.lifecycle_reader import read
from pop_stream.kafka.queries import KafkaQueueQueries
from pop_stream.kafka.quota_gossip import QuotaGossip
from pop_stream.kafka.state_rows import StateRows
from pop_stream.kafka.topics import Topics, catalog
from pop_stream.lab.replay.decisions_log import _DECISION
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import (
    decode_ready,
    decode_rule_action,
    decode_rule_state,
    decode_schedule_state,
)
from pop_stream.model.events.rules import EndedAgenda, InsightIdled
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.model.events.schema_version import (
    SCHEMA_HEADER,
    SCHEMA_VERSION,
    checked_value,
    with_schema_version,
)
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.webhooks import WebhookExhausted
from pop_stream.policy.schedules.keeper import Firing
from pop_stream.puller.claiming.claims import AttemptWindow, Claimer
from pop_stream.relay.relay import _events_of
from pop_stream.rollup.occurrences import read_events
from pop_stream.scheduler.event_handler import NotAnEventError
from pop_stream.scheduler.partition_processor import PartitionProcessor
from pop_stream.settings import Settings
from pop_stream.timekeeper.timekeeper import Timekeeper

STORED = Path(__file__).parents[2] / "records"
NO_SECRET = RecordSigner()
NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOPICS = Topics("t.")
FAR = (b"0", b"%d" % (SCHEMA_VERSION + 2), b"99", b"x")


@pytest.fixture(autouse=True)
def _no_clients(monkeypatch):
    monkeypatch.setattr(clients, "consumer", lambda *_, **__: None)


def stored(topic, shape, *, version=None):
    """The records of a shape, of its version unless another one is given."""
    version = version or b"%d" % (SCHEMA_VERSION + (shape != "current"))
    headers = ((SCHEMA_HEADER, version),)
    documents = json.loads((STORED / f"{topic}.json").read_text())[shape]
    is_keyed = topic == "definitions"
    return [
        record(
            json.dumps(one["value"] if is_keyed else one).encode(),
            key=one["key"].encode() if is_keyed else None,
            topic=f"t.{topic}",
            headers=headers,
            offset=offset,
        )
        for offset, one in enumerate(documents)
    ]


async def rollup(records):
    read_ = [read(one, now=NOW, signer=NO_SECRET) for one in records]
    got = [reason for _, refusals in read_ for reason in refusals]
    return [one.event for entries, _ in read_ for one in entries if one.event], got


async def relay(records):
    received = [[*_events_of(one)] for one in records]
    return [event for events in received for event in events], [
        one for one in received if not one
    ]


async def ingest(records):
    found = SORTER.process(records, now=START)
    return found.lifecycle, found.dead_letters


async def puller(records):
    publisher, clock = MemoryPublisher(), ManualClock(START)
    window = AttemptWindow()
    claimer = Claimer(publisher, TOPICS, clock, puller_id="p", window=window)
    claimed = await claimer.claim(records)
    return claimed.attempts, publisher.on(TOPICS.dead_letters)


async def scheduler(records):
    handled, publisher = [], MemoryPublisher()

    class ReadyEventHandler:
        async def handle(self, _, value, **__):
            try:
                handled.extend(decode_ready(value))
            except UnreadableRecordError as error:
                raise NotAnEventError(str(error)) from None

    processor = PartitionProcessor(
        ReadyEventHandler(),
        None,
        SimpleNamespace(partitions={0}),
        publisher=publisher,
        clock=ManualClock(START),
        topics=TOPICS,
        read_skipped=None,
        recover=None,
        end_offset=lambda _: 0,
    )
    for one in records:
        await processor._process(one, has_next=False)
    return handled, publisher.on(TOPICS.dead_letters)


async def dispatcher(records):
    found = [_decoded(one) for one in records]
    return [one for one in found if one], [one for one in found if one is None]


async def deliveries(records):
    scheduler = KafkaHttpDeliveries(Settings(), None)
    received = []
    scheduler._reject = received.append
    scheduler._receive, scheduler._api_id = received.append, "x"
    for one in records:
        scheduler._on_record(one)
    return received, range(len(records) - len(received))


async def quota_gossip(records):
    received = []
    ledger = SimpleNamespace(apply=lambda event, **_: received.append(event))
    gossip = QuotaGossip(Settings(), None, ledger, now_s=lambda: 0.0, since=START)
    for one in records:
        gossip._on_record(one)
    return received, range(len(records) - len(received))


async def stops(records):
    received = []
    follower = follow_controls(Settings(), client_id="test", on_stop=received.append)
    for one in records:
        follower._on_record(one)
    return received, range(len(records) - len(received))


async def queries(records):
    client = KafkaQueueQueries(Settings(), None, None)
    received = []
    for one in records:
        answer = asyncio.get_running_loop().create_future()
        client._pending["q"] = answer
        client._on_record(one)
        received += [answer.result()] if answer.done() else []
    return received, range(len(records) - len(received))


async def definitions(records):
    follower = DefinitionFollower(Settings(), client_id="test")
    before = follower.current
    received = []
    for one in records:
        follower._apply([one])
        received += [one] if follower.current is not before else []
        before = follower.current
    return received, range(len(records) - len(received))


async def timekeeper(records):
    received = []
    keeper = SimpleNamespace(apply=lambda event, _: received.append(event) or Firing())
    reader = Timekeeper(Settings(), None, FixedDefinitions(Definitions()), ManualClock(), None)
    reader._keeper = keeper
    await reader._apply(records)
    return received, range(len(records) - len(received))


def rows(decode):
    async def state_rows(records):
        states = StateRows(Settings(), "states", decode, client_id="test")
        received = []
        for one in records:
            states._rows.clear()
            states._on_record(one)
            received += states.starting_with("")
        return received, range(len(records) - len(received))

    return state_rows


async def occurrences(records):
    received = [*read_events(records)]
    return received, range(len(records) - len(received))


def lone(decode):
    async def of(records):
        received, refused = [], []
        for one in records:
            try:
                received.append(decode(checked_value(one)))
            except (UnreadableRecordError, msgspec.ValidationError) as error:
                refused.append(error)
        return received, refused

    return of


READERS = [
    ("submissions", ingest),
    ("ready", scheduler),
    ("insight", puller),
    ("agenda-events", rollup),
    ("agenda-events", relay),
    ("controls", stops),
    ("quota-usage", quota_gossip),
    ("poll-demand", dispatcher),
    ("deliveries", deliveries),
    ("query-replies", queries),
    ("definitions", definitions),
    ("occasions", timekeeper),
    ("timekeeper", rows(decode_schedule_state)),
    ("rule-states", rows(decode_rule_state)),
    ("rule-actions", lone(decode_rule_action)),
    ("agenda-ends", lone(msgspec.json.Decoder(EndedAgenda).decode)),
    ("idle-insights", lone(msgspec.json.Decoder(InsightIdled).decode)),
    ("schedule-events", occurrences),
    ("decisions", lone(_DECISION.decode)),
    ("dead-letters", lone(msgspec.json.Decoder(RecordRefused).decode)),
    ("dead-webhooks", lone(msgspec.json.Decoder(WebhookExhausted).decode)),
]


def readers(without=()):
    known = [one for one in READERS if one[0] not in without]
    return pytest.mark.parametrize(
        ("topic", "reads"), known, ids=[f"{topic}-{one.__name__}" for topic, one in known]
    )


def test_records_of_every_topic_are_stored():
    changelog = f"{TOPICS.prefix}scheduler-ready-changelog"
    fixed = {one.name for one in catalog(TOPICS)} - {changelog}
    named = {f"{TOPICS.prefix}{one.stem}" for one in STORED.iterdir()}
    assert named == fixed | {TOPICS.insight("x").removesuffix(".x")}
    assert {f"{TOPICS.prefix}{topic}" for topic, _ in READERS} == named


@pytest.mark.parametrize("shape", ["current", "next"])
@readers()
async def test_every_reader_reads_this_version_and_the_one_after(topic, reads, shape):
    records = stored(topic, shape)
    received, refused = await reads(records)
    assert records
    assert len(received) == len(records), refused
    assert not refused


@readers(without={"submissions", "insight"})
async def test_a_kind_that_is_not_known_takes_nothing_else_along(topic, reads):
    known, unknown = stored(topic, "next"), stored(topic, "unknown")
    received, refused = await reads([*unknown, *known])
    assert (len(received), len(refused)) == (len(known), len(unknown))


@pytest.mark.parametrize("version", FAR)
@readers(without={"definitions"})
async def test_a_version_further_off_is_refused_whole(topic, reads, version):
    records = stored(topic, "next", version=version)
    received, refused = await reads(records)
    assert (len(received), len(refused)) == (0, len(records))


@pytest.mark.parametrize("reads", [ingest, puller, scheduler])
async def test_the_dead_letter_names_the_version(reads):
    topic = next(topic for topic, one in READERS if one is reads)
    _, refused = await reads(stored(topic, "next", version=b"9"))
    letter = msgspec.json.decode(refused[0].value, type=RecordRefused)
    assert letter.reason == "of schema version '9', but 1 to 2 can be read here"


@pytest.mark.parametrize("version", FAR)
async def test_what_is_compacted_is_read_of_whatever_version(version):
    records = stored("definitions", "next", version=version)
    received, refused = await definitions(records)
    assert (len(received), len(refused)) == (len(records), 0)


@pytest.mark.parametrize(
    ("headers", "written"),
    [
        ((), [(SCHEMA_HEADER, b"1")]),
        ((("traceparent", b"x"),), [("traceparent", b"x"), (SCHEMA_HEADER, b"1")]),
        (((SCHEMA_HEADER, b"2"),), [(SCHEMA_HEADER, b"2")]),
    ],
)
def test_what_is_written_carries_the_version_once(headers, written):
    assert with_schema_version(headers) == written


@pytest.mark.parametrize("headers", [(), ((SCHEMA_HEADER, None),), ((SCHEMA_HEADER, b""),)])
def test_a_record_without_a_version_is_of_the_first(headers):
    assert checked_value(record(b"{}", headers=headers)) == b"{}"
