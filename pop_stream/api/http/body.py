"""A request's body: read with bounds on size, time and memory, and cut into agendas."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
from aiohttp import web
from pydantic import BaseModel, ValidationError

from pop_stream.api.http.access import sender_of
from pop_stream.api.http.answers import JSON
from pop_stream.api.http.errors import (
    BusyError,
    InvalidError,
    MediaTypeError,
    NotJsonError,
    RequestError,
    SlowBodyError,
    TooLargeError,
)
from pop_stream.model.errors import SubmissionError
from pop_stream.model.validation import issues_of, without_nul
from pop_stream.settings import Settings

M = TypeVar("M", bound=BaseModel)

SLICE_BYTES: Final = 64 * 1024
"""How much is worked on before other requests get a turn: a few milliseconds."""

MERGE_PATCH: Final = "application/merge-patch+json"
"""RFC 7396."""

_GRACE_S: Final = 10.0
_LEAST_BYTES_PER_S: Final = 64 * 1024
_ARRIVES_WITHIN_S: Final = 60.0
_SMALL_FRACTION: Final = 32
_BUFFERED_BODIES: Final = 4
_TOKENS_PER_SLICE: Final = 10_000
_MAX_TOKENS: Final = 2_000_000
"""More commas could be as many items, each an object of its own; more brackets, a body whose
cutting takes longer than anyone should be able to ask for."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},]', re.DOTALL)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANY: Final = msgspec.json.Decoder(msgspec.Raw)


@dataclass(eq=False, slots=True)
class _Arrival:
    """A body that arrives, or is worked on.

    Attributes:
        of: Whose it is: a customer, an operator's key, or of a sender who need not say that,
            its address.
        largest: So many bytes it may have.
        deadline: By when more of it must come; None once all of it is there.
        counted: Bytes of it that count against what all may hold.
        is_evicted: Whether it made room for another's.
    """

    of: str
    largest: int
    deadline: asyncio.Timeout | None = None
    body: bytearray = field(default_factory=bytearray)
    counted: int = 0
    is_evicted: bool = False


