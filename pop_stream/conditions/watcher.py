"""Looks which waits are over, every so often."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final, Literal

import structlog
from msgspec import UNSET, Raw

from pop_stream.clock import wait_until_set
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.lifecycle import AgendaCommanded, AgendaResolved, LifecycleEvent
from pop_stream.model.events.scheduling import MAX_MESSAGE_LENGTH
from pop_stream.model.signal import (
    HAND_OVER_TIMED_OUT,
    OPERATION_FINAL,
    OPERATION_RETRYABLE,
    AnsweredOperation,
    DecidedWait,
)
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.signals import ConditionStore, WaitStore
from pop_stream.settings import Settings

MAX_FOUND: Final = 500
"""Most waits that one look ends; the next one has the others."""

LOOK_EVERY_S: Final = 0.5
_UNAVAILABLE_PAUSE_S: Final = 2.0
_WORK_SHARE: Final = 0.05
"""Of the time that looks may take: where they take long, they are made less often."""

_MAX_PAUSE_S: Final = 5.0
"""Longest pause all the same: one look may have taken seconds for a server that was busy."""

_REMOVE_EVERY_S: Final = 60.0
_FAILURES: Final = {True: OPERATION_RETRYABLE, False: OPERATION_FINAL}
_PART: Final = "conditions"

_log = structlog.get_logger()


class ConditionWatcher:
    """Ends waits until stopped.

    Args:
        settings: Names and keys.
        store: Knows which operations wait, and which signals were given.
        conditions: Knows what agendas wait for.
        publisher: Takes what follows.
        clock: For what is due.
    """

    def __init__(
        self,
        settings: Settings,
        store: WaitStore,
        conditions: ConditionStore,
        publisher: Publisher,
        clock: Clock,
    ) -> None:
        self._conditions = conditions
        self._topic = Topics(settings.topic_prefix).agenda_events
        self._signer = RecordSigner(settings.signing_keys)
        self._store = store
        self._publisher = publisher
        self._clock = clock
        self._removed_s = monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Look every half second, or less often where that takes long, until `stop`."""
        pause_s = LOOK_EVERY_S
        while not await wait_until_set(stop, pause_s):
            began_s = monotonic()
            try:
                found = await self.look()
            except UnavailableError as error:
                _log.info("conditions.postponed", reason=str(error))
                pause_s = _UNAVAILABLE_PAUSE_S
            else:
                took_s = monotonic() - began_s
                pause_s = min(_MAX_PAUSE_S, max(LOOK_EVERY_S, took_s / _WORK_SHARE))
                if found:
                    _log.info("conditions.met", count=found)

    async def look(self) -> int:
        """Publish what follows from all that has come; how many waits that ends.

        Raises:
            UnavailableError: If the database or the brokers are away.
        """
        now = self._clock.now()
        if monotonic() - self._removed_s > _REMOVE_EVERY_S:
            self._removed_s = monotonic()
            await self._store.remove_expired(now)
        answered = await self._store.answered(now, MAX_FOUND)
        await self._publish([self._resolved(one) for one in answered])
        decided = await self._conditions.decided(now, MAX_FOUND)
        await self._publish([self._commanded(one) for one in decided])
        if decided:
            await self._conditions.mark_commanded([one.agenda_id for one in decided], now)
        return len(answered) + len(decided)

    def _resolved(self, one: AnsweredOperation) -> AgendaResolved:
        now = self._clock.now()
        code, reason = "", ""
        if one.outcome != "succeeded":
            code, reason = _FAILURES[one.is_retryable], one.reason
        if one.outcome == "timed_out":
            waited_s = (now - (one.since or now)).total_seconds()
            code = HAND_OVER_TIMED_OUT
            reason = f"it was handed over, and nobody completed it within {waited_s:.0f} s"
        return AgendaResolved(
            agenda_id=one.agenda_id,
            at=now,
            insight_id=one.insight_id,
            attempt=one.attempt,
            operation=one.operation,
            outcome="succeeded" if one.outcome == "succeeded" else "failed",
            result=Raw(one.payload) if one.payload else UNSET,
            by=one.given_by,
            reason=reason,
            code=code,
        )

    def _commanded(self, one: DecidedWait) -> AgendaCommanded:
        now = self._clock.now()
        waited = f"{(now - one.since).total_seconds():.0f} s"
        action: Literal["release", "fail"] = "release"
        reason = "all that it waited for has come"
        if one.unmet:
            reason = f"it waited {waited} in vain for {one.unmet}"[:MAX_MESSAGE_LENGTH]
            action = "release" if one.on_timeout == "go_on" else "fail"
        return AgendaCommanded(
            agenda_id=one.agenda_id,
            at=now,
            insight_id=one.insight_id,
            action=action,
            by=_PART,
            reason=reason,
            attempt=one.attempt,
        )

    async def _publish(self, lifecycle: Sequence[LifecycleEvent]) -> None:
        if not lifecycle:
            return
        records = await lifecycle_records(
            self._publisher, self._topic, lifecycle, signer=self._signer
        )
        await self._publisher.publish(records)
