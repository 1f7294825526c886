"""By which errors a handler says whether trying again can help, and how it reads a payload."""

from typing import ClassVar, Final, TypeVar

from pydantic import BaseModel, ValidationError

from pop_stream.model.errors import PopStreamError


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
