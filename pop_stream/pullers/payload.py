"""Reads the payload of an operation into a model, with errors that name field and remedy."""

from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from pop_stream.pullers.errors import FinalError

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
