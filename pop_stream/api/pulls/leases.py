"""Who holds an attempt over HTTP: found, fenced, and what the agenda consists of."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from pop_stream.api.agendas.views import progress_view
from pop_stream.api.http.answers import with_timeout
from pop_stream.api_models.agendas import AgendaProgress
from pop_stream.model.agenda import Operation, decode_appended, parse_agenda
from pop_stream.model.errors import LeaseLostError, NotFoundError, UnavailableError
from pop_stream.model.events.base import AppendedOperation
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.identity import Ownership, Principal
from pop_stream.model.ids import InsightId
from pop_stream.policy.http_pull import SummarizedAttempts
from pop_stream.policy.lifecycle.states import (
    AttemptStatus,
    State,
    ended,
    ended_in_earlier_attempt,
    lost,
)
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.deliveries import HttpDeliveries
from pop_stream.ports.summaries import SummaryReader

ATTEMPT: Final = "attempt"
APPEARS_WITHIN: Final = timedelta(seconds=1)
"""How long an attempt that nothing is known of is waited for."""

_INSIGHT: Final = "insight"
_QUERY_TIMEOUT_S: Final = 1.0
_PRIOR_WITHIN_S: Final = 3.0
_POLL_INTERVAL_S: Final = 0.1
_MAX_ATTEMPT: Final = 2**31 - 1
_FOLDED_WITHIN: Final = timedelta(hours=1)
"""So far behind the rollup may be before what it has no summary of counts as removed."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lease:
    """An attempt, as far as reports on it need to know."""

    agenda_id: str
    insight_id: str
    attempt: int
    lease_ms: int
    body: bytes
    appended: tuple[AppendedOperation, ...] = ()

    def operations(self) -> Sequence[Operation]:
        """All operations of the agenda that are known."""
        known = (*parse_agenda(self.body).operations, *decode_appended(self.appended))
        return [*{one.name: one for one in known}.values()]


def attempt_of(named: str) -> int | None:
    """The attempt that a path names; None if there cannot be such a one."""
    if not (named.isascii() and named.isdigit()) or not 1 <= int(named) <= _MAX_ATTEMPT:
        return None
    return int(named)


