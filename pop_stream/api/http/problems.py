"""Errors as RFC 9457 problems: the one place that turns an error into an HTTP code."""

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from pop_stream.api.http.correlation import HEADER, correlation_id
from pop_stream.api.http.errors import (
    BusyError,
    IdConflictError,
    InvalidError,
    MediaTypeError,
    NoneAcceptedError,
    NotReadyError,
    RequestError,
    SlowBodyError,
    TooLargeError,
)
from pop_stream.api_models.problems import Problem
from pop_stream.model.errors import (
    CapacityError,
    CompletionError,
    CompletionLateError,
    DefinitionError,
    DuplicateError,
    ExistsError,
    ForbiddenError,
    InsightFullError,
    InUseError,
    IssuesError,
    KeyStateError,
    LeaseLostError,
    LimitError,
    NotFoundError,
    PopStreamError,
    PreconditionError,
    QueryError,
    QuotaError,
    RateLimitError,
    RecordTooLargeError,
    StateError,
    SubmissionError,
    UnauthenticatedError,
    UnavailableError,
    UnservedError,
    UnstorableError,
)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 2

_BRIEF: Final = 200
_LONG: Final = 2_000

_log = structlog.get_logger()


_STATUS: Final[Mapping[type[PopStreamError], HTTPStatus]] = {
    RequestError: HTTPStatus.BAD_REQUEST,
    SlowBodyError: HTTPStatus.REQUEST_TIMEOUT,
    MediaTypeError: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    InvalidError: HTTPStatus.UNPROCESSABLE_ENTITY,
    NoneAcceptedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    SubmissionError: HTTPStatus.UNPROCESSABLE_ENTITY,
    DefinitionError: HTTPStatus.UNPROCESSABLE_ENTITY,
    QueryError: HTTPStatus.UNPROCESSABLE_ENTITY,
    LimitError: HTTPStatus.CONFLICT,
    RateLimitError: HTTPStatus.TOO_MANY_REQUESTS,
    ExistsError: HTTPStatus.CONFLICT,
    InUseError: HTTPStatus.CONFLICT,
    PreconditionError: HTTPStatus.PRECONDITION_FAILED,
    UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    NotFoundError: HTTPStatus.NOT_FOUND,
    StateError: HTTPStatus.CONFLICT,
    KeyStateError: HTTPStatus.CONFLICT,
    IdConflictError: HTTPStatus.CONFLICT,
    QuotaError: HTTPStatus.TOO_MANY_REQUESTS,
    DuplicateError: HTTPStatus.CONFLICT,
    CapacityError: HTTPStatus.SERVICE_UNAVAILABLE,
    LeaseLostError: HTTPStatus.CONFLICT,
    CompletionError: HTTPStatus.CONFLICT,
    CompletionLateError: HTTPStatus.GONE,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    UnstorableError: HTTPStatus.UNPROCESSABLE_ENTITY,
    RecordTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    PopStreamError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


_WORDS: Final[Mapping[type[PopStreamError], str]] = {
    UnstorableError: "a value of this request is one that no database can hold or look up: a "
    "NUL or half a surrogate pair in a text, or a number or an instant out of range",
    UnavailableError: "Kafka, the database or the scheduler does not answer; the same request "
    "may work later",
    PopStreamError: "the fault is on this side; its correlation_id finds it in the log",
}
"""Of errors whose own words are for the log: a driver's may name hosts and users."""


def status_of(kind: type[PopStreamError]) -> HTTPStatus:
    """The HTTP code that an error of this kind is answered with."""
    return next(_STATUS[parent] for parent in kind.__mro__ if parent in _STATUS)


def from_error(request: web.BaseRequest, error: PopStreamError) -> web.Response:
    """The answer to an error of ours, which is logged by how grave it is."""
    status = status_of(type(error))
    headers: dict[str, str] = {}
    if isinstance(error, UnavailableError | CapacityError):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, QuotaError | RateLimitError | DuplicateError):
        headers["Retry-After"] = str(max(1, ceil(error.retry_after_s)))
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = 'Bearer realm="pop_stream"'
    _log_problem(request, status, error.code, str(error))
    return problem(
        request,
        status=status,
        code=error.code,
        detail=_detail(error),
        headers=headers,
        extensions=_extensions(error),
    )