class BodyReader:
    """Reads bodies; there is one in a process, which bounds what all requests hold at once.

    A body must keep up a least rate, so that holding memory costs its sender bandwidth. Small
    ones are always let in. Once all others fill what there is, whoever holds most pays: one
    that still arrives is given up for the one that came last, or that one if it is its own.
    """

    def __init__(self, settings: Settings) -> None:
        self._largest = settings.max_request_bytes
        self._largest_agenda = settings.max_agenda_bytes
        self._small = min(SLICE_BYTES, self._largest // _SMALL_FRACTION)
        self._arrivals: set[_Arrival] = set()
        self._held = 0

    @asynccontextmanager
    async def read(
        self,
        request: web.Request,
        *,
        accept: Sequence[str] = (JSON,),
        largest: int | None = None,
    ) -> AsyncIterator[bytearray]:
        """The whole body, which counts as held until the context is left.

        Args:
            request: Whose body.
            accept: What it may be said to be.
            largest: So many bytes it may have, if fewer than any request.

        Raises:
            MediaTypeError: If it is not said to be one of these, in UTF-8.
            TooLargeError: As soon as it is; the rest is not kept.
            SlowBodyError: If it does not arrive in time.
            BusyError: If there is no room for it, as its sender holds most of what there is.
        """
        _expect_type(request, accept)
        most = min(self._largest, largest or self._largest)
        if (request.content_length or 0) > most:
            raise _too_large(most, "a request")
        arrival = _Arrival(sender_of(request), most)
        self._arrivals.add(arrival)
        try:
            await self._fill(arrival, request)
            yield arrival.body
        finally:
            self._arrivals.discard(arrival)
            self._held -= arrival.counted

    async def read_model(
        self, request: web.Request, shape: type[M], *, largest: int | None = None
    ) -> M:
        """The body as a model; one that is left out is an empty object.

        Args:
            request: Whose body.
            shape: The model.
            largest: So many bytes it may have, if fewer than any request.

        Raises:
            InvalidError: With one issue per field that is not what it must be.
            PopStreamError: Whatever `read` and `expect_json` raise.
        """
        if not request.can_read_body:
            return _validated(shape, b"{}")
        async with self.read(request, largest=largest) as content:
            expect_json(content)
            return _validated(shape, bytes(content))

    async def _fill(self, arrival: _Arrival, request: web.Request) -> None:
        now = asyncio.get_running_loop().time
        started, body, worked = now(), arrival.body, 0
        try:
            async with asyncio.timeout_at(started + _GRACE_S) as arrival.deadline:
                async for chunk in request.content.iter_any():
                    body += chunk
                    self._check(arrival)
                    worked += len(chunk)
                    if worked >= SLICE_BYTES:  # what is decompressed here waits for nothing
                        worked = 0
                        await asyncio.sleep(0)
                    in_time = _GRACE_S + len(body) / _LEAST_BYTES_PER_S
                    arrival.deadline.reschedule(started + min(in_time, _ARRIVES_WITHIN_S))
        except TimeoutError:
            if arrival.is_evicted:
                raise _busy() from None
            msg = (
                f"the body did not arrive in time: {_GRACE_S:g} s, a second more for each "
                f"{_LEAST_BYTES_PER_S:,} bytes, and {_ARRIVES_WITHIN_S:g} s at most"
            )
            raise SlowBodyError(msg) from None
        except (web.RequestPayloadError, ConnectionError) as error:
            msg = f"the body could not be read: {error}"
            raise RequestError(msg) from None
        finally:
            arrival.deadline = None

    def _check(self, arrival: _Arrival) -> None:
        body = arrival.body
        if arrival.is_evicted:  # with a chunk in hand, its deadline would be set anew
            raise _busy()
        if len(body) > arrival.largest:
            raise _too_large(arrival.largest, "a request")
        if len(body) > self._largest_agenda and not is_list(body):
            raise _too_large(self._largest_agenda, "an agenda")
        counted = len(body) if len(body) > self._small else 0
        self._held += counted - arrival.counted
        arrival.counted = counted
        while counted and self._held > self._largest * _BUFFERED_BODIES:
            self._make_room(arrival)

    def _make_room(self, latest: _Arrival) -> None:
        """Give up the largest arriving body of whoever holds most.

        Raises:
            BusyError: If that is the last one's, or there is none that still arrives.
        """
        held: Counter[str] = Counter()
        for one in self._arrivals:
            held[one.of] += one.counted
        most = max(held.values())
        arriving = [
            one
            for one in self._arrivals
            if one.deadline is not None and one.counted and held[one.of] == most
        ]
        largest = max(arriving, key=lambda one: one.counted, default=latest)
        if held[latest.of] == most or largest.deadline is None:
            raise _busy()
        self._held -= largest.counted
        largest.counted, largest.is_evicted = 0, True
        largest.body.clear()
        largest.deadline.reschedule(0)


def _validated(shape: type[M], content: bytes) -> M:
    try:
        return shape.model_validate_json(without_nul(content, document="body"), strict=True)
    except SubmissionError as error:
        raise InvalidError(error.issues) from None
    except ValidationError as error:
        raise InvalidError(issues_of(error, document="body")) from None


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


def _busy() -> BusyError:
    msg = "too many large requests at once, yours among them; send this one again, in parts"
    return BusyError(msg)


def _not_json(error: Exception) -> str:
    return f"the body is not JSON: {error}"


def _too_large(limit: int, what: str) -> TooLargeError:
    return TooLargeError(f"{what} may hold {limit:,} bytes at most", limit=limit)


def _too_dense() -> TooLargeError:
    msg = f"a list may hold {_MAX_TOKENS:,} commas or brackets at most; send it in parts"
    return TooLargeError(msg, limit=_MAX_TOKENS)


def _too_many(limit: int) -> TooLargeError:
    return TooLargeError(f"a request may hold {limit:,} agendas at most", limit=limit)