class LeaseDirectory:
    """Asks what was handed out lately, and the summary for all else.

    While the database is away, attempts that were handed out lately are found all the same,
    by whatever process of the API. While it is there it is asked about these too: an attempt
    may have ended in ways that nobody tells its worker.

    Args:
        desk: Hands out.
        summaries: Tell what became of it.
        definitions: Tell whose insights are whose.
        clock: For how long ago something was handed out.
        retention: How long summaries are kept, from the end of their agendas on, at the least.
        appears_within: How long an attempt that nothing is known of is waited for.
    """

    def __init__(  # what it asks, and how long that is to be trusted
        self,
        desk: HttpDeliveries,
        summaries: SummaryReader,
        definitions: DefinitionSource,
        clock: Clock,
        *,
        retention: timedelta,
        appears_within: timedelta = APPEARS_WITHIN,
    ) -> None:
        self.appears_within = min(appears_within, APPEARS_WITHIN)
        self._deliveries = desk
        self._summaries = summaries
        self._definitions = definitions
        self._clock = clock
        self._retention = max(retention, _FOLDED_WITHIN)
        self._summarized = SummarizedAttempts()

    async def owner(self, agenda_id: str, _: Principal) -> Ownership | None:
        """Whose the insight of the agenda is: that one's workers may report on it."""
        delivered = self._deliveries.lease(agenda_id)
        if delivered is None:
            summary = await self._summaries.agenda(agenda_id)
            insight_id = summary.insight_id if summary else ""
        else:
            insight_id = delivered.insight_id
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        return insight.ownership if insight else None

    def expect_insight(self, insight_id: str) -> None:
        """Check that there is such an insight.

        Raises:
            NotFoundError: If there is none.
        """
        if InsightId(insight_id) not in self._definitions.current.insights:
            raise NotFoundError(_INSIGHT, insight_id)

    async def prior(self, emitted: EmittedAgenda, seen_by: str | None) -> AgendaProgress | None:
        """What earlier attempts left; None if the summary does not come to this one soon."""
        try:
            async with asyncio.timeout(_PRIOR_WITHIN_S):
                while True:
                    summary = await self._summaries.agenda(emitted.agenda_id)
                    if summary is not None and summary.attempt >= emitted.attempt:
                        return progress_view(summary, seen_by=seen_by)
                    await asyncio.sleep(_POLL_INTERVAL_S)
        except (TimeoutError, UnavailableError):
            return None

    async def find(self, agenda_id: str, attempt: int, *, whole: bool = False) -> Lease:
        """The attempt, if nothing is known to have outdated it.

        Args:
            agenda_id: Of the agenda.
            attempt: Which the caller holds.
            whole: With what was appended to the agenda, if the database can be asked.

        Raises:
            NotFoundError: If nothing is known of the agenda, or of such an attempt.
            LeaseLostError: If a newer attempt is known, or the agenda has ended.
            UnavailableError: If only the database could tell, and it is away.
        """
        until = asyncio.get_running_loop().time() + self.appears_within.total_seconds()
        while True:
            try:
                return await self._find(agenda_id, attempt, whole=whole)
            except NotFoundError:
                # Handed out by another process a moment ago, it is heard of here in a moment.
                if asyncio.get_running_loop().time() >= until:
                    raise
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def ended_in_earlier_attempt(self, emitted: EmittedAgenda) -> State | None:
        """How the agenda had ended in an earlier attempt of the same run, if it had."""
        if not emitted.run_from:
            return None
        standing: AttemptStatus | None = None
        with suppress(UnavailableError):
            standing = await self._query(self._summaries.standing(emitted.agenda_id))
        if standing is None or not ended_in_earlier_attempt(emitted, standing):
            return None
        return standing.state

    async def _find(self, agenda_id: str, attempt: int, *, whole: bool) -> Lease:
        self._expect_current(agenda_id, attempt)
        delivered = self._deliveries.lease(agenda_id)
        if delivered is not None and delivered.attempt == attempt:
            appended = await self._expect_held(delivered, whole=whole)
            body = bytes(delivered.agenda)
            return Lease(
                agenda_id, delivered.insight_id, attempt, delivered.lease_ms, body, appended
            )
        summary = await with_timeout(self._summaries.agenda(agenda_id))
        if summary is not None:
            _expect_running(agenda_id, attempt, AttemptStatus(summary.attempt, summary.state))
        if summary is None or not summary.body or summary.attempt < attempt:
            raise NotFoundError(ATTEMPT, f"{agenda_id}/{attempt}")
        return Lease(
            agenda_id,
            summary.insight_id,
            attempt,
            summary.lease_ms,
            summary.body,
            summary.appended,
        )

    async def _expect_held(
        self, delivered: EmittedAgenda, *, whole: bool
    ) -> tuple[AppendedOperation, ...]:
        """Ask the summary, if it can be asked; what was appended, if it is read as a whole."""
        agenda_id, attempt = delivered.agenda_id, delivered.attempt
        appended: tuple[AppendedOperation, ...] = ()
        try:
            if whole:
                summary = await self._query(self._summaries.agenda(agenda_id))
                appended = summary.appended if summary else ()
                standing = AttemptStatus(summary.attempt, summary.state) if summary else None
            else:
                standing = await self._query(self._summaries.standing(agenda_id))
        except UnavailableError:
            return ()
        if standing is None:
            self._expect_not_removed(delivered)
            return appended
        self._summarized.remember(agenda_id, delivered.emitted_at)
        if ended_in_earlier_attempt(delivered, standing):
            raise ended(agenda_id, attempt, standing.state)
        _expect_running(agenda_id, attempt, standing)
        return appended

    def _expect_not_removed(self, delivered: EmittedAgenda) -> None:
        """What has no summary is too new to have one, or has ended and was removed."""
        agenda_id, emitted_at = delivered.agenda_id, delivered.emitted_at
        had_summary = self._summarized.was(agenda_id, emitted_at)
        if had_summary or emitted_at + self._retention < self._clock.now():
            why = "the agenda has ended, and was removed"
            raise LeaseLostError(agenda_id, delivered.attempt, "ended", why)

    async def _query(self, question: Awaitable[T]) -> T:
        return await with_timeout(question, within_s=_QUERY_TIMEOUT_S)

    def is_current(self, emitted: EmittedAgenda) -> bool:
        """Whether nothing heard here says that another attempt has taken its place."""
        try:
            self._expect_current(emitted.agenda_id, emitted.attempt)
        except LeaseLostError:
            return False
        return True

    def _expect_current(self, agenda_id: str, attempt: int) -> None:
        delivered = self._deliveries.lease(agenda_id)
        if delivered is not None and delivered.attempt > attempt:
            why = f"attempt {delivered.attempt} was handed out"
            raise LeaseLostError(agenda_id, attempt, "followed", why)
        if self._deliveries.stop(agenda_id, attempt) == "outdated":
            why = "the scheduler counts on it no more"
            raise LeaseLostError(agenda_id, attempt, "outdated", why)


def _expect_running(agenda_id: str, attempt: int, standing: AttemptStatus) -> None:
    if (error := lost(agenda_id, attempt, standing)) is not None:
        raise error
