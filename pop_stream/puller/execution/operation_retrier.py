"""Tries one operation as often as it allows, within one attempt, and encodes its result.

A try that fails is repeated at the point of failure, after a pause that grows; the
operations that ended before it do not run again. The attempt keeps its runner meanwhile, so
its customer is charged for the pauses too: who asks for long ones would have runners for free.
"""

import asyncio
import json
import re
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.model.agenda import Operation
from pop_stream.model.events.base import Diagnostic
from pop_stream.model.retry import Backoff
from pop_stream.puller.execution.failure import code_of, is_retryable, reason_of
from pop_stream.puller.execution.operation_run import OperationRun
from pop_stream.puller.handlers.errors import FinalError, NotYet, OperationError, RetryableError
from pop_stream.puller.handlers.invocation import AttemptContext, RunContext, invoke
from pop_stream.puller.reporting.messages import brief

_log = structlog.get_logger()


RESULT_BYTES: Final = 256 * 1024
"""Largest result of one operation, as JSON. Put larger things into a store of your own and
return where they are: events carry results, and every reader pays for them."""


NO_RESULT: Final = b""
"""Stands for null: an operation that returned nothing."""


_ENCODER: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def encode_result(value: object) -> bytes:
    """The result as JSON; empty for None.

    Raises:
        FinalError: If JSON cannot say it or it is too large, with the reason and a remedy.
    """
    if value is None:
        return NO_RESULT
    try:
        text = _ENCODER.encode(value)
        encoded = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it holds NaN or Infinity" if "Out of range" in str(error) else error
        msg = (
            f"the result, a {type(value).__name__}, is not JSON: {reason}; return objects, "
            "lists, text, finite numbers, booleans and null only"
        )
        raise FinalError(msg) from error
    if len(encoded) > RESULT_BYTES:
        msg = (
            f"the result has {len(encoded)} bytes, at most {RESULT_BYTES} are allowed; "
            "store it elsewhere and return where it is"
        )
        raise FinalError(msg)
    if "\\u0000" in text and _NUL.search(text):
        msg = "the result holds a NUL character, which no database text can; leave it out"
        raise FinalError(msg)
    return encoded


_DEFAULT: Final = Backoff()


_UNLIMITED: Final = nullcontext()


class RetriesExhaustedError(Exception):
    """The operation failed, and is not tried again in this attempt; its cause says why."""


@dataclass(frozen=True, slots=True)
class OperationRetrier:
    """One per attempt at an agenda.

    Attributes:
        run_context: Shared by all runs of a puller.
        attempt_context: What every handler is given of the attempt.
        is_over: Set once the attempt has failed, so that nothing is tried again.
    """

    run_context: RunContext
    attempt_context: AttemptContext
    is_over: asyncio.Event

    async def execute(self, one: OperationRun) -> bytes:
        """Try until one try succeeds, and mark the operation as succeeded or failed.

        Returns:
            The operation's result as JSON, empty for none.

        Raises:
            RetriesExhaustedError: If the last try that is allowed failed.
            NotYet: If it has to wait; it is marked as neither then.
        """
        clock = self.run_context.clock
        try:
            while not isinstance(outcome := await self._try(one), bytes):
                if isinstance(outcome, NotYet):
                    raise outcome
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
            agenda_id=self.attempt_context.agenda_id,
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
                returned = await invoke(self.run_context, self.attempt_context, one)
            # A handler may swallow its cancellation and return as if nothing was.
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
            agenda_id=self.attempt_context.agenda_id,
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
        pause_s = backoff.pause_s(
            one.tries, seed=f"{self.attempt_context.agenda_id}/{operation.name}"
        )
        one.begin()
        try:
            return not await wait_until_set(self.is_over, pause_s)
        finally:
            one.pause()


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
    """Whether the current task is cancelled, rather than its handler cancelling itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
