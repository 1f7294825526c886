"""Tries an operation as often as it allows, at the point of failure, within one attempt."""

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.core.agendas.agenda import Operation
from pop_stream.core.events import Diagnostic
from pop_stream.core.values.retry import Backoff
from pop_stream.pullers.errors import OperationError, RetryableError
from pop_stream.pullers.failure import code_of, is_retryable, reason_of
from pop_stream.pullers.invocation import AttemptContext, RunContext, invoke
from pop_stream.pullers.messages import brief
from pop_stream.pullers.operation_run import OperationRun
from pop_stream.pullers.results import encode_result

_DEFAULT: Final = Backoff()
_UNLIMITED: Final = nullcontext()

_log = structlog.get_logger()


class RetriesExhaustedError(Exception):
    """The operation failed, and is not tried again in this attempt; its cause says why."""


@dataclass(frozen=True, slots=True)
class OperationRetrier:
    """One per attempt at an agenda.

    Attributes:
        run_context: Shared by all runs of a puller.
        facts: What every handler is told of the attempt.
        is_over: Set once the attempt has failed, so that nothing is tried again.
    """

    run_context: RunContext
    facts: AttemptContext
    is_over: asyncio.Event

    async def execute(self, one: OperationRun) -> bytes:
        """The operation's result as JSON, empty for none; told of as succeeded or failed.

        Raises:
            RetriesExhaustedError: If the last try that is allowed failed.
        """
        clock = self.run_context.clock
        try:
            while not isinstance(outcome := await self._try(one), bytes):
                if not await self._wait_for_retry(one, outcome):
                    one.fail(reason_of(outcome), clock.now())
                    raise RetriesExhaustedError from outcome
                one.try_again()
        except asyncio.CancelledError:
            one.fail("stopped before it ended", clock.now())
            raise
        one.succeed(outcome, clock.now())
        _log.debug(
            "operation.succeeded",
            operation=one.operation.name,
            operation_type=one.operation.type,
            agenda_id=self.facts.agenda_id,
            tries=one.tries,
            took_s=one.worked_s,
        )
        return outcome

    async def _try(self, one: OperationRun) -> bytes | BaseException:
        """The result of one try, or what its handler raised, which may be anything at all."""
        operation = one.operation
        # Only if there is one: an agenda that does little pays for little.
        limit = None if operation.timeout_s is None else asyncio.timeout(operation.timeout_s)
        one.begin()
        try:
            async with limit or _UNLIMITED:
                returned = await invoke(self.run_context, self.facts, one)
            # A handler may take its cancellation for something else, and go on.
            return _too_slow(operation) if _is_over(limit) else encode_result(returned)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return RetryableError("its handler cancelled itself")
        except (Exception, SystemExit) as error:
            return _too_slow(operation) if _is_over(limit) else error
        finally:
            one.pause()

    async def _wait_for_retry(self, one: OperationRun, error: BaseException) -> bool:
        """Take note of a failed try, and wait for the next; whether there is one."""
        operation, at = one.operation, self.run_context.clock.now()
        _log.info(
            "operation.failed",
            operation=operation.name,
            operation_type=operation.type,
            agenda_id=self.facts.agenda_id,
            tries=one.tries,
            reason=reason_of(error),
            exc_info=None if isinstance(error, OperationError) else error,
        )
        if operation.max_attempts == 1:
            return False
        one.note(_failed_try(one, error, at=at))
        if one.tries >= operation.max_attempts or one.is_abandoned or not is_retryable(error):
            return False
        backoff = operation.backoff or _DEFAULT
        pause_s = backoff.pause_s(one.tries, seed=f"{self.facts.agenda_id}/{operation.name}")
        return not await wait_until_set(self.is_over, pause_s)


def _failed_try(one: OperationRun, error: BaseException, *, at: datetime) -> Diagnostic:
    return Diagnostic(
        message=brief(reason_of(error)),
        at=at,
        code=code_of(error),
        detail={"try": one.tries, "max_attempts": one.operation.max_attempts},
    )


def _is_over(limit: asyncio.Timeout | None) -> bool:
    return limit is not None and limit.expired()


def _too_slow(operation: Operation) -> RetryableError:
    return RetryableError(f"timeout_s = {operation.timeout_s:g}: it ran longer")


def _is_cancelled() -> bool:
    """Whether the current task was told to end, rather than its handler ending itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
