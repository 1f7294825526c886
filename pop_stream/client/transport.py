"""Requests to one API: sent, repeated where that is safe, and their answers judged.

Also server-sent events, as they come over a connection.
"""

import asyncio
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from pop_stream.client.content import decoded
from pop_stream.client.errors import (
    ApiRateLimitedError,
    ApiUnavailableError,
    ApiUnreachableError,
    error_of,
)
from pop_stream.client.tracing import trace_headers
from pop_stream.model.retry import Backoff


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event.

    Attributes:
        id: Of the newest event that had one, this one or an earlier; empty before.
        data: Its lines, joined by line breaks.
    """

    id: str
    data: str


async def read_events(lines: AsyncIterable[bytes]) -> AsyncIterator[ServerEvent]:
    """The events of a stream; comments, and an event that is cut off, are left out.

    Args:
        lines: Of the stream, each with its end.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, 9.2.6.
    """
    last_id, data = "", list[str]()
    async for raw in lines:
        line = raw.decode().rstrip("\r\n")
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
        elif not line and data:
            yield ServerEvent(last_id, "\n".join(data))
            data.clear()


@dataclass(frozen=True, slots=True)
class Retry:
    """How long, and how often, a request that may be sent again is.

    Whatever the API did not look at (429, no connection, no room) is sent again; what it may
    have done (503, a connection that broke, no answer in time) only if doing it twice is the
    same as doing it once.

    Attributes:
        within: From the first try to the beginning of the last.
        backoff: Between two tries, unless the API asks for longer.
    """

    within: timedelta = timedelta(seconds=30)
    backoff: Backoff = field(default=Backoff(first_s=0.2, factor=2, most_s=5, jitter=0.5))


RETRY: Final = Retry()
"""How a client retries by default."""

NO_RETRY: Final = Retry(within=timedelta(0))
"""Every request is sent once."""


Query = Sequence[tuple[str, str]]

JSON: Final = "application/json"

_CONNECT_S: Final = 5.0
_STREAM_IDLE_S: Final = 60.0
"""An event stream says something every fifteen seconds."""

_NEVER_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class _LostAnswerError(Exception):
    """The connection broke after a request was sent; the cause is aiohttp's error."""


