"""Records of the version before and of the one after, stored here, run through every reader."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from backlogs import START
from consumer_records import record
from fakes import ManualClock, MemoryPublisher
from submission_processors import SORTER

from pop_stream.http_pull.dispatcher import _decoded
from pop_stream.kafka import clients
from pop_stream.kafka.attempt_stops import controls
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.deliveries import KafkaHttpDeliveries
from pop_stream.kafka.lifecycle_reader import read
from pop_stream.kafka.queries import KafkaQueueQueries
from pop_stream.kafka.quota_gossip import QuotaGossip
from pop_stream.kafka.topics import Topics, catalog
from pop_stream.lab.replay.decisions_log import _DECISION
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import (
    SCHEMA_HEADER,
    SCHEMA_VERSION,
    checked_value,
    decode_ready,
    with_schema_version,
)
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.policy.lifecycle.webhooks import WebhookExhausted
from pop_stream.puller.claiming.claims import AttemptWindow, Claimer
from pop_stream.relay.relay import _events_of
from pop_stream.scheduler.event_handler import NotAnEventError
from pop_stream.scheduler.partition_processor import PartitionProcessor
from pop_stream.settings import Settings

STORED = Path(__file__).parents[2] / "records"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOPICS = Topics("t.")
FAR = (b"0", b"%d" % (SCHEMA_VERSION + 2), b"99", b"x")


@pytest.fixture(autouse=True)
def _no_clients(monkeypatch):
    monkeypatch.setattr(clients, "consumer", lambda *_, **__: None)


def stored(topic, shape, *, version=None):
    """The records of a shape; those of the version before tell none."""
    told = {"previous": None, "next": b"%d" % (SCHEMA_VERSION + 1)}
    version = version or told.get(shape, b"%d" % (SCHEMA_VERSION + 1))
    headers = ((SCHEMA_HEADER, version),) if version else ()
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
    read_ = [read(one, now=NOW) for one in records]
    told = [reason for _, refusals in read_ for reason in refusals]
    return [one.event for entries, _ in read_ for one in entries if one.event], told


async def relay(records):
    heard = [[*_events_of(one)] for one in records]
    return [event for events in heard for event in events], [one for one in heard if not one]


async def ingest(records):
    found = SORTER.sort(records, now=START)
    return found.lifecycle, found.dead


async def puller(records):
    publisher, clock = MemoryPublisher(), ManualClock(START)
    window = AttemptWindow()
    claimer = Claimer(publisher, TOPICS, clock, puller_id="p", window=window)
    claimed = await claimer.claim(records)
    return claimed.fresh, publisher.on(TOPICS.dead_letters)


async def scheduler(records):
    handled, publisher = [], MemoryPublisher()

    class ReadyEventHandler:
        async def handle(self, _, value, **__):
            try:
                handled.extend(decode_ready(value))
            except UnreadableRecordError as error:
                raise NotAnEventError(str(error)) from None

    dealing = PartitionProcessor(
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
        await dealing._deal(one, has_next=False)
    return handled, publisher.on(TOPICS.dead_letters)


async def dispatcher(records):
    found = [_decoded(one) for one in records]
    return [one for one in found if one], [one for one in found if one is None]


async def handouts(records):
    scheduler = KafkaHttpDeliveries(Settings(), None)
    heard = []
    scheduler._refuse = heard.append
    scheduler._handed.remember = heard.append
    for one in records:
        scheduler._hear(one)
    return heard, range(len(records) - len(heard))


async def door(records):
    heard = []
    hears = SimpleNamespace(hear=lambda event, **_: heard.append(event))
    keeper = QuotaGossip(Settings(), None, hears, now_s=lambda: 0.0, since=START)
    for one in records:
        keeper._hear(one)
    return heard, range(len(records) - len(heard))


async def stops(records):
    heard = []
    tail = controls(Settings(), client_id="test", hear=heard.append)
    for one in records:
        tail._hear(one)
    return heard, range(len(records) - len(heard))


async def questions(records):
    asking = KafkaQueueQueries(Settings(), None, None)
    heard = []
    for one in records:
        answer = asyncio.get_running_loop().create_future()
        asking._open["q"] = answer
        asking._hear(one)
        heard += [answer.result()] if answer.done() else []
    return heard, range(len(records) - len(heard))


async def definitions(records):
    follower = DefinitionFollower(Settings(), client_id="test")
    before = follower.current
    heard = []
    for one in records:
        follower._take([one])
        heard += [one] if follower.current is not before else []
        before = follower.current
    return heard, range(len(records) - len(heard))


def lone(decode):
    async def of(records):
        heard, refused = [], []
        for one in records:
            try:
                heard.append(decode(checked_value(one)))
            except (UnreadableRecordError, msgspec.ValidationError) as error:
                refused.append(error)
        return heard, refused

    return of


READERS = [
    ("submissions", ingest),
    ("ready", scheduler),
    ("insight", puller),
    ("agenda-events", rollup),
    ("agenda-events", relay),
    ("controls", stops),
    ("counts", door),
    ("pulls", dispatcher),
    ("handouts", handouts),
    ("answers", questions),
    ("definitions", definitions),
    ("decisions", lone(_DECISION.decode)),
    ("dead-letters", lone(msgspec.json.Decoder(RecordRefused).decode)),
    ("dead-callbacks", lone(msgspec.json.Decoder(WebhookExhausted).decode)),
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


@pytest.mark.parametrize("shape", ["previous", "next"])
@readers()
async def test_every_reader_takes_the_version_before_and_the_one_after(topic, reads, shape):
    records = stored(topic, shape)
    heard, refused = await reads(records)
    assert records
    assert len(heard) == len(records), refused
    assert not refused


@readers(without={"submissions", "insight"})
async def test_a_kind_that_is_not_known_takes_nothing_else_along(topic, reads):
    known, unknown = stored(topic, "next"), stored(topic, "unknown")
    heard, refused = await reads([*unknown, *known])
    assert (len(heard), len(refused)) == (len(known), len(unknown))


@pytest.mark.parametrize("version", FAR)
@readers(without={"definitions"})
async def test_a_version_further_off_is_refused_whole(topic, reads, version):
    records = stored(topic, "next", version=version)
    heard, refused = await reads(records)
    assert (len(heard), len(refused)) == (0, len(records))


@pytest.mark.parametrize("reads", [ingest, puller, scheduler])
async def test_the_dead_letter_names_the_version(reads):
    topic = next(topic for topic, one in READERS if one is reads)
    _, refused = await reads(stored(topic, "next", version=b"9"))
    letter = msgspec.json.decode(refused[0].value, type=RecordRefused)
    assert letter.reason == "of schema version '9', but 1 to 3 can be read here"


@pytest.mark.parametrize("version", FAR)
async def test_what_is_compacted_is_read_of_whatever_version(version):
    records = stored("definitions", "next", version=version)
    heard, refused = await definitions(records)
    assert (len(heard), len(refused)) == (len(records), 0)


@pytest.mark.parametrize(
    ("headers", "written"),
    [
        ((), [(SCHEMA_HEADER, b"2")]),
        ((("traceparent", b"x"),), [("traceparent", b"x"), (SCHEMA_HEADER, b"2")]),
        (((SCHEMA_HEADER, b"3"),), [(SCHEMA_HEADER, b"3")]),
    ],
)
def test_what_is_written_tells_the_version_once(headers, written):
    assert with_schema_version(headers) == written


@pytest.mark.parametrize("headers", [(), ((SCHEMA_HEADER, None),), ((SCHEMA_HEADER, b""),)])
def test_without_a_version_a_record_is_of_the_first(headers):
    assert checked_value(record(b"{}", headers=headers)) == b"{}"
