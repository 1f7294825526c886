"""What workers of task frameworks have in common: a task's payload, and what it raised."""

import json
from typing import Final, TypeVar

import msgspec

from pop_stream.puller import FinalError

P = TypeVar("P", bound=msgspec.Struct)

_TRACEBACK_BYTES: Final = 1_500
"""Kept of a traceback as JSON, from its end; a diagnostic holds 2,000 in all."""


def read_task(payload: object, kind: type[P], *, task_type: str, written_by: str) -> P:
    """The payload of a task's operation, as a handler is given it.

    Args:
        payload: As it came.
        kind: What it is to be.
        task_type: The type of such operations.
        written_by: What writes such payloads, for whoever wrote one by hand.

    Raises:
        FinalError: If it is none.
    """
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        msg = (
            f"payload of an operation of type {task_type!r}: {error}; it is written by "
            f"{written_by}"
        )
        raise FinalError(msg) from None


def error_detail(error: BaseException, traceback: str) -> dict[str, str]:
    """The exception's dotted path, and the end of its traceback."""
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    return {"exception": path, "traceback": _shortened(traceback)}


def _shortened(text: str) -> str:
    while len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) > _TRACEBACK_BYTES:
        text = "…" + text[len(text) // 4 :]
    return text
