"""Ends runs whose agenda is over, and deletes those that ended long ago.

A run is orphaned if no puller watches it and no attempt will go on with it: its agenda was
cancelled or has ended while no puller was there, or two runs of one operation are active.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, Protocol
from urllib.parse import quote

import structlog

from pop_stream.clock import WallClock
from pop_stream.policy.lifecycle.states import OUTCOMES
from pop_stream.ports.clock import Clock
from pop_stream.puller.execution.api_session import ApiSession, ApiUnusableError
from pop_stream.puller.executors.port import (
    ENDED,
    Executor,
    ExecutorUnavailableError,
    OwnRun,
)
from pop_stream.puller.handlers.errors import OperationError
from pop_stream.settings import Settings

LOOKED_UP: Final = 50
"""Most agendas that one look asks the API about; the next one goes on with the others."""

YOUNG: Final = timedelta(seconds=60)
"""A run younger than this is left alone: its puller may be about to watch it."""

_ENDS: Final = frozenset(state.value for state in OUTCOMES)

_log = structlog.get_logger()


class AgendaStates(Protocol):
    """Where orphans are known by: the state of agendas."""

    async def is_over(self, agenda_id: str) -> bool:
        """Whether it has ended for good. False where nobody can say."""
        ...


class ApiAgendaStates:
    """Asks the API, `GET /v1/agendas/{id}/progress`, with the puller's own token.

    Args:
        settings: Where the API is, and what token it wants: one with the role `read`.
    """

    def __init__(self, settings: Settings) -> None:
        self._api = ApiSession(settings, {})

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def is_over(self, agenda_id: str) -> bool:
        """Whether its summary says that it has ended; one that the key cannot see has not."""
        path = f"/v1/agendas/{quote(agenda_id, safe='')}/progress"
        try:
            progress: Any = json.loads(await self._api.request("GET", path))
        except (ApiUnusableError, ValueError):
            return False
        return isinstance(progress, dict) and progress.get("state") in _ENDS


class OrphanCollector:
    """Looks at an executor's runs from time to time; several pullers may do so at a time.

    Args:
        executor: Whose.
        agendas: Says which are over.
        watched: Names of runs that this process watches.
        every: Between two looks.
        keep_ended: How long a run that has ended is kept, for people and later attempts.
        clock: The present.
    """

    def __init__(
        self,
        executor: Executor[Any],
        agendas: AgendaStates,
        watched: Callable[[], Collection[str]],
        *,
        every: timedelta = timedelta(seconds=60),
        keep_ended: timedelta = timedelta(hours=24),
        clock: Clock | None = None,
    ) -> None:
        self._executor = executor
        self._agendas = agendas
        self._watched = watched
        self._every_s = every.total_seconds()
        self._keep_ended = keep_ended
        self._clock = clock or WallClock()
        self._last = ""

    async def run(self) -> NoReturn:
        """Look until cancelled; an executor that is away is looked at later."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.collect()
            except (ExecutorUnavailableError, OperationError) as error:
                _log.info("executor.away", executor=self._executor.kind, reason=str(error))

    async def collect(self) -> Sequence[str]:
        """Look once.

        Returns:
            Names of runs that were ended or deleted.
        """
        now = self._clock.now()
        runs = [one for one in await self._executor.list_own() if now - one.created_at > YOUNG]
        removed = []
        for run in runs:
            ended_at = run.status.ended_at or run.created_at
            if run.status.state in ENDED and now - ended_at > self._keep_ended:
                await self._executor.delete(run.name)
                removed.append(run.name)
        active = [one for one in runs if one.status.state not in ENDED]
        for run in self._next([one for one in active if one.name not in self._watched()]):
            if reason := await self._orphaned(run, active):
                await self._executor.cancel(run.name)
                removed.append(run.name)
                facts = {"run": run.name, "agenda_id": run.identity.agenda_id}
                _log.info("executor.orphan_ended", **facts, reason=reason)
        return removed

    def _next(self, runs: Sequence[OwnRun]) -> Sequence[OwnRun]:
        """As many as one look asks about, beginning after the last one of the look before."""
        by_name = sorted(runs, key=lambda one: (one.name <= self._last, one.name))[:LOOKED_UP]
        if by_name:
            self._last = by_name[-1].name
        return by_name

    async def _orphaned(self, run: OwnRun, active: Sequence[OwnRun]) -> str:
        """Why nobody will want it; empty if somebody may."""
        identity = run.identity
        order = (identity.attempt, identity.tries)
        for other in active:
            if other.identity.key != identity.key:
                continue
            if (other.identity.attempt, other.identity.tries) > order:
                return f"{other.name} has taken its place"
        if await self._agendas.is_over(identity.agenda_id):
            return "its agenda is over"
        return ""
