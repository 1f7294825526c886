"""How a handler says whether trying again can help."""

from typing import ClassVar

from pop_stream.core.errors import PopStreamError


class OperationError(PopStreamError):
    """An operation failed; raise one of the two below."""

    code: ClassVar[str] = "operation_failed"
    retryable: ClassVar[bool] = True


class RetryableError(OperationError):
    """Trying again may help: a service is away, a lock is taken.

    Any other exception that leaves a handler counts as this one; raising it keeps the
    traceback out of the log.
    """

    code: ClassVar[str] = "operation_retryable"


class FinalError(OperationError):
    """Trying again cannot help: the payload is wrong, the thing asked for does not exist."""

    code: ClassVar[str] = "operation_final"
    retryable: ClassVar[bool] = False
