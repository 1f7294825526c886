"""Schedules in a chaos run: each instant is to be run once, whatever is killed or frozen.

They have a start and an end, so which occurrences there must be is known beforehand. What there
is, is counted three times: in Kafka's events, in the summaries' rows, and in the list of
occurrences, which comes from another topic.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pop_stream.client.client import Client
from pop_stream.lab.chaos.handlers import WORK, Start
from pop_stream.lab.chaos.judge import ChaosEvidence, shortened
from pop_stream.lab.chaos.load import CUSTOMERS, INSIGHTS, PARAM
from pop_stream.model.errors import UnavailableError
from pop_stream.model.schedule import Occurrence, Schedule, schedule_of
from pop_stream.ports.occurrences import OccurrenceFilter
from pop_stream.postgres.occurrences import PostgresOccurrences
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

_POLL_S: Final = 0.5
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class ScheduleLoad:
    """Schedules that fire every second, from `start` on.

    Attributes:
        prefix: Begins their ids.
        number: Of schedules.
    """

    prefix: str
    number: int
    start: datetime
    seconds: float

    @property
    def end(self) -> datetime:
        """Nothing is due then or later."""
        return self.start + timedelta(seconds=int(self.seconds))

    def schedules(self) -> Sequence[Schedule]:
        """Their definitions, in which whatever was late is made up for."""
        names = [*CUSTOMERS]
        return [
            Schedule.model_validate(
                {
                    "id": f"{self.prefix}-s{number}",
                    "trigger": {"every_s": 1},
                    "start": self.start,
                    "end": self.end,
                    "max_catch_up": 1_000,
                    "submission": {
                        "customer_id": names[number % len(names)],
                        "params": {PARAM: INSIGHTS[number % len(INSIGHTS)]},
                        "operations": [{"name": "o0", "type": WORK, "payload": 0}],
                    },
                }
            )
            for number in range(self.number)
        ]

    def expected(self) -> Sequence[str]:
        """The ids of all agendas that there must be."""
        before = self.start - timedelta(microseconds=1)
        return [
            Occurrence(one, nominal, None, None).agenda_id
            for one in self.schedules()
            for nominal in one.instants(before)
        ]

    async def define(self, api: Client) -> None:
        """Define them.

        Raises:
            ApiError: If the API does not take one.
        """
        for one in self.schedules():
            content: Mapping[str, Any] = one.model_dump(mode="json", exclude_defaults=True)
            await api.schedules.put(one.id, content)


@dataclass(frozen=True, slots=True)
class ScheduleVerdict:
    """What became of the occurrences.

    Attributes:
        expected: How many there must be.
        missing: Those without an accepted agenda in Kafka or without a row of it.
        unlisted: Those that the list of occurrences does not have as fired.
        unexpected: Agendas of instants at which nothing was due.
        run_again: Those that were started once more after they had ended.
    """

    expected: int
    missing: Sequence[str]
    unlisted: Sequence[str]
    unexpected: Sequence[str]
    run_again: Sequence[str]

    def broken(self) -> Iterator[str]:
        """The promises that were not kept, in words."""
        if self.missing:
            yield f"{len(self.missing)} occurrences are missing: {shortened(self.missing)}"
        if self.unlisted:
            yield f"{len(self.unlisted)} occurrences are not listed: {shortened(self.unlisted)}"
        if self.unexpected:
            yield f"nothing was due, yet there are {shortened(self.unexpected)}"
        if self.run_again:
            yield f"occurrences ran again after their end: {shortened(self.run_again)}"


def evaluate_schedules(
    expected: Sequence[str], evidence: ChaosEvidence, listed: frozenset[str]
) -> ScheduleVerdict:
    """Compare the occurrences that there must be with those that there are.

    Args:
        expected: Ids of agendas.
        evidence: What is on record of all agendas of the run.
        listed: Ids that the list of occurrences has as fired.
    """
    wanted = {*expected}
    there = evidence.accepted_at.keys() & evidence.entries.keys()
    occurrences = {one for one in evidence.accepted_at if schedule_of(one)}
    again = {one.agenda_id for one in evidence.starts if _is_after_end(one, evidence)}
    return ScheduleVerdict(
        expected=len(wanted),
        missing=sorted(wanted - there),
        unlisted=sorted(wanted - listed),
        unexpected=sorted(occurrences - wanted),
        run_again=sorted(again & wanted),
    )


def _is_after_end(start: Start, evidence: ChaosEvidence) -> bool:
    known = evidence.folded.get(start.agenda_id)
    if known is None or known.ended_at is None or start.attempt > known.attempt:
        return False
    return start.at > known.ended_at.timestamp()


async def listed_occurrences(
    settings: Settings, load: ScheduleLoad, *, within_s: float
) -> frozenset[str]:
    """The agendas that the list has as fired, once it has all, or when the time is over."""
    wanted, found = {*load.expected()}, frozenset[str]()
    async with open_pool(settings) as pool:
        store = PostgresOccurrences(pool)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not wanted <= found:
                    with suppress(UnavailableError):
                        found = await _listed(store, load)
                    await asyncio.sleep(_POLL_S)
    return found


async def _listed(store: PostgresOccurrences, load: ScheduleLoad) -> frozenset[str]:
    found: set[str] = set()
    for one in load.schedules():
        before: datetime | None = None
        while True:
            page = await store.page(
                OccurrenceFilter(one.id, nominal_before=before), limit=_PAGE
            )
            found |= {run.agenda_id for each in page.occurrences for run in each.runs}
            before = page.next
            if before is None:
                break
    return frozenset(found)
