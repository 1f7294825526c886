"""Follows `pop.agenda-events` and notes when each agenda was claimed and when it ended."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from pop_stream.bus import clients
from pop_stream.bus.topics import Topics
from pop_stream.core.events import (
    AgendaClaimed,
    AgendaFailed,
    AgendaRefused,
    AgendaSucceeded,
    LifecycleEvent,
    decode_lifecycle,
)
from pop_stream.settings import Settings

_MOST_RECORDS: Final = 2_000


@dataclass(slots=True)
class Course:
    """What is known of one agenda; instants in seconds since the epoch.

    Attributes:
        claimed_at: Of the attempt that ended, or is under way.
        started_at: When its first operation began; an agenda may be claimed before that.
        successes: More than one means it was run twice.
        spent_s: Worker-seconds of the attempt that succeeded.
    """

    claimed_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    successes: int = 0
    has_failed: bool = False
    spent_s: float = 0.0


class Witness:
    """Hears every lifecycle event from the moment it is entered on."""

    def __init__(self, settings: Settings) -> None:
        topic = Topics(settings.topic_prefix).agenda_events
        self.courses: dict[str, Course] = {}
        self._consumer = clients.consumer(settings, topic, client_id="bench", group_id=None)
        self._task: asyncio.Task[None] | None = None
        self._more = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        try:
            await self._consumer.seek_to_end()
            for partition in self._consumer.assignment():
                # Seeking is lazy: asking settles where it begins.
                await self._consumer.position(partition)
        except BaseException:
            await self._consumer.stop()
            raise
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._consumer.stop()

    async def until_ended(self, agenda_ids: Iterable[str]) -> None:
        """Wait until all these have ended, or raise what stopped the reading."""
        waiting = set(agenda_ids)
        while waiting := {one for one in waiting if not self._has_ended(one)}:
            async with self._more:
                await self._more.wait()
            if self._task is not None and self._task.done():
                self._task.result()

    def _has_ended(self, agenda_id: str) -> bool:
        course = self.courses.get(agenda_id)
        return course is not None and course.ended_at > 0

    async def _follow(self) -> None:
        try:
            while True:
                fetched = await self._consumer.getmany(
                    timeout_ms=250, max_records=_MOST_RECORDS
                )
                for records in fetched.values():
                    for record in records:
                        for event in decode_lifecycle(record.value):
                            self._note(event)
                async with self._more:
                    self._more.notify_all()
        finally:
            async with self._more:
                self._more.notify_all()

    def _note(self, event: LifecycleEvent) -> None:
        match event:
            case AgendaClaimed(at=at):
                self._course(event).claimed_at = at.timestamp()
            case AgendaSucceeded(at=at, spent_s=spent_s):
                course = self._course(event)
                begun = (one.started_at for one in event.operations if one.started_at)
                course.started_at = min(begun, default=at).timestamp()
                course.ended_at = at.timestamp()
                course.spent_s = sum(spent_s.values())
                course.successes += 1
            case AgendaFailed(at=at, retryable=False) | AgendaRefused(at=at):
                course = self._course(event)
                course.ended_at = at.timestamp()
                course.has_failed = True
            case _:
                pass

    def _course(self, event: LifecycleEvent) -> Course:
        return self.courses.setdefault(event.agenda_id, Course())