def from_http(request: web.Request, error: web.HTTPException) -> web.Response:
    """The answer to what aiohttp itself refuses, such as an unknown path or method."""
    status = HTTPStatus(error.status)
    headers: dict[str, str] = {}
    match status:
        case HTTPStatus.NOT_FOUND:
            code, detail = "unknown_path", "nothing is served here; /openapi.json lists it all"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = error.headers.get("Allow", "")
            code = "method_not_allowed"
            detail = f"{request.method} is not served here; use {headers['Allow']}"
        case _:
            code, detail = "bad_request", error.reason
    _log_problem(request, status, code, detail)
    return problem(request, status=status, code=code, detail=detail, headers=headers)


def from_malformed(request: web.BaseRequest, message: str) -> web.Response:
    """The answer to bytes that are no HTTP request; nothing more is read after them."""
    status, code, detail = HTTPStatus.BAD_REQUEST, "malformed_request", _brief(message)
    _log_problem(request, status, code, detail)
    headers = {HEADER: correlation_id(request)}
    response = problem(request, status=status, code=code, detail=detail, headers=headers)
    response.force_close()
    return response


def from_fault(request: web.BaseRequest, error: BaseException) -> web.Response:
    """The answer to a fault of ours: the log has the trace, the client the id to find it."""
    _log.error("request.failed", method=request.method, path=_path(request), exc_info=error)
    return problem(
        request,
        status=HTTPStatus.INTERNAL_SERVER_ERROR,
        code=PopStreamError.code,
        detail="the fault is on this side; its correlation_id finds it in the log",
    )


def problem(
    request: web.BaseRequest,
    *,
    status: HTTPStatus,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    extensions: Mapping[str, Any] | None = None,
) -> web.Response:
    """An answer in `application/problem+json`."""
    body = Problem(
        type=f"urn:pop-stream:problem:{code}",
        title=status.phrase,
        status=status.value,
        detail=detail,
        instance=_path(request),
        code=code,
        correlation_id=correlation_id(request),
        **(extensions or {}),
    )
    return web.Response(
        body=msgspec.json.encode(body),
        status=status.value,
        headers=headers,
        content_type=MEDIA_TYPE,
    )


def _detail(error: PopStreamError) -> str:
    match error:
        case SubmissionError(issues=[issue]):
            return f"the agenda is refused: {issue}"
        case SubmissionError(issues=issues):
            return f"the agenda is refused for {len(issues)} reasons; see issues"
        case NotFoundError(kind="agenda" | "link"):
            return f"{error}; what was accepted just now may take a moment to appear"
        case (
            BusyError()
            | NotReadyError()
            | StateError()
            | KeyStateError()
            | LeaseLostError()
            | CompletionError()
            | DefinitionError()
            | QueryError()
            | ExistsError()
            | LimitError()
            | InUseError()
            | PreconditionError()
            | RecordTooLargeError()
            | RequestError()
            | NotFoundError()
            | UnauthenticatedError()
            | ForbiddenError()
            | UnservedError()
        ):
            return str(error)
        case _:
            return next(words for kind, words in _WORDS.items() if isinstance(error, kind))


def _extensions(error: PopStreamError) -> Mapping[str, Any]:  # noqa: PLR0911  # one for each
    match error:
        case DuplicateError():
            return {"issues": error.issues, "duplicate_of": error.duplicate_of}
        case IssuesError():
            return {"issues": error.issues, **_excess(error)}
        case InUseError():
            return {"used_by": error.used_by}
        case LeaseLostError():
            return {"reason": error.reason, "state": error.state or msgspec.UNSET}
        case TooLargeError() | RecordTooLargeError():
            return {"limit": error.limit or msgspec.UNSET}
        case NotReadyError():
            return {"parts": error.parts}
        case NoneAcceptedError(results=results):
            return {
                "accepted": results.accepted,
                "refused": results.refused,
                "results": results.results,
            }
        case _:
            return {}


def _excess(error: PopStreamError) -> Mapping[str, Any]:
    """What there is too much of, for an error's text."""
    match error:
        case InsightFullError():
            whose = {"insight_id": error.insight_id, "quota": error.quota}
        case QuotaError():
            whose = {"customer_id": error.customer_id, "quota": error.quota}
        case CapacityError():
            whose = {"insight_id": error.insight_id}
        case _:
            return {}
    return {**whose, "limit": error.limit, "present": error.present}


def _log_problem(request: web.BaseRequest, status: HTTPStatus, code: str, reason: str) -> None:
    ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    tell = _log.warning if ours else _log.info
    tell(
        "request.refused",
        method=request.method,
        path=_path(request),
        status=status.value,
        code=code,
        reason=reason[:_LONG],
    )


def _brief(message: str) -> str:
    return " ".join(message.split())[:_BRIEF]


def _path(request: web.BaseRequest) -> str:
    return request.rel_url.raw_path[:_LONG]
