"""Removes what ended long enough ago, every so often, for as long as the rollup runs."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.model.errors import UnavailableError
from pop_stream.policy.lifecycle.retention import Retention
from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.clock import Clock
from pop_stream.settings import Settings

_FIRST_AFTER_S: Final = 60.0
"""After the start of the process: a crash loop must not add to what is wrong already."""

_SILENCE: Final = timedelta(days=1)
"""Pullers that gave no sign of life for so long are forgotten."""

_log = structlog.get_logger()


class RetentionStore(Protocol):
    """Where ended agendas are; every method raises UnavailableError while it is away."""

    async def remove(
        self, before: Mapping[State, datetime], *, dry_run: bool = False
    ) -> Mapping[State, int]:
        """Remove what ended before the instant of its state; how many, by state."""
        ...

    async def remove_webhooks(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove webhooks that were exhausted before an instant; how many."""
        ...

    async def remove_silent_pullers(self, before: datetime, *, dry_run: bool = False) -> int:
        """Forget pullers that gave no sign of life since an instant; how many."""
        ...

    async def remove_dead_letters(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove letters written before an instant, and the oldest of too many; how many."""
        ...

    async def remove_stats(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove what was counted in hours before an instant; how many rows."""
        ...

    async def remove_occurrences(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove decisions made before an instant of which no agenda is left; how many."""
        ...


def retention_from(settings: Settings) -> Retention:
    """The spans that the settings name."""
    return Retention(
        succeeded=settings.retain_succeeded,
        failed=settings.retain_failed,
        stopped=settings.retain_stopped,
        refused=settings.retain_refused,
        dead_letters=settings.retain_dead_letters,
        stats=settings.retain_stats,
    )


async def remove_expired(
    store: RetentionStore, retention: Retention, now: datetime, *, dry_run: bool = False
) -> dict[str, int]:
    """Remove once what is old enough; how many of each state and kind of row."""
    removed = await store.remove(retention.before(now), dry_run=dry_run)
    webhooks = await store.remove_webhooks(now - retention.failed, dry_run=dry_run)
    letters = await store.remove_dead_letters(now - retention.dead_letters, dry_run=dry_run)
    pullers = await store.remove_silent_pullers(now - _SILENCE, dry_run=dry_run)
    hours = await store.remove_stats(now - retention.stats, dry_run=dry_run)
    kept = max(retention.succeeded, retention.failed, retention.stopped, retention.refused)
    decisions = await store.remove_occurrences(now - kept, dry_run=dry_run)
    by_state = {state.value: count for state, count in removed.items()}
    rows = {"webhooks": webhooks, "dead_letters": letters, "pullers": pullers, "stats": hours}
    return {**by_state, **rows, "occurrences": decisions}


async def schedule_retention(
    settings: Settings, store: RetentionStore, clock: Clock, stop: asyncio.Event
) -> None:
    """Remove what is old enough every `retain_every`, until `stop`."""
    pause_s = _FIRST_AFTER_S
    while not await wait_until_set(stop, pause_s):
        pause_s = settings.retain_every.total_seconds()
        try:
            removed = await remove_expired(store, retention_from(settings), clock.now())
        except UnavailableError as error:
            _log.info("retention.postponed", reason=str(error))
        else:
            _log.info("agendas.removed", **removed)
