"""What every page has around it or in its place: navigation, notices, errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pop_stream.api_models.keys import CallerView
from pop_stream.client import (
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiRefusedError,
    ApiUnavailableError,
)
from pop_stream.console.numbers import whole_number
from pop_stream.console.rendering import Page
from pop_stream.model.errors import (
    ForbiddenError,
    IssuesError,
    NotFoundError,
    PopStreamError,
    UnavailableError,
)
from pop_stream.model.identity import Role


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A page that the navigation leads to.

    Attributes:
        key: Its keyboard shortcut.
        role: Of a customer's viewer who is shown it; None for no customer.
        operator_role: Of an operator who is.
    """

    path: str
    name: str
    key: str
    role: Role | None = Role.READ
    operator_role: Role = Role.READ

    def is_for(self, caller: CallerView) -> bool:
        """Whether a viewer is shown it."""
        role = self.operator_role if caller.customer_id is None else self.role
        return role in caller.roles


_NAVIGATION: Final = (
    NavigationEntry("/", "Overview", "o"),
    NavigationEntry("/agendas", "Agendas", "a"),
    NavigationEntry("/submit", "Submit", "s", role=Role.SUBMIT, operator_role=Role.SUBMIT),
    NavigationEntry("/definitions/schedules", "Schedules", "e"),
    NavigationEntry("/definitions", "Definitions", "f"),
    NavigationEntry("/dead-letters", "Dead letters", "d"),
    NavigationEntry("/pullers", "Pullers", "p", role=None),
    NavigationEntry("/keys", "Keys", "k", role=Role.OPERATE, operator_role=Role.ADMIN),
    NavigationEntry("/audit", "Audit", "u", role=None, operator_role=Role.ADMIN),
    NavigationEntry("/doctor", "Doctor", "h", role=None, operator_role=Role.ADMIN),
)


def navigation_of(caller: CallerView | None) -> Sequence[NavigationEntry]:
    """What a viewer is led to; nothing before anybody has signed in."""
    return [one for one in _NAVIGATION if caller and one.is_for(caller)]


_ON_ITS_WAY: Final = frozenset({"cancel", "hold", "release", "reprioritise", "rerun", "delete"})
_DONE: Final[Mapping[str, str]] = {
    "redrive": "It is redriven: what it is about is tried again.",
    "discard": "It is discarded.",
    "submit": "Accepted.",
    "weight": "The weight is saved, and acts with the next pick.",
    "pause": "Paused: what waits stays, what is out goes on.",
    "resume": "Resumed.",
    "schedule-pause": "Paused: occurrences are skipped until it is resumed.",
    "schedule-resume": "Resumed.",
    "schedule-trigger": "Triggered: an occurrence for now is on its way.",
    "saved": "Saved; in force within a second.",
    "defined": "Defined; in force within a second.",
    "deleted": "Deleted.",
    "revoke": "The key is revoked; every process refuses it within two seconds.",
}


def notice_of(did: str, count: str) -> str:
    """What a page says of the deed that led there, by what its address says; else nothing."""
    if did in _ON_ITS_WAY:
        many = f" for {count} agendas" if whole_number(count) is not None else ""
        return f"{did.capitalize()} is on its way{many}."
    if did == "schedule-backfill" and whole_number(count) is not None:
        return f"{count} occurrences are on their way."
    return _DONE.get(did, "")


def fault_page(correlation: str) -> Page:
    """The page for a fault of ours, with the id that finds it in the log."""
    values = {
        "detail": "The fault is on this side.",
        "issues": (),
        "correlation_id": correlation,
    }
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return Page("error.html", "This page could not be made", values, status=status)


_STATUS: Final[tuple[tuple[type[PopStreamError], HTTPStatus, str], ...]] = (
    (NotFoundError, HTTPStatus.NOT_FOUND, "Not found"),
    (ApiNotFoundError, HTTPStatus.NOT_FOUND, "Not found"),
    (ForbiddenError, HTTPStatus.FORBIDDEN, "Not allowed"),
    (ApiForbiddenError, HTTPStatus.FORBIDDEN, "Not allowed"),
    (ApiConflictError, HTTPStatus.CONFLICT, "Too late, or changed meanwhile"),
    (IssuesError, HTTPStatus.UNPROCESSABLE_ENTITY, "This cannot be done as it is"),
    (ApiRefusedError, HTTPStatus.UNPROCESSABLE_ENTITY, "This cannot be done as it is"),
    (ApiUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "Not to be had just now"),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "Not to be had just now"),
    (ApiError, HTTPStatus.BAD_GATEWAY, "The API has a fault"),
)


def error_page(error: PopStreamError) -> Page:
    """The page that says what is wrong, in the words of the error."""
    title, status = title_and_status(error)
    values = {
        "detail": str(error),
        "issues": getattr(error, "issues", ()),
        "correlation_id": getattr(error, "correlation_id", None),
    }
    return Page("error.html", title, values, status=status)


def title_and_status(error: PopStreamError) -> tuple[str, HTTPStatus]:
    """What a page that shows an error is called, and its HTTP code."""
    return next(
        ((title, status) for kind, status, title in _STATUS if isinstance(error, kind)),
        ("This cannot be done", HTTPStatus.BAD_REQUEST),
    )
