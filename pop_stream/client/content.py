"""Bodies: what is sent as JSON, and what JSON is read as."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from pydantic import BaseModel

from pop_stream.client.errors import ApiFaultError

T = TypeVar("T")


def decoded(body: bytes | str, model: type[T]) -> T:
    """JSON of an answer, as what it must be.

    Raises:
        ApiFaultError: If it is something else.
    """
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"the answer is not what this API gives: {error}"
        raise ApiFaultError(msg, status=HTTPStatus.OK) from None


def to_json(content: object) -> bytes:
    """Anything as the JSON of a body: JSON text in `msgspec.Raw`, a model, plain containers.

    Raises:
        ValueError: If it holds NaN or infinity, which JSON has not.
        TypeError: If it holds something else that JSON has not.
    """
    if isinstance(content, msgspec.Raw):
        return bytes(content)
    return json.dumps(content, default=_plain, allow_nan=False).encode()


class _HasId(msgspec.Struct):
    id: Any = None


_NAMED: Final = msgspec.json.Decoder(_HasId)


def is_named(content: object) -> bool:
    """Whether what is sent has an id, by which the API knows it when it comes again."""
    if isinstance(content, Mapping):
        return bool(content.get("id"))
    if not isinstance(content, msgspec.Raw):
        return bool(getattr(content, "id", None))
    try:
        return bool(_NAMED.decode(content).id)
    except msgspec.MsgspecError:
        return False  # no agenda; the API says it better


def _plain(value: object) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    return msgspec.to_builtins(value)
