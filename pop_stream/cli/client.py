"""An HTTP client of the API, for commands."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

import aiohttp

from pop_stream.cli.errors import CommandError
from pop_stream.settings import Settings

_TIMEOUT: Final = aiohttp.ClientTimeout(total=120, sock_connect=5)
_STREAM_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=90)
_TRY_AGAIN: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_MOST_RESULTS: Final = 20


Json = dict[str, Any]


class ApiError(CommandError):
    """The API refused a request, or could not be reached.

    Attributes:
        status: HTTP code; 0 if there was no answer.
        problem: The answer's RFC 9457 document, empty if it sent none.
        retry_after_s: When trying again may help; None when it cannot.
    """

    code = "api"

    def __init__(
        self,
        text: str,
        *,
        status: int = 0,
        problem: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem or {}
        self.retry_after_s = retry_after_s


class ApiClient:
    """Speaks to one API; use as a context manager.

    Args:
        url: Where it listens, without a path.
        token: Key or token to show it, if it asks.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A client of the API that the settings name, with their token."""
        token = settings.api_token
        return cls(settings.api_url, token.get_secret_value() if token else None)

    async def __aenter__(self) -> Self:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, *path: str, query: Sequence[tuple[str, str]] = ()) -> Json:
        """The JSON at `/v1/<path>`.

        Raises:
            ApiError: If the answer is no success, or there is none.
        """
        asked = f"?{urlencode(query)}" if query else ""
        return await self._call("GET", _path(*path) + asked)

    async def post(self, *path: str, body: Mapping[str, Any]) -> Json:
        """The JSON that posting some to `/v1/<path>` is answered with.

        Raises:
            ApiError: If the answer is no success, or there is none.
        """
        return await self._call("POST", _path(*path), body=json.dumps(body).encode())

    async def write(
        self, method: str, *path: str, body: bytes | None = None, if_match: int | None = None
    ) -> Json:
        """The JSON that a change of what is at `/v1/<path>` is answered with; maybe none.

        Args:
            method: PUT, PATCH, POST or DELETE.
            path: Of the object.
            body: JSON.
            if_match: The version that it must be in.

        Raises:
            ApiError: If the answer is no success, or there is none.
        """
        headers = {"If-Match": f'"{if_match}"'} if if_match is not None else {}
        return await self._call(method, _path(*path), body=body, headers=headers)

    async def submit(self, body: bytes, *, patience: timedelta = timedelta(0)) -> Json:
        """Submit one agenda or a list of them, as JSON.

        Args:
            body: One agenda or a list.
            patience: How long to go on trying while the API is busy or away. Only agendas
                with ids may be sent again: others could run twice.

        Raises:
            ApiError: If nothing was accepted.
        """
        until = asyncio.get_running_loop().time() + patience.total_seconds()
        while True:
            try:
                return await self._call("POST", _path("agendas"), body=body)
            except ApiError as error:
                pause_s = error.retry_after_s
                if pause_s is None or asyncio.get_running_loop().time() + pause_s > until:
                    raise
                await asyncio.sleep(pause_s)

    async def is_ready(self) -> bool:
        """Whether the API answers and says that all it depends on does."""
        try:
            await self._call("GET", "/readyz")
        except ApiError:
            return False
        return True

    async def follow(self, *path: str) -> AsyncIterator[Json]:
        """The JSON of each server-sent event at `/v1/<path>`, until the API ends the stream.

        Raises:
            ApiError: If the answer is no success, or the connection breaks.
        """
        url = self._url + _path(*path)
        headers = {"Accept": "text/event-stream"}
        try:
            async with self._open().get(
                url, headers=headers, timeout=_STREAM_TIMEOUT
            ) as response:
                await self._check(response)
                async for data in _event_data(response.content):
                    yield json.loads(data)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise self._unreachable(error) from None

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        headers = dict(headers or {})
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with self._open().request(
                method, self._url + path, data=body, headers=headers
            ) as response:
                await self._check(response)
                if response.status == HTTPStatus.NO_CONTENT:
                    return {}
                found: Json = await response.json()
                return found
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise self._unreachable(error) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            msg = "enter the client before using it"
            raise RuntimeError(msg)
        return self._session

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.ok:
            return
        problem = await _problem(response)
        retry_after_s = None
        if response.status in _TRY_AGAIN:
            retry_after_s = _seconds(response.headers.get("Retry-After"))
        raise ApiError(
            "\n".join(_lines(response, problem)),
            status=response.status,
            problem=problem,
            retry_after_s=retry_after_s,
        )

    def _unreachable(self, error: BaseException) -> ApiError:
        reason = str(error) or type(error).__name__
        return ApiError(
            f"cannot reach the API at {self._url}: {reason}\n"
            "Start one with `pop-stream dev`, or set POP_API_URL.",
            retry_after_s=1.0,
        )


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdecimal() else 1.0


async def _problem(response: aiohttp.ClientResponse) -> Mapping[str, Any]:
    try:
        problem = json.loads(await response.read())
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _lines(response: aiohttp.ClientResponse, problem: Mapping[str, Any]) -> Iterator[str]:
    yield problem.get("detail") or f"the API answered {response.status} {response.reason}"
    yield from issue_lines(problem)
    results = problem.get("results") or []
    for result in results[:_MOST_RESULTS]:
        yield from refusal_lines(result)
    if len(results) > _MOST_RESULTS:
        yield f"  and {len(results) - _MOST_RESULTS} more"


def refusal_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Why one agenda of a list was refused; nothing for one that was accepted."""
    if result.get("issues"):
        yield f"  agenda {result['index']} of the list:"
        yield from ("  " + line for line in issue_lines(result))


def issue_lines(holder: Mapping[str, Any]) -> Iterator[str]:
    """One line per issue."""
    for issue in holder.get("issues") or ():
        yield f"  {issue['field']} = {issue['value']}: {issue['message']}"


async def _event_data(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    data: list[str] = []
    async for raw in content:
        line = raw.decode().rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data.clear()
