"""How an attempt ends without success: why it failed, or what it waits for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pop_stream.model.events.base import Diagnostic
from pop_stream.puller.handlers.errors import OperationError
from pop_stream.puller.reporting.messages import message

_MAX_DIAGNOSTICS: Final = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed.

    Attributes:
        message: Of the operation that failed first, with its name.
        retryable: Whether another attempt may help: nothing failed finally.
        diagnostics: One for each operation that failed, the first ten.
    """

    message: str
    retryable: bool
    diagnostics: tuple[Diagnostic, ...] = ()

    def merged(self, later: "Failure") -> "Failure":
        """This failure, with one that came after it."""
        diagnostics = (*self.diagnostics, *later.diagnostics)[:_MAX_DIAGNOSTICS]
        return Failure(self.message, self.retryable and later.retryable, diagnostics)


@dataclass(frozen=True, slots=True)
class Deferral:
    """An attempt that ends because operations wait for something.

    Attributes:
        until: When the first of them is to be looked at again.
        message: What that one waits for, with its name.
    """

    until: datetime
    message: str


def failure_of(operation: str, error: BaseException, *, at: datetime) -> Failure:
    """What the failure of one operation means for the attempt."""
    reason = reason_of(error)
    diagnostic = Diagnostic(
        message=message(reason), at=at, code=code_of(error), detail={"operation": operation}
    )
    return Failure(
        message(f"operation {operation!r} failed: {reason}"),
        retryable=is_retryable(error),
        diagnostics=(diagnostic,),
    )


def failure_of_ended(state: str) -> Failure | None:
    """How an attempt of an agenda ends that had ended before; None if it had succeeded.

    Reported so that the scheduler, which took an earlier attempt for lost, learns of the end.

    The summary stays as it is: of an agenda that has ended, later attempts change nothing.
    """
    if state == "succeeded":
        return None
    return Failure(f"the agenda had ended before, {state}", retryable=False)


def reason_of(error: BaseException) -> str:
    """Why, in words; a foreign exception's type says more than its text."""
    is_ours = isinstance(error, OperationError)
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def code_of(error: BaseException) -> str:
    """The stable name of ours, or the type of a foreign exception."""
    return error.code if isinstance(error, OperationError) else type(error).__name__


def is_retryable(error: BaseException) -> bool:
    """Whether trying again may help; of a foreign exception it may."""
    return error.retryable if isinstance(error, OperationError) else True


def newest_diagnostics(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """As many of the newest as are kept."""
    return tuple(diagnostics[-_MAX_DIAGNOSTICS:])
