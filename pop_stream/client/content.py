"""Bodies: what is sent as JSON, and what JSON is taken as."""

import json
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel

from pop_stream.client.errors import FaultError

T = TypeVar("T")


def decoded(body: bytes | str, shape: type[T]) -> T:
    """JSON of an answer, as what it must be.

    Raises:
        FaultError: If it is something else.
    """
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"the answer is not what this API gives: {error}"
        raise FaultError(msg, status=HTTPStatus.OK) from None


def to_json(content: object) -> bytes:
    """Anything as the JSON of a body: JSON text in `msgspec.Raw`, a model, plain containers.

    Raises:
        ValueError: If it holds NaN or infinity, which JSON has not.
        TypeError: If it holds something else that JSON has not.
    """
    if isinstance(content, msgspec.Raw):
        return bytes(content)
    return json.dumps(content, default=_plain, allow_nan=False).encode()


def _plain(value: object) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    return msgspec.to_builtins(value)