_BROKEN: Final = (aiohttp.ClientError, TimeoutError, ConnectionError, _LostAnswerError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request.

    Attributes:
        path: As it goes over the wire.
        is_repeatable: Whether doing it twice is the same as doing it once.
        is_probe: Whether it is sent once, whatever comes of it.
        extra_timeout: How long the API may take for it on purpose, besides the timeout.
    """

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool
    is_probe: bool = False
    extra_timeout: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A success, or 304."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Transport:
    """The connections to one API.

    Args:
        url: Where it listens, without `/v1`.
        token: Key or token to show it; None shows none.
        timeout: For an answer, from the moment the request is sent.
        retry: When a request is sent again.
        headers: Asked before every request for more headers, such as `traceparent`.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        timeout: timedelta,
        retry: Retry,
        headers: Callable[[], Mapping[str, str]],
    ) -> None:
        self.url = url.rstrip("/")
        self._own = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_s = timeout.total_seconds()
        self._retry = retry
        self._more = headers
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Be ready to send."""
        self._session = aiohttp.ClientSession(middlewares=(_send_once,))

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: Call) -> ApiResponse:
        """The answer, of the last try if there were several.

        Raises:
            ApiError: If it is no success, or there is none.
        """
        budget = _RetryBudget(self._retry)
        while True:
            try:
                return await self._once(call)
            except (ApiRateLimitedError, ApiUnavailableError) as error:
                may_be_done = isinstance(error, ApiUnavailableError) and error.may_be_done
                if call.is_probe or (may_be_done and not call.is_repeatable):
                    raise
                if not await budget.waited(error.retry_after_s):
                    raise

    async def read(self, model: type[T], *parts: str, query: Query = ()) -> T:
        """What is at a path.

        Raises:
            ApiError: If it cannot be read.
        """
        call = Call(method="GET", path=path(*parts), query=query, is_repeatable=True)
        return decoded((await self.send(call)).body, model)

    async def post(
        self,
        model: type[T],
        *parts: str,
        is_repeatable: bool,
        query: Query = (),
        body: bytes | None = None,
        extra_timeout: timedelta = timedelta(0),
    ) -> T:
        """What posting something to a path is answered with; for the rest see `Call`.

        Raises:
            ApiError: If the answer is no success, or there is none.
        """
        call = Call(
            method="POST",
            path=path(*parts),
            query=query,
            body=body,
            is_repeatable=is_repeatable,
            extra_timeout=extra_timeout,
        )
        return decoded((await self.send(call)).body, model)

    async def follow(self, *parts: str) -> AsyncGenerator[ServerEvent, None]:
        """The events of a stream, which is taken up again whenever it breaks or ends.

        The first event then is the present state; if it was yielded before, it is left out.

        Raises:
            ApiError: If it cannot be taken up, or not again in time.
        """
        last_id, budget = "", _RetryBudget(self._retry)
        while True:
            failure: ApiRateLimitedError | ApiUnavailableError
            try:
                async with aclosing(self._stream(path(*parts), last_id)) as events:
                    async for event in events:
                        budget = _RetryBudget(self._retry)
                        if not event.id or event.id != last_id:
                            last_id = event.id
                            yield event
                failure = ApiUnavailableError(f"the API at {self.url} ended the stream early")
            except (ApiRateLimitedError, ApiUnavailableError) as error:
                failure = error
            if not await budget.waited(failure.retry_after_s):
                raise failure

    async def _stream(self, address: str, last_id: str) -> AsyncGenerator[ServerEvent, None]:
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_S, sock_read=_STREAM_IDLE_S
        )
        try:
            async with self._opened.get(
                self._address(address), headers=self._headers(headers), timeout=timeout
            ) as response:
                await _expect_success(response)
                async for event in read_events(response.content):
                    yield event
        except _BROKEN as error:
            raise self._unreachable(error) from None

    async def _once(self, call: Call) -> ApiResponse:
        headers = dict(call.headers)
        if call.body is not None:
            headers.setdefault("Content-Type", JSON)
        timeout = aiohttp.ClientTimeout(
            total=self._timeout_s + call.extra_timeout.total_seconds(), sock_connect=_CONNECT_S
        )
        try:
            async with self._opened.request(
                call.method,
                self._address(call.path, call.query),
                data=call.body,
                headers=self._headers(headers),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                await _expect_success(response)
                return ApiResponse(response.status, await response.read(), response.headers)
        except _BROKEN as error:
            raise self._unreachable(error) from None

    @property
    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            msg = "enter the client before using it: async with Client(…) as client"
            raise RuntimeError(msg)
        return self._session

    def _headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return {**self._own, **trace_headers(), **self._more(), **headers}

    def _address(self, place: str, query: Query = ()) -> URL:
        asked = f"?{urlencode(query)}" if query else ""
        return URL(f"{self.url}{place}{asked}", encoded=True)

    def _unreachable(self, error: BaseException) -> ApiUnreachableError:
        if isinstance(error, _LostAnswerError):
            error = error.__cause__ or error
        reason = str(error) or type(error).__name__
        return ApiUnreachableError(
            f"cannot reach the API at {self.url}: {reason}",
            may_be_done=not isinstance(error, _NEVER_SENT),
        )


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a PUT or DELETE whose answer is lost a second time by itself.

    A condition that the first one has met would refuse the second. aiohttp repeats what ends
    with one of these two errors, and nothing else.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if isinstance(error, _NEVER_SENT):
            raise
        raise _LostAnswerError from error


class Calls:
    """Base of those that make requests, by name."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class _RetryBudget:
    """How much longer a request is tried; begins when it is made."""

    def __init__(self, retry: Retry) -> None:
        self._backoff = retry.backoff
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + retry.within.total_seconds()
        self._failures = 0
        self._seed = uuid.uuid4().hex

    async def waited(self, at_least_s: float) -> bool:
        """Wait before another try; False, at once, if there is to be none."""
        self._failures += 1
        pause_s = max(at_least_s, self._backoff.pause_s(self._failures, seed=self._seed))
        if self._now() + pause_s > self._until:
            return False
        await asyncio.sleep(pause_s)
        return True


def pairs(parameters: Mapping[str, Sequence[str] | str]) -> list[tuple[str, str]]:
    """Parameters of a query, one for each value of a name."""
    return [
        (name, value)
        for name, some in parameters.items()
        for value in ([some] if isinstance(some, str) else some)
    ]


def path(*parts: str) -> str:
    """The path `/v1/…` of some parts, each of which may hold any character."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


async def _expect_success(response: aiohttp.ClientResponse) -> None:
    if response.status < HTTPStatus.MULTIPLE_CHOICES:
        return
    if response.status == HTTPStatus.NOT_MODIFIED:
        return
    raise error_of(
        response.status,
        response.reason or "",
        await response.read(),
        response.headers.get("Retry-After"),
    )
