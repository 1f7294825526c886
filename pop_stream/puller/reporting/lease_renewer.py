"""Renews the leases of claimed and running attempts by heartbeats, and publishes progress."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from itertools import chain
from time import monotonic
from typing import Final, NoReturn

from pop_stream.model.events.lifecycle import AgendaHeartbeat, LifecycleEvent
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.ports.clock import Clock
from pop_stream.puller.claiming.claims import ClaimedAttempt
from pop_stream.puller.execution.executor import ActiveAttempt
from pop_stream.puller.reporting.reporter import Reporter, progress_events

PROGRESS_EVERY_S: Final = 0.5
"""An agenda's progress is published no more often, and not before it ran for so long: one
that ends sooner has two events only, its claim and its end."""

_TICK_S: Final = 0.1
_RENEWALS_PER_LEASE: Final = 3


class LeaseRenewer:
    """One per claimer.

    Args:
        running: The attempts that were started; iterated anew each time.
        unstarted: Those that are claimed and not started; the same.
        reporter: Publishes the renewals and the progress.
        clock: For the instants in them.
        puller_id: Who renews.
        heartbeat: Between renewals, unless a third of the lease is shorter.
        claimed_event: Set with every claim; cleared here, when there is nothing to renew.
    """

    def __init__(  # noqa: PLR0913  # all it keeps, named once
        self,
        running: Iterable[ActiveAttempt],
        unstarted: Iterable[ClaimedAttempt],
        reporter: Reporter,
        clock: Clock,
        *,
        puller_id: str,
        heartbeat: timedelta,
        claimed_event: asyncio.Event,
    ) -> None:
        self._running = running
        self._unstarted = unstarted
        self._reporter = reporter
        self._clock = clock
        self._puller_id = puller_id
        self._heartbeat_s = heartbeat.total_seconds()
        self._claimed_event = claimed_event

    async def run(self) -> NoReturn:
        """Look at all attempts ten times a second while there are any; until cancelled."""
        while True:
            if not self._has_any():
                self._claimed_event.clear()
                await self._claimed_event.wait()
            await asyncio.sleep(_TICK_S)
            if due := self.due(monotonic()):
                self._reporter.add(due)
                # While the broker is away, renewals must not pile up.
                await self._reporter.wait_acknowledged()

    def _has_any(self) -> bool:
        return any(True for _ in chain(self._running, self._unstarted))

    def due(self, now_s: float) -> list[LifecycleEvent]:
        """The events to send now; counts them as sent.

        Args:
            now_s: The present instant of the monotonic clock.
        """
        due: list[LifecycleEvent] = []
        for claimed in self._unstarted:
            if now_s - claimed.renewed_s >= self._interval_s(claimed.emitted):
                claimed.renewed_s = now_s
                due.append(self._heartbeat(claimed.emitted))
        for held in self._running:
            if held.has_ended:
                continue
            if held.stop is None and now_s - held.renewed_s >= self._interval_s(held.emitted):
                held.renewed_s = now_s
                due.append(self._heartbeat(held.emitted))
            if (
                now_s - held.reported_s >= PROGRESS_EVERY_S
                and held.run
                and held.run.has_changes
            ):
                held.reported_s = now_s
                changes = held.run.take_changes()
                due.extend(progress_events(held.emitted, changes, at=self._clock.now()))
        return due

    def _interval_s(self, emitted: EmittedAgenda) -> float:
        return min(self._heartbeat_s, emitted.lease_ms / 1000 / _RENEWALS_PER_LEASE)

    def _heartbeat(self, emitted: EmittedAgenda) -> AgendaHeartbeat:
        return AgendaHeartbeat(
            agenda_id=emitted.agenda_id,
            at=self._clock.now(),
            insight_id=emitted.insight_id,
            attempt=emitted.attempt,
            puller_id=self._puller_id,
            lease_ms=emitted.lease_ms,
        )
