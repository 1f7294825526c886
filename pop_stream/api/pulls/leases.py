"""Who holds an attempt over HTTP: found, fenced, and what the agenda consists of."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pop_stream.api.agendas.views import progress_view
from pop_stream.api.http.patience import answer_in_time
from pop_stream.core.agendas.agenda import Operation, parse_agenda
from pop_stream.core.agendas.appended import decode_appended
from pop_stream.core.errors import LeaseLostError, NotFoundError, UnavailableError
from pop_stream.core.events import AppendedOperation, EmittedAgenda
from pop_stream.core.lifecycle.lifecycle import State
from pop_stream.core.lifecycle.summary import Summary
from pop_stream.core.values.identity import Ownership, Principal
from pop_stream.core.values.ids import InsightId
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.summaries import SummaryReader
from pop_stream.ports.work import WorkDesk
from pop_stream.shapes.agendas import AgendaProgress

ATTEMPT: Final = "attempt"
APPEARS_WITHIN: Final = timedelta(seconds=1)
"""How long an attempt that nothing is known of is waited for."""

_INSIGHT: Final = "insight"
_LOOK_S: Final = 1.0
_PRIOR_WITHIN_S: Final = 3.0
_LOOK_EVERY_S: Final = 0.1
_MOST_ATTEMPT: Final = 2**31 - 1


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
    if not (named.isascii() and named.isdigit()) or not 1 <= int(named) <= _MOST_ATTEMPT:
        return None
    return int(named)


class LeaseBook:
    """Asks what was handed out lately, and the summary for all else.

    While the database is away, attempts that were handed out lately are found all the same,
    by whatever process of the API.
    """

    def __init__(
        self,
        desk: WorkDesk,
        summaries: SummaryReader,
        definitions: DefinitionSource,
        *,
        appears_within: timedelta = APPEARS_WITHIN,
    ) -> None:
        self.appears_within = min(appears_within, APPEARS_WITHIN)
        self._desk = desk
        self._summaries = summaries
        self._definitions = definitions

    async def owner(self, agenda_id: str, _: Principal) -> Ownership | None:
        """Whose the insight of the agenda is: that one's workers may report on it."""
        handed = self._desk.lease(agenda_id)
        if handed is None:
            summary = await self._summaries.agenda(agenda_id)
            insight_id = summary.insight_id if summary else ""
        else:
            insight_id = handed.insight_id
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
                    await asyncio.sleep(_LOOK_EVERY_S)
        except (TimeoutError, UnavailableError):
            return None

    async def find(self, agenda_id: str, attempt: int, *, surely: bool = False) -> Lease:
        """The attempt, if nothing is known to have outdated it.

        Args:
            agenda_id: Of the agenda.
            attempt: Which the caller holds.
            surely: Ask the summary too, if it can be asked: an end is told once.

        Raises:
            NotFoundError: If nothing is known of the agenda, or of such an attempt.
            LeaseLostError: If a newer attempt is known, or the agenda has ended.
            UnavailableError: If only the database could tell, and it is away.
        """
        until = asyncio.get_running_loop().time() + self.appears_within.total_seconds()
        while True:
            try:
                return await self._find(agenda_id, attempt, surely=surely)
            except NotFoundError:
                # Handed out by another process a moment ago, it is heard of here in a moment.
                if asyncio.get_running_loop().time() >= until:
                    raise
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _find(self, agenda_id: str, attempt: int, *, surely: bool) -> Lease:
        self._expect_current(agenda_id, attempt)
        handed = self._desk.lease(agenda_id)
        summary: Summary | None = None
        if handed is None or handed.attempt != attempt:
            summary = await answer_in_time(self._summaries.agenda(agenda_id))
        elif surely:
            with suppress(UnavailableError):
                summary = await answer_in_time(
                    self._summaries.agenda(agenda_id), within_s=_LOOK_S
                )
        if summary is not None:
            _expect_running(summary, attempt)
        if handed is not None and handed.attempt == attempt:
            appended = summary.appended if summary else ()
            body = bytes(handed.agenda)
            return Lease(agenda_id, handed.insight_id, attempt, handed.lease_ms, body, appended)
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

    def is_current(self, emitted: EmittedAgenda) -> bool:
        """Whether nothing heard here says that another attempt has taken its place."""
        try:
            self._expect_current(emitted.agenda_id, emitted.attempt)
        except LeaseLostError:
            return False
        return True

    def _expect_current(self, agenda_id: str, attempt: int) -> None:
        handed = self._desk.lease(agenda_id)
        if handed is not None and handed.attempt > attempt:
            raise _lost(agenda_id, attempt, f"attempt {handed.attempt} was handed out")
        if self._desk.stop(agenda_id, attempt) == "outdated":
            raise _lost(agenda_id, attempt, "the scheduler counts on it no more")


def _expect_running(summary: Summary, attempt: int) -> None:
    if summary.attempt > attempt:
        reason = f"attempt {summary.attempt} follows it"
        raise _lost(summary.agenda_id, attempt, reason)
    if summary.attempt == attempt and (
        summary.state.is_terminal or summary.state is State.RETRYING
    ):
        raise _lost(summary.agenda_id, attempt, f"it is {summary.state.value}")


def _lost(agenda_id: str, attempt: int, reason: str) -> LeaseLostError:
    return LeaseLostError(
        f"attempt {attempt} of {agenda_id} is not yours any more: {reason}; stop working on it"
    )
