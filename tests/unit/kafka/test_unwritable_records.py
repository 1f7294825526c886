"""Every writer meets a record that it cannot write: it goes on, and so do others' records."""

import gzip
import json
from contextlib import asynccontextmanager

import msgspec
import pytest
from backlogs import START, placed
from consumer_records import record
from deadlines import within
from fakes import FixedDefinitions, MemoryPublisher
from prometheus_client import CollectorRegistry

from pop_stream.clock import WallClock
from pop_stream.ingest.ingest import Ingest
from pop_stream.kafka.lifecycle_reader import lifecycle_records, read
from pop_stream.kafka.publisher import publish_until_acknowledged, publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import (
    MAX_DEFINITION_BYTES,
    Customer,
    Definitions,
    Insight,
    Mappers,
    encode_definition,
)
from pop_stream.model.errors import DefinitionError, RecordTooLargeError
from pop_stream.model.events.codec import (
    MAX_EVENT_BYTES,
    decode_lifecycle,
    decode_ready,
    encode,
)
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaHeartbeat,
    AgendaRefused,
    AgendaRestarted,
)
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.model.revisions import apply_merge_patch, parse_definition
from pop_stream.operations.definition_outbox import DefinitionsOutboxRelay
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.ports.definitions import OutboxRow
from pop_stream.ports.publisher import MAX_RECORD_BYTES, Record
from pop_stream.relay.relay import Relay
from pop_stream.settings import Settings
from pop_stream.telemetry.process import UNWRITABLE_RECORDS, register_process_metrics

TOPICS = Topics("pop.")
DEFINITIONS = Definitions(
    insights={"media": Insight(id="media", mappers=Mappers(operation_types=("cut",)))}
)
LARGE = b"x" * (MAX_RECORD_BYTES + 1)
WRITERS = {"once": publish_writable, "until acknowledged": publish_until_acknowledged}


class FollowedDefinitions(FixedDefinitions):
    read_up_to = 0

    async def end_offset(self):
        return 0


def left_out(topic):
    return UNWRITABLE_RECORDS.labels(topic)._value.get()


def agenda(agenda_id, **fields):
    operations = [{"name": "only", "type": "cut"}]
    return {"id": agenda_id, "customer_id": "acme", "operations": operations, **fields}


def heartbeat(agenda_id):
    return AgendaHeartbeat(
        agenda_id=agenda_id, at=START, insight_id="media", attempt=1, puller_id="p", lease_ms=1
    )


def restarted(agenda_id, size=0):
    body = json.dumps(agenda(agenda_id, params={"p": "x" * size})).encode()
    routed = msgspec.structs.replace(placed(agenda_id, attempt=2), agenda=msgspec.Raw(body))
    return AgendaRestarted(
        agenda_id=agenda_id,
        at=START,
        insight_id="media",
        attempt=2,
        routed=msgspec.Raw(encode(routed)),
    )


