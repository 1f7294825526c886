"""The built-in handler `http`: one request, its answer the result.

Whoever submits an agenda names the address, so only addresses that everyone can reach are
called, and networks that the operator allows; redirects are held to the same, hop by hop.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pop_stream.model.trace import TRACEPARENT
from pop_stream.puller.handlers.errors import FinalError, RetryableError, read_payload
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.reporting.messages import clean, excerpt

if TYPE_CHECKING:
    import aiohttp

    from pop_stream.ssrf_guard import SsrfGuard

BODY_BYTES: Final = 192 * 1024
"""Most of an answer's body that becomes part of the result."""

_RETRYABLE_STATUSES: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_FIRST_ERROR: Final = 400
_FIRST_SERVER_ERROR: Final = 500
_SHOWN_BYTES: Final = 300


HeaderText = Annotated[str, Field(pattern=r"^[^\r\n\x00]*$")]


class HttpPayload(BaseModel):
    """Payload of an `http` operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    method: Annotated[str, Field(pattern=r"^[A-Za-z]+$")] = "GET"
    headers: dict[HeaderText, HeaderText] = Field(default_factory=dict)
    json_body: JsonValue = Field(default=None, alias="json")
    body: str | None = None
    timeout_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 30.0
    expect_status: int | tuple[int, ...] | None = None


class HttpHandler:
    """Shares its connections among all operations, and no cookies.

    Args:
        networks: Internal networks that may be called, as in `10.1.0.0/16`.
    """

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks = networks
        self._guard: SsrfGuard | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __call__(self, operation: OperationCall) -> Mapping[str, Any]:
        """Send the request of the payload; see `HttpPayload`.

        Returns:
            `{status, headers, body}`, with `truncated` if the body was too long. The body
            is an object if the answer is JSON, else text.

        Raises:
            FinalError: If the payload is wrong, or the answer says that the request is.
            RetryableError: If there is no answer in time or the server failed.
        """
        # A fifth of the start of a puller, which may not need it.
        import aiohttp  # noqa: PLC0415

        from pop_stream.ssrf_guard import ForbiddenAddressError, refusal_behind  # noqa: PLC0415

        request = read_payload(HttpPayload, operation.payload)
        _check(request)
        within = aiohttp.ClientTimeout(total=request.timeout_s)
        try:
            session = self._opened(request.url)
            return await _exchange(session, request, within, _trace_headers(operation, request))
        except ForbiddenAddressError:
            raise _forbidden(request) from None
        except TimeoutError:
            msg = f"payload.timeout_s = {request.timeout_s:g}: no answer from {request.url}"
            raise RetryableError(msg) from None
        except (aiohttp.InvalidURL, aiohttp.TooManyRedirects, ValueError) as error:
            msg = f"payload.url = {request.url!r}: {type(error).__name__}: {error}"
            raise FinalError(msg) from None
        except aiohttp.ClientError as error:
            if refusal_behind(error):
                raise _forbidden(request) from None
            msg = f"{request.method} {request.url}: {type(error).__name__}: {error}"
            raise RetryableError(msg) from None

    def _opened(self, url: str) -> "aiohttp.ClientSession":
        """The session, for a URL that does not itself name an internal address."""
        import aiohttp  # noqa: PLC0415

        from pop_stream.ssrf_guard import SsrfGuard, guarded_connector  # noqa: PLC0415

        if self._guard is None:
            self._guard = SsrfGuard(self._networks)
        self._guard.check_url(url)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=guarded_connector(self._guard, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session


def _forbidden(request: HttpPayload) -> FinalError:
    # Without the address: what names of ours stand for is no customer's business.
    msg = (
        f"payload.url = {request.url!r}: is, or leads to, an internal address; an operator may "
        "allow its network to pullers with POP_HTTP_NETWORKS"
    )
    return FinalError(msg)


def _trace_headers(operation: OperationCall, request: HttpPayload) -> Mapping[str, str]:
    """The trace context, unless the payload states one."""
    if operation.trace is None or TRACEPARENT in map(str.lower, request.headers):
        return {}
    return operation.trace.context


async def _exchange(
    session: "aiohttp.ClientSession",
    request: HttpPayload,
    within: "aiohttp.ClientTimeout",
    trace_headers: Mapping[str, str],
) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    if "json_body" in request.model_fields_set:
        content["json"] = request.json_body
    elif request.body is not None:
        content["data"] = request.body.encode()
    async with session.request(
        request.method.upper(),
        request.url,
        headers={**trace_headers, **request.headers},
        timeout=within,
        **content,
    ) as response:
        raw = await _head(response)
    _check_status(request, response.status, raw)
    result: dict[str, Any] = {"status": response.status, "headers": _headers(response)}
    return result | _body(response.content_type, raw)


async def _head(response: "aiohttp.ClientResponse") -> bytes:
    head = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        head += chunk
        if len(head) > BODY_BYTES:
            break
    return bytes(head[: BODY_BYTES + 1])


def _check(request: HttpPayload) -> None:
    parts = urlsplit(request.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = f"payload.url = {request.url!r}: write http:// or https:// and a host"
        raise FinalError(msg)
    if "json_body" in request.model_fields_set and request.body is not None:
        msg = "payload.body: stands beside json; give one of the two"
        raise FinalError(msg)


def _check_status(request: HttpPayload, status: int, raw: bytes) -> None:
    expected = request.expect_status
    if expected is None:
        is_good = status < _FIRST_ERROR
    else:
        is_good = status == expected if isinstance(expected, int) else status in expected
    if is_good:
        return
    shown, _ = excerpt(raw, most_bytes=_SHOWN_BYTES)
    wanted = "" if expected is None else f", expected {expected}"
    msg = f"{request.method} {request.url} answered {status}{wanted}: {shown}"
    if status >= _FIRST_SERVER_ERROR or status in _RETRYABLE_STATUSES:
        raise RetryableError(msg)
    raise FinalError(msg)


def _headers(response: "aiohttp.ClientResponse") -> dict[str, str]:
    return {
        name.lower(): clean(", ".join(response.headers.getall(name)))
        for name in response.headers
    }


def _body(content_type: str, raw: bytes) -> dict[str, Any]:
    is_json = content_type == "application/json" or content_type.endswith("+json")
    if is_json and len(raw) <= BODY_BYTES and b"\\u0000" not in raw:
        try:
            return {"body": msgspec.json.decode(raw)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # then it is text, whatever it says it is
    text, is_cut = excerpt(raw, most_bytes=BODY_BYTES)
    return {"body": text, "truncated": True} if is_cut else {"body": text}
