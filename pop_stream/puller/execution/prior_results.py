"""Reads what earlier attempts of an agenda left, before the next one starts."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
import structlog

from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    OperationState,
    OperationWait,
    PriorProgress,
)
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.policy.lifecycle.states import OUTCOMES
from pop_stream.puller.execution.agenda_run import PriorResults
from pop_stream.puller.execution.api_session import ApiSession, ApiUnusableError
from pop_stream.puller.handlers.errors import OperationError, decided_error
from pop_stream.settings import Settings

MAX_CONCURRENT_READS: Final = 16
"""Most attempts of a puller that ask at a time; the others wait."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0

_log = structlog.get_logger()


class _StoredOperation(msgspec.Struct):
    name: str
    state: OperationState
    message: str = ""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prior: PriorProgress | None = None
    wait: OperationWait | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


class _StoredProgress(msgspec.Struct):
    attempt: int
    state: str
    operations: list[_StoredOperation]
    appended: tuple[AppendedOperation, ...] = ()


class _PriorResultsUnavailableError(Exception):
    """Why it cannot be read now, in words."""


_PROGRESS: Final = msgspec.json.Decoder(_StoredProgress)
_ENDS: Final = frozenset(state.value for state in OUTCOMES)
_NULL: Final = b"null"


class PriorResultsReader:
    """One per puller; its connections are closed with it.

    Args:
        settings: Where the API is, and what token it wants.
    """

    def __init__(self, settings: Settings) -> None:
        self._api = ApiSession(settings, _REMEDIES)
        self._read_slots = asyncio.Semaphore(MAX_CONCURRENT_READS)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def read(
        self, emitted: EmittedAgenda, on_wait: Callable[[str], None]
    ) -> PriorResults:
        """What earlier attempts left; waits for as long as that cannot be known.

        The summary must have reached this attempt: then it has all reports of earlier ones that
        count. It never does if the agenda ended in an earlier attempt of its run.

        Args:
            emitted: The attempt that is to start, its lease held.
            on_wait: Called with a reason, in words, whenever a new one keeps it waiting.
        """
        pause_s, last_reason = _FIRST_PAUSE_S, ""
        while True:
            try:
                async with self._read_slots:
                    return await self._fetch_progress(emitted)
            except _PriorResultsUnavailableError as reason:
                if str(reason) != last_reason:
                    last_reason = str(reason)
                    on_wait(f"waits for the results of earlier attempts: {last_reason}")
                    _log.info(
                        "agenda.resuming", agenda_id=emitted.agenda_id, reason=last_reason
                    )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _fetch_progress(self, emitted: EmittedAgenda) -> PriorResults:
        path = f"/v1/agendas/{emitted.agenda_id}/progress"
        try:
            body = await self._api.request("GET", path)
        except ApiUnusableError as error:
            raise _PriorResultsUnavailableError(str(error)) from error
        return prior_results_from(body, emitted)


def prior_results_from(body: bytes, emitted: EmittedAgenda) -> PriorResults:
    """What a progress document, as the API gives it, says that earlier attempts left.

    Raises:
        _PriorResultsUnavailableError: If it cannot be read, or has not reached the attempt.
    """
    try:
        progress = _PROGRESS.decode(body)
    except msgspec.DecodeError as error:
        msg = f"the API's answer cannot be read: {error}"
        raise _PriorResultsUnavailableError(msg) from error
    if progress.attempt < emitted.attempt:
        # After an earlier run, the summary has yet to learn that there is another.
        if progress.state in _ENDS and 0 < emitted.run_from <= progress.attempt:
            return PriorResults(final_state=progress.state)
        msg = f"the summary is at attempt {progress.attempt}"
        raise _PriorResultsUnavailableError(msg)
    _expect_resolved(progress, emitted)
    succeeded: dict[str, bytes] = {}
    decided: dict[str, OperationError] = {}
    unfinished: dict[str, PriorProgress] = {}
    waits = {one.name: one.wait for one in progress.operations if one.wait is not None}
    for one in progress.operations:
        if one.state == "succeeded":
            result = b"" if one.result is msgspec.UNSET else bytes(one.result)
            succeeded[one.name] = b"" if result == _NULL else result
        elif one.state == "failed" and progress.attempt == emitted.attempt:
            code = one.diagnostics[-1].code if one.diagnostics else ""
            decided[one.name] = decided_error(code, one.message)
        elif one.prior is not None:
            unfinished[one.name] = one.prior
    return PriorResults(succeeded, unfinished, progress.appended, waits=waits, failed=decided)


def _expect_resolved(progress: _StoredProgress, emitted: EmittedAgenda) -> None:
    """Check that the summary has what was decided of operations that waited.

    The scheduler emits the agenda once it knows that; the summary may have it later. What has
    failed by a decision is to begin anew after that, and waits for nothing.
    """
    waiting = {one.name for one in progress.operations if one.state == "waiting" and one.wait}
    if pending := waiting.intersection(emitted.resolved):
        msg = f"the summary does not have yet what operation {min(pending)!r} waited for"
        raise _PriorResultsUnavailableError(msg)


_REMEDIES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: ": set POP_API_TOKEN to a key with the role `read`",
    HTTPStatus.FORBIDDEN: ": give the key in POP_API_TOKEN the role `read`",
    HTTPStatus.NOT_FOUND: ": the summary is not there yet, or the key may not see it",
    HTTPStatus.SERVICE_UNAVAILABLE: ": the database is away",
}
