"""Follows `pop.agenda-events` and notes when each agenda was claimed and when it ended."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pop_stream.cli.following import LifecycleFollower
from pop_stream.core.events import (
    AgendaClaimed,
    AgendaFailed,
    AgendaRefused,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.settings import Settings


@dataclass(slots=True)
class AgendaTimeline:
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


class LifecycleObserver:
    """Hears the lifecycle events of one load from the moment it is entered on.

    Those of earlier loads may still be heard, and would be counted in.

    Args:
        settings: Where the cluster is.
        prefix: Begins the ids of the load's agendas.

    Attributes:
        timelines: Of every agenda of it that was heard of, by id.
        ended: How many agendas ended.
    """

    def __init__(self, settings: Settings, prefix: str) -> None:
        self._prefix = prefix
        self.timelines: dict[str, AgendaTimeline] = {}
        self.ended = 0
        self._follower = LifecycleFollower(
            settings, client_id="bench", on_events=self._on_events
        )

    async def __aenter__(self) -> Self:
        await self._follower.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._follower.__aexit__()

    async def until_ended(self, agenda_ids: Iterable[str]) -> None:
        """Wait until all these have ended, or raise what stopped the reading."""
        waiting = set(agenda_ids)

        def have_ended() -> bool:
            waiting.difference_update([one for one in waiting if self._has_ended(one)])
            return not waiting

        await self._follower.until(have_ended)

    async def until_so_many_ended(self, count: int) -> None:
        """Wait until at least so many agendas have ended, or raise what stopped the reading."""
        await self._follower.until(lambda: self.ended >= count)

    def _has_ended(self, agenda_id: str) -> bool:
        timeline = self.timelines.get(agenda_id)
        return timeline is not None and timeline.ended_at > 0

    def _on_events(self, lifecycle: Iterable[LifecycleEvent]) -> None:
        for event in lifecycle:
            if event.agenda_id.startswith(self._prefix):
                self._note(event)

    def _note(self, event: LifecycleEvent) -> None:
        match event:
            case AgendaClaimed(at=at):
                self._timeline(event).claimed_at = at.timestamp()
            case AgendaSucceeded(at=at, spent_s=spent_s):
                timeline = self._timeline(event)
                begun = (one.started_at for one in event.operations if one.started_at)
                timeline.started_at = min(begun, default=at).timestamp()
                self._end(timeline, at)
                timeline.spent_s = sum(spent_s.values())
                timeline.successes += 1
            case AgendaFailed(at=at, retryable=False) | AgendaRefused(at=at):
                timeline = self._timeline(event)
                self._end(timeline, at)
                timeline.has_failed = True
            case _:
                pass

    def _end(self, timeline: AgendaTimeline, at: datetime) -> None:
        self.ended += not timeline.ended_at
        timeline.ended_at = at.timestamp()

    def _timeline(self, event: LifecycleEvent) -> AgendaTimeline:
        return self.timelines.setdefault(event.agenda_id, AgendaTimeline())
