"""The course of `bench schedules`: define, rest, wait for the instant, read the submissions."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from pop_stream.clock import WallClock
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.lab.bench.load import PARAM, LoadProfile
from pop_stream.lab.bench.meter import cpu_seconds, read_usage
from pop_stream.lab.bench.pipeline_run import PipelineBenchOptions, insights_of, plan_of
from pop_stream.model.definitions import Definitions
from pop_stream.model.schedule import Occurrence, Schedule
from pop_stream.model.trigger import zone_of
from pop_stream.operations.errors import CommandError
from pop_stream.settings import Settings

_ZONE: Final = "Europe/Berlin"
_CUSTOMERS: Final = 100
_BATCH: Final = 5_000
_SETTLE_S: Final = 5.0
_POLL_S: Final = 1.0
_TAKEN_UP_WITHIN_S: Final = 1_200.0
_FIRED_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class SchedulesBenchOptions:
    """What is measured.

    Attributes:
        schedules: That are defined; each fires once a day.
        due: Of them, that are due at one instant.
        rest_s: How long nothing is due.
        ingests: Processes that share them.
    """

    schedules: int
    due: int
    rest_s: float
    ingests: int = 1


class RestUsage(NamedTuple):
    """What a part costs while nothing is due."""

    core_share: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class SchedulesResult:
    """What was counted.

    Attributes:
        defined_s: From the first definition until a row of each was written.
        before_mb: Resident, by part, before there were schedules.
        rest: By part, with all of them.
        late_s: From the nominal instant to the broker's time of each submission.
        fired_twice: Submissions beyond the first of an occurrence.
    """

    defined_s: float
    before_mb: Mapping[str, float]
    rest: Mapping[str, RestUsage]
    late_s: Sequence[float]
    fired_twice: int


async def run_schedules(
    folder: Path, on_progress: OnProgress, wanted: SchedulesBenchOptions
) -> SchedulesResult:
    """Start a stack, define schedules, let them rest, and let a part of them fire.

    Definitions are published as the API does; the database does not have them.

    Raises:
        CommandError: If something does not start, or not all are taken up or fired in time.
    """
    base = PipelineBenchOptions(
        LoadProfile(agendas=1),
        copies={"ingest": wanted.ingests} if wanted.ingests > 1 else None,
    )
    stack = Stack(plan_of(base, folder), on_progress)
    async with stack, failing_with(stack):
        await asyncio.sleep(_SETTLE_S)
        before = read_usage(stack.processes())
        resting = wanted.schedules - wanted.due
        noon = WallClock().now() + timedelta(hours=12)
        began = monotonic()
        await _define(stack.settings, [_schedule(n, noon) for n in range(resting)])
        await _until_taken_up(stack.settings, resting)
        # What has taken so long for most will not take longer for the rest.
        lead_s = (monotonic() - began) * wanted.due / max(1, resting) * 2
        nominal = _minute_after(lead_s + wanted.rest_s + 4 * _SETTLE_S)
        crowd = [_schedule(n, nominal) for n in range(resting, wanted.schedules)]
        await _define(stack.settings, crowd)
        await _until_taken_up(stack.settings, wanted.schedules)
        defined_s = monotonic() - began
        on_progress(
            f"all are taken up after {defined_s:.0f} s; counting for {wanted.rest_s:g} s"
        )
        rest = await _rest(stack, wanted.rest_s)
        if WallClock().now() >= nominal:
            msg = "the instant came before the time at rest was over; measure again"
            raise CommandError(msg)
        on_progress(f"{wanted.due} are due at {nominal:%H:%M:%S} UTC")
        ids = {Occurrence(one, nominal, None, None).agenda_id for one in crowd}
        found = await _fired(stack.settings, ids, nominal)
    return SchedulesResult(
        defined_s=defined_s,
        before_mb={name: one.rss_mb for name, one in before.items()},
        rest=rest,
        late_s=sorted(at - nominal.timestamp() for at, *_ in found.values()),
        fired_twice=sum(len(times) - 1 for times in found.values()),
    )


def _schedule(number: int, at: datetime) -> Schedule:
    """One that fires once a day, at the beginning of this minute."""
    customer_id = f"c{number % _CUSTOMERS}"
    operation = {"name": "a", "type": "noop", "payload": {"day": "@<pop.occasion::/date>"}}
    [insight_id] = insights_of(1)
    return Schedule.model_validate(
        {
            "id": f"s{number}@{customer_id}",
            "owner": customer_id,
            "timezone": _ZONE,
            "trigger": {"cron": _daily(at)},
            "submission": {
                "customer_id": customer_id,
                "params": {PARAM: insight_id},
                "operations": [operation],
            },
        }
    )


def _daily(at: datetime) -> str:
    local = at.astimezone(zone_of(_ZONE))
    return f"{local.minute} {local.hour} * * *"


def _minute_after(seconds: float) -> datetime:
    at = WallClock().now() + timedelta(seconds=seconds + 60)
    return at.replace(second=0, microsecond=0).astimezone(UTC)


async def _define(settings: Settings, schedules: Sequence[Schedule]) -> None:
    topics = Topics(settings.topic_prefix)
    async with connections.publisher(settings, client_id="bench") as publisher:
        for first in range(0, len(schedules), _BATCH):
            some = schedules[first : first + _BATCH]
            await publish_definitions(publisher, topics, some, Definitions())


async def _until_taken_up(settings: Settings, number: int) -> None:
    """Until the timekeeper has written a row of each."""
    topic = Topics(settings.topic_prefix).timekeeper
    try:
        async with asyncio.timeout(_TAKEN_UP_WITHIN_S):
            while True:
                known = {record.key async for record in read_topic(settings, topic)}
                if len(known) >= number:
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        msg = f"not all of {number} schedules were taken up in {_TAKEN_UP_WITHIN_S:g} s"
        raise CommandError(msg) from None


async def _rest(stack: Stack, seconds: float) -> Mapping[str, RestUsage]:
    await asyncio.sleep(_SETTLE_S)
    before, began = read_usage(stack.processes()), monotonic()
    await asyncio.sleep(seconds)
    after, lasted = read_usage(stack.processes()), monotonic() - began
    return {
        name: RestUsage(spent_s / lasted, after[name].rss_mb)
        for name, spent_s in cpu_seconds(before, after).items()
    }


async def _fired(
    settings: Settings, ids: Collection[str], nominal: datetime
) -> Mapping[str, Sequence[float]]:
    """When each was submitted, once all are: the broker's times, in seconds since 1970."""
    await asyncio.sleep(max(0.0, (nominal - WallClock().now()).total_seconds()) + _SETTLE_S)
    topic = Topics(settings.topic_prefix).submissions
    try:
        async with asyncio.timeout(_FIRED_WITHIN_S):
            while True:
                found: dict[str, list[float]] = {}
                async for record in read_topic(settings, topic):
                    agenda_id = (record.key or b"").decode()
                    if agenda_id in ids:
                        found.setdefault(agenda_id, []).append(record.timestamp / 1_000)
                if len(found) == len(ids):
                    return found
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        msg = f"not all of {len(ids)} occurrences were submitted in {_FIRED_WITHIN_S:g} s"
        raise CommandError(msg) from None
