"""What the API admitted is not refused by an ingest that does not know its insight yet."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from consumer_records import record
from deadlines import within
from fakes import MemoryPublisher
from structlog.testing import capture_logs

from pop_stream.clock import WallClock
from pop_stream.ingest.ingest import DefinitionsBarrier, Ingest
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaRefused
from pop_stream.policy.ingress.signature import DEFINITIONS_VERSION_HEADER
from pop_stream.settings import Settings

WEB = Insight(id="web", mappers=Mappers(operation_types=("http",)))
NEWER = Definitions(insights={WEB.id: WEB}, version=7)
AGENDA = {"customer_id": "anna", "operations": [{"name": "x", "type": "http"}]}


@dataclass
class Source:
    """Definitions of which more may be written than was read."""

    current: Definitions = field(default_factory=Definitions)
    end: int = NEWER.version
    asked: int = 0

    @property
    def read_up_to(self):
        return self.current.version

    async def end_offset(self):
        self.asked += 1
        if self.end < 0:
            msg = "no broker answers"
            raise UnavailableError(msg)
        return self.end


def judged_by(*versions):
    value = json.dumps(AGENDA).encode()
    return [
        record(value, headers=[(DEFINITIONS_VERSION_HEADER, version)]) for version in versions
    ]


async def reported_of(records, source):
    publisher = MemoryPublisher()
    ingest = Ingest(Settings(), publisher, source, WallClock())
    handling = asyncio.create_task(ingest.handle(records))
    await asyncio.sleep(0)
    assert not publisher.records
    source.current = NEWER
    await handling
    topic = Topics(Settings().topic_prefix).agenda_events
    sent = [one.value for one in publisher.records if one.topic == topic]
    events = [event for value in sent for event in decode_lifecycle(value)]
    return [type(one) for one in events if isinstance(one, AgendaAccepted | AgendaRefused)]


async def test_ingest_waits_for_the_definitions_that_the_api_validated_by():
    assert await reported_of(judged_by(b"3", b"7", b"5"), Source()) == [AgendaAccepted] * 3


async def test_a_version_made_up_does_not_keep_ingest_from_waiting_for_a_real_one():
    assert await reported_of(judged_by(b"7", b"8", b"9" * 18), Source()) == [AgendaAccepted] * 3


@pytest.mark.parametrize("version", [b"0", b"5", b"-9", b"many", b"9" * 30, b"", None])
async def test_what_is_no_newer_or_no_version_is_not_waited_for(version):
    source = Source(Definitions(version=5))
    async with within(1):
        await DefinitionsBarrier(source).catch_up(judged_by(version))
    assert not source.asked


async def test_versions_that_are_not_written_hold_nobody_up():
    barrier = DefinitionsBarrier(Source(Definitions(version=7)))
    with capture_logs() as logs:
        async with within(1):
            for version in range(8, 2_000):
                await barrier.catch_up(judged_by(b"%d" % version))
    assert not logs


@pytest.mark.parametrize("end", [7, -1])
async def test_definitions_that_cannot_be_read_are_waited_for_once_and_logged(end):
    source = Source(end=end)
    barrier = DefinitionsBarrier(source, max_wait_s=0.01)
    with capture_logs() as logs:
        async with within(1):
            for _ in range(2_000):
                await barrier.catch_up(judged_by(b"7"))
    assert source.asked == 1
    assert [(one["event"], one["known"], one["wanted"]) for one in logs] == [
        ("definitions.stale", 0, 7)
    ]
