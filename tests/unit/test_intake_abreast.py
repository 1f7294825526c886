"""What the API let in is not refused by an intake that has not heard of its insight yet."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from fakes import MemoryPublisher
from structlog.testing import capture_logs
from submissions import record

from pop_stream.bus.topics import Topics
from pop_stream.clock import WallClock
from pop_stream.core.definitions.definitions import Definitions, Insight, Mappers
from pop_stream.core.doors.seal import JUDGED_BY
from pop_stream.core.events import AgendaAccepted, AgendaRefused, decode_lifecycle
from pop_stream.intake.abreast import Abreast
from pop_stream.intake.intake import Intake
from pop_stream.settings import Settings

WEB = Insight(id="web", mappers=Mappers(operation_types=("http",)))
NEWER = Definitions(insights={WEB.id: WEB}, version=7)
AGENDA = {"customer_id": "anna", "operations": [{"name": "x", "type": "http"}]}


@dataclass
class Source:
    current: Definitions = field(default_factory=Definitions)


def judged_by(*versions):
    value = json.dumps(AGENDA).encode()
    return [record(value, headers=[(JUDGED_BY, version)]) for version in versions]


async def told_of(records, source):
    publisher = MemoryPublisher()
    intake = Intake(Settings(), publisher, source, WallClock())
    handling = asyncio.create_task(intake.handle(records))
    await asyncio.sleep(0)
    assert not publisher.records
    source.current = NEWER
    await handling
    topic = Topics(Settings().topic_prefix).agenda_events
    sent = [one.value for one in publisher.records if one.topic == topic]
    events = [event for value in sent for event in decode_lifecycle(value)]
    return [type(one) for one in events if isinstance(one, AgendaAccepted | AgendaRefused)]


async def test_intake_waits_for_the_definitions_that_the_api_judged_by():
    assert await told_of(judged_by(b"3", b"7", b"5"), Source()) == [AgendaAccepted] * 3


@pytest.mark.parametrize("version", [b"0", b"5", b"-9", b"many", b"9" * 30, b""])
async def test_what_is_no_newer_or_no_version_is_not_waited_for(version):
    async with asyncio.timeout(1):
        await Abreast(Source(Definitions(version=5))).catch_up(judged_by(version))


async def test_a_version_that_never_comes_is_waited_for_once_and_told_of():
    abreast = Abreast(Source(), patience_s=0.01)
    with capture_logs() as logs:
        await abreast.catch_up(judged_by(b"8"))
        async with asyncio.timeout(1):
            for version in range(9, 2_000):
                await abreast.catch_up(judged_by(b"%d" % version))
    assert [(one["event"], one["known"], one["wanted"]) for one in logs] == [
        ("definitions.behind", 0, 8)
    ]
