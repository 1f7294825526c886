"""How a handler says that it failed or has to wait, and how it reads a payload."""

from math import isnan
from typing import ClassVar, Final, TypeVar

from pydantic import BaseModel, ValidationError

from pop_stream.model.errors import PopStreamError
from pop_stream.model.events.base import WaitKind
from pop_stream.model.retry import MAX_DEFERRAL_S
from pop_stream.model.signal import (
    HAND_OVER_TIMED_OUT,
    OPERATION_FINAL,
    OPERATION_RETRYABLE,
)


class OperationError(PopStreamError):
    """An operation failed; raise one of the two below."""

    code: ClassVar[str] = "operation_failed"
    retryable: ClassVar[bool] = True


class RetryableError(OperationError):
    """Trying again may help: a service is away, a lock is taken.

    Any other exception that leaves a handler counts as this one; raising it keeps the
    traceback out of the log.
    """

    code: ClassVar[str] = OPERATION_RETRYABLE


class FinalError(OperationError):
    """Trying again cannot help: the payload is wrong, the thing asked for does not exist."""

    code: ClassVar[str] = OPERATION_FINAL
    retryable: ClassVar[bool] = False


class WaitTimedOutError(FinalError):
    """What the operation waited for did not come in time."""

    code: ClassVar[str] = "wait_timed_out"


class RejectedError(FinalError):
    """A person said no."""

    code: ClassVar[str] = "rejected"


class HandOverTimedOutError(RetryableError):
    """Nobody completed in time what was handed over; another attempt hands it over anew."""

    code: ClassVar[str] = HAND_OVER_TIMED_OUT


def decided_error(code: str, reason: str) -> OperationError:
    """Why an operation failed that was decided outside, by the code of that decision."""
    kinds = (RetryableError, FinalError, HandOverTimedOutError)
    return {kind.code: kind for kind in kinds}.get(code, RejectedError)(reason)


class NotYet(Exception):  # noqa: N818  # nothing has failed
    """What the operation needs is not there yet: look again later.

    The attempt ends without failing and gives its runner back. From `recheck_s` on the
    scheduler starts another, which does not count against the agenda's attempts; operations
    that succeeded are not run again, and this one is called anew. Operations that do not depend
    on it run to their end first. It fails finally once it has waited for `wait_within_s` of the
    operation, else of the agenda, else a week.

    Args:
        recheck_s: Seconds until the next look, 1 to 31,622,400; what is outside is brought
            inside.
        reason: What is waited for, for people.
        kind: For the built-in types.
        signal: Likewise.

    Raises:
        ValueError: If `recheck_s` is no number.
    """

    def __init__(
        self,
        recheck_s: float = 60.0,
        reason: str = "",
        *,
        kind: WaitKind = "check",
        signal: str = "",
    ) -> None:
        super().__init__(reason)
        self.recheck_s = float(recheck_s)
        if isnan(self.recheck_s):
            msg = f"recheck_s = {recheck_s!r}: give the seconds until the next look"
            raise ValueError(msg)
        self.reason = reason
        self.kind = kind
        self.signal = signal


class CompletedElsewhere(NotYet):
    """The operation is completed by whoever has the token, from outside, and not here.

    The attempt ends without failing and gives its runner back, as with `NotYet`; the handler is
    not called again while the token may still be used. Give it to whoever completes the
    operation before you raise this.

    Args:
        token: The last one that this call made: `await operation.completion_token()`.
        reason: What is waited for, for people.
    """

    def __init__(self, token: str, reason: str = "") -> None:
        super().__init__(MAX_DEFERRAL_S, reason, kind="completion")
        self.token = token


M = TypeVar("M", bound=BaseModel)

_SHOWN: Final = 100


def read_payload(model: type[M], payload: object) -> M:
    """The payload as a model.

    Raises:
        FinalError: With the first wrong field, its value and what would be right.
    """
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(["payload", *map(str, fault["loc"])])
        known = ", ".join(one.alias or name for name, one in model.model_fields.items())
        msg = f"{field} = {_short(fault['input'])}: {fault['msg']}; fields are {known}"
        raise FinalError(msg) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
