"""Calls of workers without Kafka: pull agendas, keep, report on and end their attempts."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol

from pop_stream.api_models.pulls import (
    DiagnosticReport,
    OperationReport,
    PulledAgenda,
    PulledAgendas,
    PullerList,
    PullerView,
    ReportAcknowledgement,
    WaitReport,
)
from pop_stream.client.content import to_json
from pop_stream.client.transport import Calls

Report = OperationReport | Mapping[str, Any]
"""How far an operation is, or that as JSON has it."""


class AttemptRef(Protocol):
    """What is reported on; a pulled agenda is one."""

    @property
    def agenda_id(self) -> str:
        """Of the agenda."""
        ...

    @property
    def attempt(self) -> int:
        """Its number."""
        ...

    @property
    def lease_token(self) -> str:
        """What proves that the caller holds it, as it came with the agenda."""
        ...


class PullCalls(Calls):
    """Pull agendas, and report on them."""

    async def pullers(self, *, insight_id: str | None = None) -> AsyncIterator[PullerView]:
        """Who pulls what, by insight and id, with the last sign of life; for operators.

        Args:
            insight_id: Only in this insight.

        Raises:
            ApiError: If there is no answer.
        """
        after: str | None = None
        while True:
            page = await self.puller_page(insight_id=insight_id, after=after)
            for one in page.pullers:
                yield one
            after = page.next
            if after is None:
                return

    async def puller_page(
        self, *, insight_id: str | None = None, limit: int = 500, after: str | None = None
    ) -> PullerList:
        """One page of these.

        Args:
            insight_id: Only in this insight.
            limit: 1 to 500.
            after: `next` of the page before.

        Raises:
            ApiError: If there is no answer.
        """
        query = [("limit", str(limit))]
        query += [("insight_id", insight_id)] if insight_id else []
        query += [("after", after)] if after else []
        return await self._transport.read(PullerList, "pullers", query=query)

    async def pull(
        self,
        insight_id: str,
        puller_id: str,
        *,
        count: int = 1,
        wait: timedelta = timedelta(seconds=20),
    ) -> list[PulledAgenda]:
        """Claim agendas to run them, waiting for the first.

        It is not sent again if the answer is lost: what was claimed then comes back when its
        lease ends.

        Args:
            insight_id: Of which insight.
            puller_id: Who will run them; shown with each.
            count: At most so many, 1 to 100; never more than are begun at once.
            wait: How long to wait for the first, at most a minute.

        Returns:
            None if the wait ended before there was one.

        Raises:
            NotFoundError: If there is no such insight of the caller's own.
            ApiError: If there is no answer.
        """
        wish = {"puller_id": puller_id, "count": count, "wait_s": wait.total_seconds()}
        pulled = await self._transport.post(
            PulledAgendas,
            "insights",
            insight_id,
            "pull",
            body=to_json(wish),
            is_repeatable=False,
            extra_timeout=wait,
        )
        return pulled.agendas

    async def heartbeat(self, attempt: AttemptRef, puller_id: str) -> ReportAcknowledgement:
        """Give a sign of life: the lease of the attempt runs anew.

        Raises:
            ApiConflictError: If the lease is lost: stop, and report nothing more.
            ApiError: If there is no answer.
        """
        return await self._send_report(attempt, "heartbeat", {"puller_id": puller_id})

    async def report(
        self, attempt: AttemptRef, puller_id: str, operations: Sequence[Report]
    ) -> ReportAcknowledgement:
        """Report on operations; a sign of life too.

        Raises:
            ApiConflictError: If the lease is lost: stop, and report nothing more.
            ApiRefusedError: If a report is not sound; nothing was recorded.
            ApiError: If there is no answer.
        """
        content = {"puller_id": puller_id, "operations": operations}
        return await self._send_report(attempt, "progress", content)

    async def append(
        self,
        attempt: AttemptRef,
        puller_id: str,
        *,
        by: str,
        operations: Sequence[Mapping[str, Any]],
    ) -> ReportAcknowledgement:
        """Add operations to the agenda; those that it has already are left out.

        Args:
            attempt: At the agenda.
            puller_id: Who runs it.
            by: Name of the operation that makes them; without it, they go too.
            operations: As in an agenda.

        Raises:
            ApiConflictError: If the lease is lost: stop, and report nothing more.
            ApiRefusedError: If one is not sound; nothing was recorded.
            ApiError: If there is no answer.
        """
        content = {"puller_id": puller_id, "append": {"by": by, "operations": operations}}
        return await self._send_report(attempt, "progress", content)

    async def complete(  # noqa: PLR0913  # what an end can bring, each by its name
        self,
        attempt: AttemptRef,
        puller_id: str,
        outcome: Literal["succeeded", "failed", "stopped", "not_yet"],
        *,
        message: str = "",
        retryable: bool = True,
        operations: Sequence[Report] = (),
        diagnostics: Sequence[DiagnosticReport] = (),
        spent_s: Mapping[str, float] | None = None,
        waits: Sequence[WaitReport] = (),
    ) -> ReportAcknowledgement:
        """Report how the attempt ended.

        A try whose answer was lost may have been recorded; the next is then answered with
        `ApiConflictError`, if the agenda is known to have ended by then.

        Args:
            attempt: At the agenda.
            puller_id: Who ran it.
            outcome: `stopped` answers a wanted stop; `not_yet` says that operations wait.
            message: Of a failure: why.
            retryable: Of a failure: whether another attempt may help.
            operations: How far they came.
            diagnostics: What a person may want to know.
            spent_s: Worker-seconds by operation type; the estimate stands without.
            waits: With `not_yet`: which operations wait, for what, and until when. Another
                attempt follows that does not count.

        Raises:
            ApiConflictError: If the lease is lost, or has ended.
            ApiRefusedError: If a report is not sound; nothing was recorded.
            ApiError: If there is no answer.
        """
        content = {
            "puller_id": puller_id,
            "outcome": outcome,
            "message": message,
            "retryable": retryable,
            "operations": operations,
            "diagnostics": diagnostics,
            "spent_s": spent_s or {},
            "waits": waits,
        }
        return await self._send_report(attempt, "complete", content)

    async def _send_report(
        self, attempt: AttemptRef, what: str, content: Mapping[str, Any]
    ) -> ReportAcknowledgement:
        return await self._transport.post(
            ReportAcknowledgement,
            "agendas",
            attempt.agenda_id,
            "attempts",
            str(attempt.attempt),
            what,
            body=to_json({**content, "lease_token": attempt.lease_token}),
            is_repeatable=True,
        )
