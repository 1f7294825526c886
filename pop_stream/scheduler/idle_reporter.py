"""Reports insights whose runners stand idle, while a rule waits for that (`insight.idle`).

An insight is idle if none of its agendas is ready or lies on its topic, and a runner is free:
no attempt runs at all, or fewer run than lately did, or a puller has just said so. Agendas
that are held, or wait for an instant, leave it idle; one that is paused is not idle.

It is reported when it becomes idle, and again only after another of its agendas was claimed:
what stays idle is reported once, and once more when another rule waits for it. Two reports of
an insight are at least `IDLE_PAUSE_S` seconds apart; one that comes sooner is made when they
are over, if the insight is idle then.

A report that could not be published is made again. All this is in memory only, so an owner that
takes over reports what is idle anew. The position of a report is the number of its pause since
1970: reports of one pause, whoever makes them, have one position, and lead a rule to one
agenda.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from pop_stream.kafka.lifecycle_reader import ready_record
from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.rules import IDLE_PAUSE_S, POSITION_HEADER, InsightIdled
from pop_stream.model.events.scheduling import InsightTick
from pop_stream.model.partitioning import partition_of
from pop_stream.model.rule import Rule
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.insight import OwnedInsight

LOOK_EVERY_S: Final = 0.25
"""Between two looks; by so much a report may be late."""

_BUSY_FOR_S: Final = 60.0
"""How long it is remembered how many attempts ran at once."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _SeenInsight:
    """What was seen of an insight.

    Attributes:
        owned: The object that was looked at; one that was loaded since has counted anew.
        most: Attempts that ran at once, at the latest `_BUSY_FOR_S` ago.
        most_at: When they did.
        reported_for: How many agendas were ever claimed when it was last reported.
        reported_at: When that was, in seconds since 1970.
    """

    owned: OwnedInsight
    most: int = 0
    most_at: float = 0.0
    reported_for: int | None = None
    reported_at: float = 0.0

    def free_runners(self, now: float) -> int | None:
        """Runners that are surely free, 0 if none is known of; None if it is not idle."""
        backlog = self.owned.backlog
        running = backlog.in_flight - backlog.unclaimed
        if running >= self.most or not 0 <= now - self.most_at < _BUSY_FOR_S:
            self.most, self.most_at = running, now
        if backlog.ready or backlog.unclaimed:
            return None
        free = max(self.most - running, backlog.idle.count(now))
        return free if free or not running else None

    def is_due(self, now: float) -> bool:
        """Whether it may be reported: something was claimed since, and the pause is over."""
        if self.owned.backlog.claimed == self.reported_for:
            return False
        return not 0 <= now - self.reported_at < IDLE_PAUSE_S


class IdleReporter:
    """Looks four times a second which insights of this process have become idle.

    Args:
        handler: Whose insights.
        publisher: Of the reports.
        definitions: Which insights there are, and whether a rule waits.
        clock: For instants.
        topics: Names of topics.
        partitions: How many `pop.ready` has.
    """

    def __init__(  # every port it needs, named once
        self,
        handler: ReadyEventHandler,
        *,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        partitions: int,
    ) -> None:
        self._handler = handler
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        self._seen: dict[str, _SeenInsight] = {}
        self._woken_at = 0.0
        self._rules: Mapping[str, Rule] | None = None
        self._waiting: Sequence[Rule] = ()

    async def run(self) -> None:
        """Report until cancelled; what could not be published is reported at a later look."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except UnavailableError as error:
                _log.info("idle.postponed", error=str(error))

    async def look(self) -> None:
        """Publish the reports that are due.

        Raises:
            UnavailableError: If they could not be; they are still due.
        """
        if not self._has_waiting_rules():
            return
        at = self._clock.now()
        now = at.timestamp()
        idle = self._newly_idle(now)
        records = [self._report(one, free, at) for one, free in idle]
        wakes = self._wakes(now)
        if records or wakes:
            await publish_writable(self._publisher, [*records, *wakes])
        for seen, _ in idle:
            seen.reported_for, seen.reported_at = seen.owned.backlog.claimed, now

    def _has_waiting_rules(self) -> bool:
        """Whether a rule waits; what is idle is reported to each that is new or resumed."""
        rules = self._definitions.current.rules
        if rules is not self._rules:
            self._rules = rules
            waits_for = [one for one in rules.values() if one.on == "insight.idle"]
            waiting = [one for one in waits_for if not one.paused]
            if any(one not in self._waiting for one in waiting):
                for seen in self._seen.values():
                    seen.reported_for = None
            self._waiting = waiting
        return bool(self._waiting)

    def _newly_idle(self, now: float) -> Sequence[tuple[_SeenInsight, int]]:
        known, self._seen = self._seen, {}
        found: list[tuple[_SeenInsight, int]] = []
        for owned in self._handler.owned_insights():
            before = known.get(owned.insight_id)
            seen = before if before and before.owned is owned else _SeenInsight(owned)
            self._seen[owned.insight_id] = seen
            free = seen.free_runners(now)
            can_run = owned.scheduler.has_definition and not owned.backlog.insight.paused
            if free is not None and can_run and seen.is_due(now):
                found.append((seen, free))
        return found

    def _report(self, seen: _SeenInsight, free: int, at: datetime) -> Record:
        backlog = seen.owned.backlog
        event = InsightIdled(
            insight_id=seen.owned.insight_id,
            at=at.astimezone(UTC),
            free_runners=free,
            running=backlog.in_flight,
        )
        pause = int(at.timestamp() // IDLE_PAUSE_S)
        headers = ((POSITION_HEADER, f"0/{pause}".encode()),)
        key = event.insight_id.encode()
        return Record(self._topics.idle_insights, key, encode(event), headers=headers)

    def _wakes(self, now: float) -> list[Record]:
        """Ticks for insights that never had an agenda: nothing else makes them known here."""
        if 0 <= now - self._woken_at < IDLE_PAUSE_S:
            return []
        self._woken_at = now
        current, loaded = self._definitions.current, self._handler.loaded()
        return [
            ready_record(
                self._topics,
                current,
                InsightTick(insight_id=one),
                partitions=self._partitions,
            )
            for one in current.insights
            if one not in self._seen
            and partition_of(current.routing_key(one), self._partitions) in loaded
        ]