@pytest.mark.parametrize("publish", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("place", range(5))
async def test_a_record_that_is_too_large_is_left_out_and_counted(publish, place):
    publisher = MemoryPublisher()
    records = [Record("t.mine", b"%d" % n, b"small") for n in range(4)]
    records.insert(place, Record("t.mine", b"large", LARGE))
    before = left_out("t.mine")
    await publish(publisher, records)
    assert [one.key for one in publisher.records] == [b"0", b"1", b"2", b"3"]
    assert left_out("t.mine") == before + 1


async def test_nothing_is_written_of_a_call_with_a_record_that_is_too_large():
    publisher = MemoryPublisher()
    with pytest.raises(RecordTooLargeError, match=r"1,000,001 bytes.*1,000,000"):
        await publisher.publish([Record("t.mine", b"", b"small"), Record("t.mine", b"", LARGE)])
    assert publisher.records == []


def test_what_was_left_out_is_among_the_metrics():
    registry = CollectorRegistry()
    register_process_metrics(registry)
    assert {"pop_unreadable_records", "pop_unwritable_records"} <= {
        family.name for family in registry.collect()
    }


@pytest.mark.parametrize("size", [MAX_EVENT_BYTES, 20_000_000])
async def test_the_relay_skips_a_restart_that_grew_and_relays_the_rest(size):
    publisher = MemoryPublisher()
    relay = Relay(
        Settings(), publisher, FixedDefinitions(DEFINITIONS), WallClock(), now=lambda: 0.0
    )
    frame = encode([heartbeat("a"), restarted("b", size), restarted("c")])
    assert len(gzip.compress(frame)) < 30_000
    await relay.handle([record(frame, topic=TOPICS.agenda_events)])
    events = [event for one in publisher.records for event in decode_ready(one.value)]
    placed_ids = [
        msgspec.json.decode(body)["agenda_id"]
        for event in events
        for body in getattr(event, "agendas", ())
    ]
    assert placed_ids == ["c"]
    assert [one.agenda_id for event in events for one in getattr(event, "heartbeats", ())] == [
        "a"
    ]


@pytest.mark.parametrize("is_framed", [True, False])
def test_the_rollup_rejects_an_event_that_grew_with_its_size(is_framed):
    large = restarted("b", MAX_EVENT_BYTES)
    value = encode([heartbeat("a"), large]) if is_framed else encode(large)
    entries, refusals = read(record(value), now=START, signer=RecordSigner())
    assert [one.event for one in entries if one.event] == [heartbeat("a")] * is_framed
    assert ["at most 900,000 can be carried on" in one.error[1] for one in refusals] == [True]


async def test_an_event_that_no_part_could_carry_on_is_refused_before_it_is_written():
    with pytest.raises(RecordTooLargeError, match=r"agenda.restarted of b"):
        await lifecycle_records(MemoryPublisher(), "t", [restarted("b", MAX_EVENT_BYTES)])


SUBMISSIONS = {
    "too large": json.dumps(agenda("large", params={"p": "x" * 5_000_000})),
    "large and without an insight": json.dumps(
        agenda("lost", operations=[{"name": "o", "type": "none", "payload": "x" * 880_000}])
    ),
    "just too large for its events": json.dumps(agenda("just", params={"p": "x" * 895_000})),
    "an instant outside the range": json.dumps(
        agenda("late", not_before="9999-12-31T23:59:59-23:59")
    ),
    "a number beyond all": json.dumps(agenda("much", cost_s="N")).replace('"N"', "9" * 4_400),
    "a list that grew": json.dumps(
        [agenda(f"n{n}", params={"p": "x" * 9_000}) for n in range(999)]
    ),
}


@pytest.mark.parametrize("value", SUBMISSIONS.values(), ids=SUBMISSIONS)
async def test_ingest_writes_something_for_whatever_it_reads(value):
    publisher = MemoryPublisher()
    settings = Settings(max_agenda_bytes=900_000)
    ingest = Ingest(settings, publisher, FollowedDefinitions(DEFINITIONS), WallClock())
    sent = [value.encode(), json.dumps(agenda("small")).encode()]
    await ingest.handle([record(one, offset=n) for n, one in enumerate(sent)])
    events = [
        event
        for one in publisher.on(TOPICS.agenda_events)
        for event in decode_lifecycle(one.value)
    ]
    accepted = {one.agenda_id for one in events if isinstance(one, AgendaAccepted)}
    refused = {one.agenda_id for one in events if isinstance(one, AgendaRefused)}
    letters = [
        msgspec.json.decode(one.value, type=RecordRefused)
        for one in publisher.on(TOPICS.dead_letters)
    ]
    assert "small" in accepted
    if value.startswith("["):
        assert len(accepted) == 1_000
    else:
        assert len(letters) == 1
        assert len(refused) == ("much" not in value)  # whose id cannot be read either
        assert letters[0].reason


def template(**fields):
    content = {"id": "t", "owner": "acme", "agenda": {"customer_id": "acme"}, **fields}
    return parse_definition("template", "t", content)


def test_a_definition_is_measured_with_all_patches_merged():
    content = template().model_dump(mode="json", exclude_defaults=True)
    for n in range(3):
        content = apply_merge_patch(content, {"static_params": {f"p{n}": "x" * 170_000}})
        definition = parse_definition("template", "t", content)
        if n < 2:
            encode_definition(definition)
    content = apply_merge_patch(content, {"static_params": {"p": "x" * 170_000}})
    with pytest.raises(DefinitionError) as refused:
        encode_definition(parse_definition("template", "t", content))
    (issue,) = refused.value.issues
    assert issue.field == "template"
    assert "bytes" in issue.value
    assert f"{MAX_DEFINITION_BYTES:,}" in issue.message


class Outbox:
    """An outbox with a row that was stored when nobody measured it."""

    def __init__(self):
        self.rows = [
            OutboxRow(1, "customer/a", 1, encode_definition(Customer(id="a"))),
            OutboxRow(2, "template/t", 1, b'{"id":"t","description":"%s"}' % LARGE),
            OutboxRow(3, "customer/b", 1, encode_definition(Customer(id="b"))),
        ]
        self.all = [*self.rows]

    @asynccontextmanager
    async def claim_batch(self, most):
        rows = self.rows[:most]
        yield rows
        self.rows = self.rows[most:]

    async def latest_versions(self):
        return self.all


async def test_a_definition_that_cannot_be_published_keeps_no_other_back():
    outbox, publisher = Outbox(), MemoryPublisher()
    relay = DefinitionsOutboxRelay(outbox, publisher, TOPICS)
    async with within(5):
        await relay.drain()
    published = [one.key for one in publisher.on(TOPICS.definitions)]
    assert published == [b"customer/a", b"customer/b"]
    assert outbox.rows == []
    assert await relay.repair({"customer/a": 1, "customer/b": 1}) == []
