"""What can go wrong when the API is called, as one tree.

ApiError                     the API did not do what it was asked
├─ ApiRefusedError              resending it unchanged cannot help; `issues` say why
│  ├─ ApiUnauthenticatedError   401: no token, or one that does not hold
│  ├─ ApiForbiddenError         403: the token lacks the role for this
│  ├─ ApiNotFoundError          404: no such object, or none that the caller may see
│  └─ ApiConflictError          409: its state, its id or its use forbids it
│     └─ ApiPreconditionError   412: it is not in the version that was named
├─ ApiRateLimitedError          429: nothing was done; come back after `retry_after_s`
├─ ApiUnavailableError          503: come back after `retry_after_s`
│  └─ ApiUnreachableError       there was no answer
└─ ApiFaultError                a fault on the other side, or an answer that is not the API's
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import ClassVar, Final

import msgspec
from msgspec import UNSET

from pop_stream.api_models.problems import Problem
from pop_stream.api_models.submissions import SubmissionResult
from pop_stream.model.errors import Issue, PopStreamError

BUSY: Final = "busy"
"""The problem of a process that had no room for the request, and did not look at it."""

_MAX_RESULTS: Final = 20
_PROBLEM: Final = msgspec.json.Decoder(Problem)


class ApiError(PopStreamError):
    """The API did not do what it was asked; the text says why, in several lines if need be.

    Attributes:
        status: HTTP code; 0 if there was no answer.
        problem: The RFC 9457 document of the answer; None if it brought none.
    """

    code: ClassVar[str] = "api"

    def __init__(self, text: str, *, status: int = 0, problem: Problem | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem

    @property
    def issues(self) -> tuple[Issue, ...]:
        """What is wrong, by field; none if the problem is of another kind."""
        found = self.problem.issues if self.problem else UNSET
        return () if found is UNSET else found

    @property
    def correlation_id(self) -> str | None:
        """Finds the request in the log of the API."""
        return self.problem.correlation_id if self.problem else None


class ApiRefusedError(ApiError):
    """The request was refused; resending it unchanged cannot help."""

    code = "refused"


class ApiUnauthenticatedError(ApiRefusedError):
    """There was no token, or it does not hold."""

    code = "unauthenticated"


class ApiForbiddenError(ApiRefusedError):
    """The token is known and lacks the role for this."""

    code = "forbidden"


class ApiNotFoundError(ApiRefusedError):
    """There is no such object, or none that the caller may see, or not yet."""

    code = "not_found"


class ApiConflictError(ApiRefusedError):
    """The object's state, id or use forbids it; `problem.code` says which."""

    code = "conflict"


class ApiPreconditionError(ApiConflictError):
    """The object is not in the version that was named, or exists although it must not."""

    code = "precondition_failed"


class ApiRateLimitedError(ApiError):
    """More was asked than the customer may; nothing was done.

    Attributes:
        retry_after_s: When it may work.
    """

    code = "rate_limited"

    def __init__(
        self, text: str, *, status: int, problem: Problem | None, retry_after_s: float
    ) -> None:
        super().__init__(text, status=status, problem=problem)
        self.retry_after_s = retry_after_s


class ApiUnavailableError(ApiError):
    """The API cannot answer now.

    Attributes:
        retry_after_s: When it may work.
        may_be_done: Whether the request may have had its effect all the same.
    """

    code = "unavailable"

    def __init__(
        self,
        text: str,
        *,
        status: int = 0,
        problem: Problem | None = None,
        retry_after_s: float = 0.0,
        may_be_done: bool = True,
    ) -> None:
        super().__init__(text, status=status, problem=problem)
        self.retry_after_s = retry_after_s
        self.may_be_done = may_be_done


class ApiUnreachableError(ApiUnavailableError):
    """No connection, or no answer in time."""

    code = "unreachable"


class ApiFaultError(ApiError):
    """A fault on the other side, or an answer that the API does not give."""

    code = "fault"


_KINDS: Final[dict[int, type[ApiError]]] = {
    HTTPStatus.UNAUTHORIZED: ApiUnauthenticatedError,
    HTTPStatus.FORBIDDEN: ApiForbiddenError,
    HTTPStatus.NOT_FOUND: ApiNotFoundError,
    HTTPStatus.CONFLICT: ApiConflictError,
    HTTPStatus.PRECONDITION_FAILED: ApiPreconditionError,
}


def error_of(status: int, reason: str, body: bytes, retry_after: str | None) -> ApiError:
    """The error that an answer stands for.

    Args:
        status: HTTP code, 300 or above.
        reason: Its phrase.
        body: RFC 9457, or anything.
        retry_after: The header of that name.
    """
    problem = _problem(body)
    text = "\n".join(_lines(status, reason, problem))
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return ApiRateLimitedError(
            text, status=status, problem=problem, retry_after_s=_seconds(retry_after)
        )
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        was_busy = problem is not None and problem.code == BUSY
        return ApiUnavailableError(
            text,
            status=status,
            problem=problem,
            retry_after_s=_seconds(retry_after),
            may_be_done=not was_busy,
        )
    is_refusal = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _KINDS.get(status, ApiRefusedError if is_refusal else ApiFaultError)
    return kind(text, status=status, problem=problem)


def refusal_lines(result: SubmissionResult) -> Iterator[str]:
    """Why one agenda of a list was refused; nothing for one that was accepted."""
    if result.issues:
        yield f"  agenda {result.index} of the list:"
        yield from ("  " + line for line in issue_lines(result.issues))


def issue_lines(issues: Sequence[Issue]) -> Iterator[str]:
    """One line per issue."""
    for issue in issues:
        yield f"  {issue}"


def _lines(status: int, reason: str, problem: Problem | None) -> Iterator[str]:
    if problem is None:
        yield f"the API answered {status} {reason}"
        return
    yield problem.detail
    if problem.issues:
        yield from issue_lines(problem.issues)
    results = problem.results or []
    for result in results[:_MAX_RESULTS]:
        yield from refusal_lines(result)
    if len(results) > _MAX_RESULTS:
        yield f"  and {len(results) - _MAX_RESULTS} more"


def _problem(body: bytes) -> Problem | None:
    try:
        return _PROBLEM.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdecimal() else 1.0
