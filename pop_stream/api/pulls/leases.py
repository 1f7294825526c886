"""Who holds an attempt over HTTP: proven by a token, fenced by what became of the attempt."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeVar

from pop_stream.api.http.answers import with_timeout
from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.parameters import id_pattern
from pop_stream.model.errors import (
    Issue,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
    UnservedError,
)
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.identity import Principal, Role, require_access
from pop_stream.model.ids import InsightId
from pop_stream.model.tenancy import candidate_ids
from pop_stream.policy.lease_token import LeaseClaims, LeaseTokens
from pop_stream.policy.lifecycle.states import (
    AttemptStatus,
    State,
    ended_error,
    ended_in_earlier_attempt,
    lease_lost_error,
)
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.deliveries import HttpDeliveries
from pop_stream.ports.publisher import RecordMetadata
from pop_stream.ports.summaries import SummaryReader

_QUERY_TIMEOUT_S: Final = 1.0
_PRIOR_WITHIN_S: Final = 3.0
_FOLDED_WITHIN_S: Final = 3.0
_POLL_INTERVAL_S: Final = 0.1
_MAX_ATTEMPT: Final = 2**31 - 1
_SHOWN: Final = 40
_INSIGHT: Final = "insight"
_ATTEMPT: Final = "attempt"
_FOLDED_WITHIN: Final = timedelta(hours=1)
"""So far behind the rollup may be before what it has no summary of counts as removed."""

T = TypeVar("T")


class LeaseVerifier:
    """Judges who reports on an attempt, and whether the attempt is over.

    The first is in the token alone. The second is asked of the summary, for an attempt may
    have ended without its worker: by another that had it too, or with its agenda. While the
    database is away, only the scheduler's stops count.

    Args:
        tokens: Signs and reads what proves a lease.
        deliveries: Knows which attempts are to stop.
        summaries: Where the newest attempt and the state of an agenda are read.
        definitions: Who owns which insight.
        clock: For how long ago an agenda was accepted.
        retention: How long summaries are kept, from the end of their agendas on, at the least.
    """

    def __init__(  # what it asks, and how long that is to be trusted
        self,
        tokens: LeaseTokens,
        deliveries: HttpDeliveries,
        summaries: SummaryReader,
        definitions: DefinitionSource,
        clock: Clock,
        *,
        retention: timedelta,
    ) -> None:
        self._tokens = tokens
        self._deliveries = deliveries
        self._summaries = summaries
        self._definitions = definitions
        self._clock = clock
        self._retention = max(retention, _FOLDED_WITHIN)

    def expect_insight(self, insight_id: str) -> None:
        """Check that there is such an insight.

        Raises:
            NotFoundError: If there is none.
        """
        if InsightId(insight_id) not in self._definitions.current.insights:
            raise NotFoundError(_INSIGHT, insight_id)

    def sign(self, claims: LeaseClaims) -> str:
        """The token of an attempt that is delivered."""
        return self._tokens.sign(claims)

    def claims(
        self, token: str, agenda_id: str, attempt: str, principal: Principal
    ) -> LeaseClaims:
        """What a report is on, as its token proves.

        Args:
            token: As it came with the report.
            agenda_id: As the path names the agenda.
            attempt: As the path names the attempt.
            principal: Who reports; must be allowed to pull from the attempt's insight.

        Raises:
            NotFoundError: If the path can name no attempt, or it is of another customer's
                insight.
            InvalidError: If the token is none of ours, or of another attempt.
        """
        number = _attempt_number(agenda_id, attempt)
        claims = self._tokens.read(token)
        if claims is None:
            raise _invalid(token, "no lease token of this API; send the one that was pulled")
        if (
            claims.agenda_id not in candidate_ids(agenda_id, principal)
            or claims.attempt != number
        ):
            meant = f"attempt {number} of {agenda_id}"
            raise _invalid(token, f"not of {meant}; send the one that came with it")
        if not principal.is_operator:
            insight = self._definitions.current.insights.get(InsightId(claims.insight_id))
            owner = insight.ownership if insight else None
            named = ("agenda", agenda_id)
            require_access(principal, Role.PULL, owner, named=named, changes=True)
        return claims

    async def check(self, claims: LeaseClaims, *, whole: bool = False) -> Summary | None:
        """Check that nothing is known to have ended an attempt.

        Args:
            claims: Of its token.
            whole: Whether to read the agenda's summary.

        Returns:
            The summary, if it is to be read and can be; None while the database is away, or
            has yet to learn of the attempt.

        Raises:
            LeaseLostError: If a newer attempt is known, or the attempt or its agenda has ended.
        """
        if self.is_outdated(claims):
            why = "the scheduler counts on it no more"
            raise LeaseLostError(claims.agenda_id, claims.attempt, "outdated", why)
        summary: Summary | None = None
        try:
            if whole:
                summary = await self._query(self._summaries.agenda(claims.agenda_id))
                status = AttemptStatus(summary.attempt, summary.state) if summary else None
            else:
                status = await self._query(self._summaries.attempt_status(claims.agenda_id))
            if status is None:
                await self._expect_not_removed(claims)
                return None
        except UnavailableError:
            return None
        if ended_in_earlier_attempt(claims.attempt, claims.run_from, status):
            raise ended_error(claims.agenda_id, claims.attempt, status.state)
        if (error := lease_lost_error(claims.agenda_id, claims.attempt, status)) is not None:
            raise error
        is_there = summary is not None and summary.body and summary.attempt >= claims.attempt
        return summary if is_there else None

    async def summary_past(
        self, claims: LeaseClaims, topic: str, written: Sequence[RecordMetadata]
    ) -> Summary:
        """The attempt's summary once it has all that was written up to these records.

        Raises:
            LeaseLostError: If the attempt is over.
            UnservedError: If it does not come so far within seconds.
        """
        with suppress(TimeoutError, UnavailableError):
            async with asyncio.timeout(_FOLDED_WITHIN_S):
                while True:
                    offsets = await self._query(self._summaries.next_offsets(topic))
                    if all(offsets.get(one.partition, 0) > one.offset for one in written):
                        summary = await self.check(claims, whole=True)
                        if summary is not None:
                            return summary
                    await asyncio.sleep(_POLL_INTERVAL_S)
        msg = (
            "the summary, which tells what operations the agenda has and which of them have "
            "succeeded, lags or cannot be read; send the same report again later"
        )
        raise UnservedError(msg)

    def is_outdated(self, claims: LeaseClaims) -> bool:
        """Whether the scheduler has said that it counts on this attempt no more."""
        stop = self._deliveries.stop_reason(
            claims.agenda_id, claims.attempt, claims.accepted_at
        )
        return stop == "outdated"

    async def ended_in_earlier_attempt(self, claims: LeaseClaims) -> State | None:
        """How the agenda had ended in an earlier attempt of the same run, if it had."""
        if not claims.run_from:
            return None
        status: AttemptStatus | None = None
        with suppress(UnavailableError):
            status = await self._query(self._summaries.attempt_status(claims.agenda_id))
        if status is None:
            return None
        is_over = ended_in_earlier_attempt(claims.attempt, claims.run_from, status)
        return status.state if is_over else None

    async def prior(self, emitted: EmittedAgenda) -> Summary | None:
        """What earlier attempts left; None if the summary does not come to this one soon."""
        try:
            async with asyncio.timeout(_PRIOR_WITHIN_S):
                while True:
                    summary = await self._summaries.agenda(emitted.agenda_id)
                    if summary is not None and _is_whole(summary, emitted):
                        return summary
                    await asyncio.sleep(_POLL_INTERVAL_S)
        except (TimeoutError, UnavailableError):
            return None

    async def _expect_not_removed(self, claims: LeaseClaims) -> None:
        """What has no summary is too new to have one, or has ended and was removed.

        It counts as removed if an agenda was that was accepted no earlier, since the rollup has
        folded past both; and if it was accepted longer ago than summaries are kept.
        """
        reusable = await self._query(self._summaries.reusable_ids([claims.agenda_id]))
        removed_until = reusable.deleted_until
        is_past = removed_until is not None and claims.accepted_at <= removed_until
        if is_past or claims.accepted_at + self._retention < self._clock.now():
            why = "the agenda has ended, and was removed"
            raise LeaseLostError(claims.agenda_id, claims.attempt, "ended", why)

    async def _query(self, question: Awaitable[T]) -> T:
        return await with_timeout(question, within_s=_QUERY_TIMEOUT_S)


def _is_whole(summary: Summary, emitted: EmittedAgenda) -> bool:
    """Whether it has all that attempts before left, and what was decided since."""
    waiting = {
        name for name, one in summary.operations.items() if one.state == "waiting" and one.wait
    }
    return summary.attempt >= emitted.attempt and not waiting.intersection(emitted.resolved)


def _attempt_number(agenda_id: str, attempt: str) -> int:
    """Of an attempt as a path names it.

    Raises:
        NotFoundError: If there can be no such attempt.
    """
    if id_pattern("agenda_id").fits(agenda_id) and id_pattern("attempt").fits(attempt):
        number = int(attempt)
        if 1 <= number <= _MAX_ATTEMPT:
            return number
    raise NotFoundError(_ATTEMPT, f"{agenda_id[:_SHOWN]}/{attempt[:_SHOWN]}")


def _invalid(token: str, remedy: str) -> InvalidError:
    return InvalidError([Issue("lease_token", token[:_SHOWN], remedy)])
