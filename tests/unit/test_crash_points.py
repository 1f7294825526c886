"""Places where a part may be made to end, and what is done and not done there."""

import asyncio
import signal
import subprocess
import sys

import crash_points
import pytest
from crash_points import CRASH_POINTS, CrashingPublisher, CrashPoint
from lifecycle_events import accepted, succeeded

from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import encode
from pop_stream.ports.publisher import Record

TOPICS = Topics("")
ROWS = [Record("scheduler-ready-changelog", b"row", b"{}")]
EMITTED = [Record(TOPICS.insight("media"), b"%d" % number, b"{}") for number in range(4)]
ROUND = [*EMITTED, Record(TOPICS.decisions, b"media", b"{}")]


class Crashed(BaseException):
    """In place of the end of the process."""


def crash():
    raise Crashed


class World:
    """A publisher with a place; what the brokers have."""

    def __init__(self, asked):
        self.written = []
        self.decorator = CrashingPublisher(CrashPoint(asked, terminate=crash), TOPICS)

    async def _publish(self, records):
        await asyncio.sleep(0)
        self.written += records

    async def publish(self, records):
        return await self.decorator.publish(self._publish, records)

    async def round(self):
        """A round and its rows, side by side, up to the end of the process."""
        rows = asyncio.create_task(self.publish(ROWS))
        with pytest.raises(Crashed):
            await self.publish(ROUND)
        rows.cancel()


def test_a_part_starts_with_every_place():
    then = "all(map(crash_points.install, crash_points.CRASH_POINTS))"
    command = [sys.executable, "-c", crash_points.program(CRASH_POINTS[0], then=then)]
    subprocess.run(command, check=True)  # noqa: S603  # our own program


def test_the_process_is_killed_at_the_pass_asked_for_and_once(tmp_path):
    fired = tmp_path / "fired"
    then = "point = crash_points.CrashPoint('puller.ran:3', crash_points.Path(sys.argv[1]))\n"
    then += "for number in range(5): print(number, flush=True); point.hit()"
    command = [
        sys.executable,
        "-c",
        crash_points.program("puller.ran", then="\n" + then),
        fired,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["0", "1", "2"]
    assert fired.read_text().startswith("puller.ran ")
    again = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert again.stdout.split() == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    "asked", ["puller.runs", "puller.ran:0", "puller.ran:x", "puller.ran:-1"]
)
def test_a_place_that_is_none_is_refused(asked):
    with pytest.raises(ValueError, match=r"crash point|invalid literal"):
        CrashPoint(asked)


@pytest.mark.parametrize(
    ("place", "written"),
    [
        ("scheduler.emitting", EMITTED[:3]),
        ("scheduler.emitted", EMITTED),
        ("scheduler.recorded", ROWS),
        ("scheduler.recorded_half", [*ROWS, *EMITTED[:3]]),
    ],
)
async def test_of_a_round_and_its_rows_the_brokers_have_what_the_place_says(place, written):
    world = World(place)
    await world.round()
    assert world.written == written


async def test_a_round_is_written_before_it_is_decided():
    world = World("scheduler.decided")
    await world.round()
    assert [one for one in world.written if one not in ROWS] == ROUND


async def test_rounds_before_the_pass_asked_for_go_through():
    world = World("scheduler.emitting:2")
    await world.publish(ROUND)
    await world.publish(ROWS)
    assert world.written == [*ROUND, *ROWS]
    await world.round()


async def test_a_round_that_is_recovered_and_writes_no_rows_goes_through(monkeypatch):
    monkeypatch.setattr(crash_points, "ROWS_WITHIN_S", 0.01)
    world = World("scheduler.recorded")
    await world.publish(ROUND)
    assert world.written == ROUND


@pytest.mark.parametrize(
    ("place", "is_written"), [("ingest.accepted", False), ("ingest.routed", True)]
)
async def test_what_is_accepted_is_there_before_its_page(place, is_written):
    world = World(place)
    event = Record(TOPICS.agenda_events, b"a1", encode(accepted()))
    page = Record(TOPICS.ready, b"media", b"{}")
    await world.publish([page])  # of the relay
    with pytest.raises(Crashed):
        await world.publish([event, page])
    assert world.written == [page, event, *([page] if is_written else [])]


async def test_a_report_is_not_written_once_the_operations_ran():
    world = World("puller.ran:2")
    report = [Record(TOPICS.agenda_events, b"a1", encode(succeeded()))]
    await world.publish(report)
    with pytest.raises(Crashed):
        await world.publish(report)
    assert world.written == report
