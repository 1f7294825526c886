"""What an HTTP request can be refused with, whatever agenda or definition it is about.

RequestError                the request itself
├─ NotJsonError
├─ SlowBodyError
├─ TooLargeError
├─ MediaTypeError
├─ InvalidError, IdConflictError
└─ NoneAcceptedError
BusyError, NotReadyError    this process, or what it depends on
"""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pop_stream.api_models.submissions import SubmissionResults
from pop_stream.model.errors import IssuesError, PopStreamError, UnavailableError


class RequestError(PopStreamError):
    """The HTTP request cannot be served as it is."""

    code: ClassVar[str] = "bad_request"


class NotJsonError(RequestError):
    """The body is not JSON."""

    code: ClassVar[str] = "not_json"


class SlowBodyError(RequestError):
    """The body did not arrive in time."""

    code: ClassVar[str] = "slow_body"


class MediaTypeError(RequestError):
    """The body is said to be something other than JSON."""

    code: ClassVar[str] = "unsupported_media_type"


class TooLargeError(RequestError):
    """More bytes, or more agendas, than are taken at once.

    Attributes:
        limit: The most that is taken.
    """

    code: ClassVar[str] = "too_large"

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class InvalidError(IssuesError, RequestError):
    """A parameter, or a part of the body, is not what it must be.

    Attributes:
        issues: At least one.
    """

    code: ClassVar[str] = "invalid"


class IdConflictError(IssuesError, RequestError):
    """Something else was accepted under the submission's id.

    Attributes:
        issues: In what it differs.
    """

    code: ClassVar[str] = "id_taken"


class NoneAcceptedError(RequestError):
    """Every agenda of a list was refused; each has its reasons in `results`."""

    code: ClassVar[str] = "none_accepted"

    def __init__(self, results: SubmissionResults) -> None:
        refused = results.refused
        super().__init__(
            f"none of {refused} agendas was accepted; see results"
            if refused
            else "the list holds no agenda"
        )
        self.results = results


class BusyError(UnavailableError):
    """This process holds as much for its clients as it is allowed to."""

    code: ClassVar[str] = "busy"


class NotReadyError(UnavailableError):
    """Parts that the API depends on are away.

    Attributes:
        parts: All of them, by name.
    """

    code: ClassVar[str] = "not_ready"

    def __init__(self, parts: Mapping[str, Literal["ok", "away"]]) -> None:
        away = sorted(name for name, state in parts.items() if state == "away")
        super().__init__(f"away: {', '.join(away)}")
        self.parts = parts


BODY_ERRORS: Final[tuple[type[PopStreamError], ...]] = (
    NotJsonError,
    RequestError,
    SlowBodyError,
    TooLargeError,
    MediaTypeError,
    BusyError,
)
"""What reading a JSON body may be refused with, whatever it says."""
