"""What a backlog has to publish: lifecycle events, stops and dead letters."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from pop_stream.model.events.lifecycle import (
    AgendaCancelled,
    AgendaExhausted,
    AgendaExpired,
    AgendaHeld,
    AgendaReady,
    AgendaReprioritised,
    AgendaStopping,
    AgendaWaiting,
    LifecycleEvent,
    StopReason,
    WaitReason,
)
from pop_stream.model.events.scheduling import Command


@dataclass(frozen=True, slots=True)
class FailedAgenda:
    """An agenda that failed for good, for the dead letters.

    Attributes:
        ref: Its place, by which its body can still be read.
        code: `attempts_exhausted` or `final_failure`.
    """

    ref: int
    agenda_id: str
    attempt: int
    code: str
    message: str


class StopRequest(NamedTuple):
    """An attempt that is to stop; of the agenda in this place, if it is here."""

    ref: int | None
    agenda_id: str
    attempt: int
    reason: StopReason | Literal["outdated"]


@dataclass(slots=True)
class OutboxBatch:
    """What is to be published, in the order in which it happened."""

    lifecycle: list[LifecycleEvent] = field(default_factory=list)
    stops: list[StopRequest] = field(default_factory=list)
    failed: list[FailedAgenda] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lifecycle or self.stops or self.failed)


class BacklogOutbox:
    """Makes the events of one insight; `now` is always in seconds since the epoch."""

    def __init__(self, insight_id: str) -> None:
        self._insight_id = insight_id
        self._batch = OutboxBatch()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to publish."""
        return not self._batch

    def take(self) -> OutboxBatch:
        """All that was added since the last call; a second call returns an empty batch."""
        batch, self._batch = self._batch, OutboxBatch()
        return batch

    def waiting(  # the event's fields
        self,
        agenda_id: str,
        attempt: int,
        now: float,
        *,
        until: float,
        why: WaitReason,
        message: str = "",
    ) -> None:
        """The attempt waits for an instant."""
        self._batch.lifecycle.append(
            AgendaWaiting(
                agenda_id=agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=attempt,
                until=_instant(until),
                reason=why,
                message=message,
            )
        )

    def ready(self, agenda_id: str, attempt: int, now: float) -> None:
        """The attempt waits for its turn."""
        self._batch.lifecycle.append(
            AgendaReady(
                agenda_id=agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=attempt,
            )
        )

    def held(
        self, agenda_id: str, attempt: int, now: float, *, by: str = "", reason: str = ""
    ) -> None:
        """The attempt waits for its release."""
        self._batch.lifecycle.append(
            AgendaHeld(
                agenda_id=agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=attempt,
                by=by,
                reason=reason,
            )
        )

    def reprioritised(
        self, command: Command, attempt: int, now: float, *, priority: int, rank: int
    ) -> None:
        """The attempt has another priority or rank."""
        self._batch.lifecycle.append(
            AgendaReprioritised(
                agenda_id=command.agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=attempt,
                priority=priority,
                rank=rank,
                by=command.by,
                reason=command.reason,
            )
        )

    def stopping(
        self,
        ref: int,
        agenda_id: str,
        attempt: int,
        now: float,
        *,
        reason: StopReason,
        message: str,
    ) -> None:
        """The attempt is to stop; its puller is notified."""
        self._batch.lifecycle.append(
            AgendaStopping(
                agenda_id=agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=attempt,
                reason=reason,
                message=message,
            )
        )
        self.stop(ref, agenda_id, attempt, reason)

    def stop(
        self,
        ref: int | None,
        agenda_id: str,
        attempt: int,
        reason: StopReason | Literal["outdated"],
    ) -> None:
        """Whoever runs the attempt is to stop; `ref` is None if the agenda is not here."""
        self._batch.stops.append(StopRequest(ref, agenda_id, attempt, reason))

    def duplicate(
        self, agenda_id: str, attempt: int, now: float, *, of: str, message: str
    ) -> None:
        """The agenda is cancelled, for another stands in its place."""
        self._batch.lifecycle.append(
            AgendaCancelled(
                agenda_id=agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=attempt,
                message=message,
                duplicate_of=of,
            )
        )

    def ended(
        self, agenda_id: str, attempt: int, now: float, *, reason: StopReason, message: str
    ) -> None:
        """The agenda was cancelled, or its deadline passed."""
        kind = AgendaCancelled if reason == "cancelled" else AgendaExpired
        self._batch.lifecycle.append(
            kind(
                agenda_id=agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=attempt,
                message=message,
            )
        )

    def exhausted(self, failed: FailedAgenda, now: float) -> None:
        """No attempt is left."""
        self._batch.lifecycle.append(
            AgendaExhausted(
                agenda_id=failed.agenda_id,
                at=_instant(now),
                insight_id=self._insight_id,
                attempt=failed.attempt,
                message=failed.message,
            )
        )
        self.dead_lettered(failed)

    def dead_lettered(self, failed: FailedAgenda) -> None:
        """It failed for good; its lifecycle has that already."""
        self._batch.failed.append(failed)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
