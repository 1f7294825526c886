"""The reader: submits what is committed in an outbox, and removes what was accepted."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import structlog
from msgspec import UNSET, Raw

from pop_stream.api_models.submissions import SubmissionResult
from pop_stream.client import (
    ApiFaultError,
    ApiRateLimitedError,
    ApiRefusedError,
    ApiUnavailableError,
    Client,
)
from pop_stream.clock import wait_until_set
from pop_stream.model.errors import UnavailableError
from pop_stream.model.retry import Backoff
from pop_stream.postgres.submission_outbox import LockedAgendas, OutboxAgenda, SubmissionOutbox
from pop_stream.telemetry.process import OUTBOX_AGES

BATCH_ROWS: Final = 500
BATCH_BYTES: Final = 1024 * 1024
"""About as much is submitted by one request, and one agenda at least."""

LOOK_EVERY_S: Final = 1.0
"""Between two looks while nobody tells of a commit."""

QUOTA_PAUSE_S: Final = 1.0
"""For which a customer's rows are left alone, if the API does not say how long."""

_BACKOFF: Final = Backoff(first_s=0.2, factor=2, most_s=10)
_LATER: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_LONGEST_REASON: Final = 2_000

_log = structlog.get_logger()


@dataclass(slots=True)
class BatchOutcome:
    """What became of the rows of a batch, by position.

    Attributes:
        accepted: They may be removed.
        refused: They can never be submitted as they are; with the reasons.
        paused: Customers to leave alone for so many seconds.
    """

    accepted: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    paused: dict[str, float] = field(default_factory=dict)


class OutboxReader:
    """Empties one outbox; others may help, each a process of its own.

    Args:
        outbox: The table.
        client: Of the API; should not repeat requests itself.
    """

    def __init__(self, outbox: SubmissionOutbox, client: Client) -> None:
        self._outbox = outbox
        self._client = client
        self._paused: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Submit what is committed until `stop`; outages of either side are waited out.

        Raises:
            ApiRefusedError: If the API takes nothing of this caller: its token does not hold.
        """
        failures = 0
        while not stop.is_set():
            try:
                async for _ in self._rounds(stop):
                    failures = 0
            except (UnavailableError, ApiUnavailableError, ApiFaultError) as error:
                failures += 1
                pause_s = _BACKOFF.pause_s(failures, seed="outbox")
                _log.warning("outbox.unavailable", error=str(error), again_after_s=pause_s)
                await wait_until_set(stop, pause_s)

    async def send_batch(self) -> int:
        """Submit one batch, if anything waits; how many rows were removed or refused.

        Until the end of the call they are locked, and only then is their removal committed: a
        reader that dies before leaves them to be submitted again, under the same ids.

        Raises:
            UnavailableError: If the database is away; the rows are as they were.
            ApiError: If the API is, or takes nothing of this caller; likewise.
        """
        now_s = asyncio.get_running_loop().time()
        self._paused = {one: at for one, at in self._paused.items() if at > now_s}
        async with self._outbox.batch(BATCH_ROWS, without=self._paused) as batch:
            if not self._paused:
                OUTBOX_AGES.set("submissions", batch.rows[0].created_at if batch.rows else None)
            if not batch.rows:
                return 0
            outcome = await self._submit(_first_bytes(batch.rows))
            await _settle(batch, outcome)
        for customer_id, pause_s in outcome.paused.items():
            self._paused[customer_id] = now_s + pause_s
        return len(outcome.accepted) + len(outcome.refused)

    async def _rounds(self, stop: asyncio.Event) -> AsyncIterator[int]:
        wake = asyncio.Event()
        async with self._outbox.listening(wake.set) as listener:
            while not stop.is_set() and listener.is_open:
                wake.clear()
                done = await self.send_batch()
                yield done
                if not done:
                    await wait_until_set(wake, LOOK_EVERY_S)

    async def _submit(self, rows: Sequence[OutboxAgenda]) -> BatchOutcome:
        try:
            answer = await self._client.submit_many([Raw(one.agenda) for one in rows])
        except ApiRateLimitedError as error:
            named = error.problem.customer_id if error.problem else UNSET
            over = {one.customer_id for one in rows} if named is UNSET else {named}
            return BatchOutcome(paused=dict.fromkeys(over, error.retry_after_s))
        except ApiRefusedError as error:
            found = error.problem.results if error.problem else UNSET
            if found is UNSET:
                raise
            return _outcome(rows, found)
        return _outcome(rows, answer.results)


def _outcome(rows: Sequence[OutboxAgenda], results: Sequence[SubmissionResult]) -> BatchOutcome:
    outcome = BatchOutcome()
    for row, result in zip(rows, results, strict=True):
        if result.status == HTTPStatus.ACCEPTED:
            outcome.accepted.append(row.position)
        elif result.status in _LATER:
            outcome.paused[row.customer_id] = QUOTA_PAUSE_S
        else:
            outcome.refused[row.position] = _reason(result)
    return outcome


def _reason(result: SubmissionResult) -> str:
    issues = () if result.issues is UNSET else result.issues
    text = "; ".join(map(str, issues)) or f"refused with {result.status}"
    return text[:_LONGEST_REASON]


async def _settle(batch: LockedAgendas, outcome: BatchOutcome) -> None:
    if outcome.accepted:
        await batch.delete(outcome.accepted)
    if outcome.refused:
        await batch.refuse(outcome.refused)
    by_position: Mapping[int, OutboxAgenda] = {one.position: one for one in batch.rows}
    for position, reason in outcome.refused.items():
        _log.error("outbox.refused", agenda_id=by_position[position].agenda_id, reason=reason)


def _first_bytes(rows: Sequence[OutboxAgenda]) -> Sequence[OutboxAgenda]:
    """The first rows that are small enough together, one at least."""
    size = 0
    for count, row in enumerate(rows):
        size += len(row.agenda)
        if count and size > BATCH_BYTES:
            return rows[:count]
    return rows
