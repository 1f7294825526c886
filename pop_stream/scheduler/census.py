"""Tells the doors how much of each customer is ready here, and how full this worker is."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from pop_stream.bus.topics import Topics
from pop_stream.core.definitions.definitions import Definitions
from pop_stream.core.doors.door import WHOLE_EVERY_S
from pop_stream.core.doors.fullness import Load, fullness
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import BacklogCounted, Fullness, encode
from pop_stream.core.values.counted import Changes, portions
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.wire import Publisher, Record
from pop_stream.scheduler.desk import Desk
from pop_stream.scheduler.rounds import Rounds

EVERY_S: Final = 0.25
"""Between two looks; so much later a door knows."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Told:
    """What the doors know of a desk.

    Attributes:
        desk: A new one of the same insight was read from the table, and knows no changes.
    """

    desk: Desk
    changes: Changes = field(default_factory=Changes)
    placed: dict[str, tuple[int, int]] = field(default_factory=dict)
    fullness: Fullness | None = None
    whole_at: float | None = None


class Census:
    """Counts four times a second, and tells what changed; nothing while nobody has a quota.

    Args:
        rounds: Whose desks.
        publisher: For the statements.
        definitions: Which customers have a quota.
        clock: For instants.
        topics: Names of topics.
        limit: Most that the worker takes.
    """

    def __init__(  # every port it needs, named once
        self,
        rounds: Rounds,
        *,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        limit: Load,
    ) -> None:
        self._rounds = rounds
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._topics = topics
        self._limit = limit
        self._told: dict[str, _Told] = {}
        self._seen: Definitions | None = None
        self._limited: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Tell until cancelled; what could not be told is told as a whole later."""
        while True:
            await asyncio.sleep(EVERY_S)
            records = [
                Record(self._topics.counts, one.insight_id.encode(), encode(one))
                for one in self.statements()
            ]
            if not records:
                continue
            try:
                await self._publisher.publish(records)
            except UnavailableError as error:
                _log.info("counts.postponed", error=str(error))
                self._told = {}

    def statements(self) -> list[BacklogCounted]:
        """What the doors are to be told now; it counts as told."""
        self._take_up_definitions()
        desks = self._rounds.sure_desks()
        near = fullness({one.insight_id: _load(one) for one in desks}, self._limit)
        self._told = {
            desk.insight_id: known
            for desk in desks
            if (known := self._told.get(desk.insight_id)) is not None and known.desk is desk
        }
        return [one for desk in desks for one in self._of(desk, near.get(desk.insight_id))]

    def _of(self, desk: Desk, near: Fullness | None) -> Sequence[BacklogCounted]:
        told = self._told.get(desk.insight_id)
        if told is None:
            if near is None and not self._limited:
                return []
            told = self._told[desk.insight_id] = _Told(desk)
        now = self._clock.now()
        slots = desk.backlog.slots
        moved = slots.take_moved()
        placed = dict(desk.backlog.placed_up_to) if self._limited else {}
        is_whole = self._is_whole_due(told, now.timestamp())
        if is_whole:
            told.whole_at = now.timestamp()
            counts = {
                one: slots.staying.get(one, 0) for one in self._limited & {*slots.staying}
            }
            named = told.changes.whole(counts)
        else:
            named = told.changes.since(slots.staying, moved & self._limited)
        if not (is_whole or named or placed != told.placed or near != told.fullness):
            return []
        told.placed, told.fullness = placed, near
        return [
            BacklogCounted(
                insight_id=desk.insight_id,
                at=now,
                customers=part,
                is_whole=is_whole and number == 0,
                placed=placed,
                fullness=near,
            )
            for number, part in enumerate(portions(named))
        ]

    def _is_whole_due(self, told: _Told, now: float) -> bool:
        if told.whole_at is None:
            return True
        has_any = bool(told.changes) or told.fullness is not None
        return has_any and not 0 <= now - told.whole_at < WHOLE_EVERY_S

    def _take_up_definitions(self) -> None:
        current = self._definitions.current
        if current is self._seen:
            return
        self._seen = current
        limited = frozenset(
            one.id for one in current.customers.values() if one.max_ready is not None
        )
        if limited != self._limited:
            self._limited, self._told = limited, {}


def _load(desk: Desk) -> Load:
    return Load(agendas=desk.backlog.slots.total, size=desk.shelf.size)
