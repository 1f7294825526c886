"""JSON answers, and how long the API waits for what it depends on."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from pop_stream.api_models.base import ResponseModel
from pop_stream.model.errors import UnavailableError

JSON: Final = "application/json"

_ENCODER: Final = msgspec.json.Encoder()


def encode(model: ResponseModel) -> bytes:
    """The model as JSON."""
    return _ENCODER.encode(model)


def json_response(
    model: ResponseModel, *, status: int, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        body=_ENCODER.encode(model), status=status, headers=headers, content_type=JSON
    )


DEPENDENCY_TIMEOUT_S: Final = 5.0

T = TypeVar("T")


async def with_timeout(awaitable: Awaitable[T], *, within_s: float = DEPENDENCY_TIMEOUT_S) -> T:
    """The result; what takes too long is cancelled, and not waited for any more.

    What hangs in a server that says nothing may take as long again until it has ended.

    Raises:
        UnavailableError: If it does.
    """
    question = asyncio.ensure_future(awaitable)
    question.add_done_callback(_retrieve_exception)
    try:
        answered, _ = await asyncio.wait({question}, timeout=within_s)
    finally:
        question.cancel()
    if not answered:
        msg = f"no answer within {within_s:g} s"
        raise UnavailableError(msg)
    return question.result()


def _retrieve_exception(question: "asyncio.Future[T]") -> None:
    """Retrieve the result: asyncio logs exceptions that nobody retrieves."""
    if not question.cancelled():
        question.exception()
