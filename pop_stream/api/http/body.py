"""A request's body: read with bounds on size, time and memory, and cut into agendas."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from aiohttp import web

from pop_stream.api.http.answers import JSON
from pop_stream.api.http.errors import (
    BusyError,
    MediaTypeError,
    NotJsonError,
    RequestError,
    SlowBodyError,
    TooLargeError,
)
from pop_stream.settings import Settings

SLICE_BYTES: Final = 64 * 1024
"""How much is worked on before other requests get a turn: a few milliseconds."""

MERGE_PATCH: Final = "application/merge-patch+json"
"""RFC 7396."""

_ARRIVES_WITHIN_S: Final = 60.0
_BUFFERED_BODIES: Final = 4
_TOKENS_PER_SLICE: Final = 10_000
_MAX_TOKENS: Final = 2_000_000
"""More commas could be as many items, each an object of its own; more brackets, a body whose
cutting takes longer than anyone should be able to ask for."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},]', re.DOTALL)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANY: Final = msgspec.json.Decoder(msgspec.Raw)


class BodyReader:
    """Reads bodies; what all requests of the process hold at once is bounded."""

    def __init__(self, settings: Settings) -> None:
        self._largest = settings.max_request_bytes
        self._largest_agenda = settings.max_agenda_bytes
        self._held = 0

    @asynccontextmanager
    async def read(
        self, request: web.Request, *, accept: Sequence[str] = (JSON,)
    ) -> AsyncIterator[bytearray]:
        """The whole body, which counts as held until the context is left.

        Args:
            request: Whose body.
            accept: What it may be said to be.

        Raises:
            MediaTypeError: If it is not said to be one of these, in UTF-8.
            TooLargeError: As soon as it is; the rest is not kept.
            SlowBodyError: If it does not arrive in time.
            BusyError: If other requests hold all the memory there is for bodies.
        """
        _expect_type(request, accept)
        if (request.content_length or 0) > self._largest:
            raise _too_large(self._largest, "a request")
        body = bytearray()
        try:
            await self._fill(body, request)
            yield body
        finally:
            self._held -= len(body)

    async def _fill(self, body: bytearray, request: web.Request) -> None:
        try:
            async with asyncio.timeout(_ARRIVES_WITHIN_S):
                async for chunk in request.content.iter_any():
                    body += chunk
                    self._held += len(chunk)
                    self._check(body)
        except TimeoutError:
            msg = f"the body did not arrive within {_ARRIVES_WITHIN_S:g} s"
            raise SlowBodyError(msg) from None
        except (web.RequestPayloadError, ConnectionError) as error:
            msg = f"the body could not be read: {error}"
            raise RequestError(msg) from None

    def _check(self, body: bytearray) -> None:
        if len(body) > self._largest:
            raise _too_large(self._largest, "a request")
        if len(body) > self._largest_agenda and not is_list(body):
            raise _too_large(self._largest_agenda, "an agenda")
        if self._held > self._largest * _BUFFERED_BODIES:
            msg = "too many large requests at once; send this one again"
            raise BusyError(msg)


def is_list(body: bytearray) -> bool:
    """Whether the body can only be a JSON list."""
    return body[:SLICE_BYTES].lstrip()[:1] == b"["


def expect_json(body: bytearray) -> None:
    """Check that the body is JSON of any kind.

    Raises:
        NotJsonError: With the place of the fault.
    """
    try:
        _ANY.decode(body)
        if not body.isascii():
            body.decode()
    except RecursionError:
        return  # sound or not, the agenda's validation will say that it is too deep
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _holds_surrogate(body):
            return
        raise NotJsonError(_not_json(error)) from None


async def split(body: bytearray, most: int) -> Sequence[bytearray | msgspec.Raw]:
    """The items of a JSON list, each as its own text.

    An item that is nested too deeply, or whose text no UTF-8 can hold, costs only itself: it
    is cut out unread, and its own validation refuses it.

    Raises:
        NotJsonError: If the body is not a JSON list.
        TooLargeError: If it has more than `most` items, or too many parts in all.
    """
    if body.count(b",") > _MAX_TOKENS:
        raise _too_dense()
    try:
        items = _LIST.decode(body)
    except RecursionError:
        return await _cut(body, most)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _holds_surrogate(body):
            return await _cut(body, most)
        raise NotJsonError(_not_json(error)) from None
    if len(items) > most:
        raise _too_many(most)
    return items


async def _cut(body: bytearray, most: int) -> list[bytearray]:
    items: list[bytearray] = []
    depth, start, end = 0, 0, 0
    async for match in _tokens(body):
        token = match[0]
        opens, closes = token in b"[{", token in b"]}"
        depth += opens - closes
        if depth == 1 and opens:
            start = match.end()
        elif (depth == 1 and token == b",") or (depth == 0 and closes):
            items.append(body[start : match.start()])
            start = end = match.end()
        if len(items) > most:
            raise _too_many(most)
        if depth <= 0:
            break
    if depth or body[end:].strip():
        msg = "the body is not JSON: its brackets do not match"
        raise NotJsonError(msg)
    return items


async def _tokens(body: bytearray) -> AsyncIterator[re.Match[bytes]]:
    for count, match in enumerate(_TOKEN.finditer(body)):
        if count % _TOKENS_PER_SLICE == 0:
            await asyncio.sleep(0)
        if count > _MAX_TOKENS:
            raise _too_dense()
        yield match


def _expect_type(request: web.Request, accept: Sequence[str]) -> None:
    if request.content_type not in accept:
        msg = f"send {' or '.join(accept)}, not {request.content_type}"
        raise MediaTypeError(msg)
    charset = request.charset
    if charset is not None and charset.lower() not in {"utf-8", "utf8"}:
        msg = f"send UTF-8, not {charset}"
        raise MediaTypeError(msg)


def _holds_surrogate(body: bytearray) -> bool:
    return b"\\ud" in body or b"\\uD" in body


def _not_json(error: Exception) -> str:
    return f"the body is not JSON: {error}"


def _too_large(limit: int, what: str) -> TooLargeError:
    return TooLargeError(f"{what} may hold {limit:,} bytes at most", limit=limit)


def _too_dense() -> TooLargeError:
    msg = f"a list may hold {_MAX_TOKENS:,} commas or brackets at most; send it in parts"
    return TooLargeError(msg, limit=_MAX_TOKENS)


def _too_many(limit: int) -> TooLargeError:
    return TooLargeError(f"a request may hold {limit:,} agendas at most", limit=limit)
