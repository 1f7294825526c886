"""The routes of schedules and rules beside those of every definition."""

from http import HTTPStatus
from typing import Final, get_args

from pop_stream.api.definitions.schedules import ScheduleEndpoints
from pop_stream.api.http.access import Access, Handler, read_access
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import (
    READ_ERRORS,
    QueryParameter,
    Route,
    RouteResponse,
    repeatable,
)
from pop_stream.api.owners import Owners
from pop_stream.api.submissions.rules import RuleEndpoints
from pop_stream.api_models.rules import RuleProgress, RuleSample, RuleTest
from pop_stream.api_models.schedules import (
    MAX_NEXT,
    MAX_OCCURRENCES,
    Backfill,
    CommandedSchedule,
    NextInstants,
    OccurrenceList,
    OccurrenceSelection,
    ScheduleProgress,
)
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import OccurrenceState

_PATH: Final = "/v1/schedules/{schedule_id}"
_SENT: Final = RouteResponse(
    "On its way to the timekeeper.", (CommandedSchedule,), HTTPStatus.ACCEPTED
)
_NUMBER: Final = QueryParameter(
    "n", "How many.", {"type": "integer", "minimum": 1, "maximum": MAX_NEXT, "default": 5}
)
_INSTANT: Final = {"type": "string", "format": "date-time"}
_OCCURRENCES: Final = (
    repeatable(
        OccurrenceSelection,
        "state",
        "In one of these states: of the last run, or what else became of it.",
        {"enum": [*get_args(OccurrenceState)]},
    ),
    QueryParameter("nominal_from", "At this instant or later.", _INSTANT),
    QueryParameter(
        "nominal_before", "Before this instant; `next` of the page before.", _INSTANT
    ),
    QueryParameter(
        "limit",
        "Occurrences of a page.",
        {"type": "integer", "minimum": 1, "maximum": MAX_OCCURRENCES, "default": 50},
    ),
)


def schedule_routes(owners: Owners, schedules: ScheduleEndpoints) -> tuple[Route, ...]:
    """When a schedule fires next, how far it is, and commands about it."""
    own = Access(role=Role.OPERATE, path_object=owners.defined("schedule"), changes=True)
    return (
        *_reads(owners, schedules),
        _command("trigger", schedules.post_trigger, "Submit an occurrence for now", own),
        _command("resume", schedules.post_resume, "End the pause that failures led to", own),
        Route(
            "POST",
            f"{_PATH}/backfill",
            schedules.post_backfill,
            "backfillSchedule",
            "Submit the occurrences of a range, whatever has been submitted of it",
            (_SENT,),
            (*BODY_ERRORS, *READ_ERRORS, InvalidError),
            body_models=(Backfill,),
            access=own,
        ),
    )


def _reads(owners: Owners, schedules: ScheduleEndpoints) -> tuple[Route, ...]:
    access = read_access(owners.defined("schedule"))
    return (
        Route(
            "GET",
            f"{_PATH}/next",
            schedules.get_next,
            "getScheduleNext",
            "When a schedule fires next, as it is defined now",
            (RouteResponse("The instants.", (NextInstants,)),),
            (*READ_ERRORS, InvalidError),
            query=(_NUMBER,),
            access=access,
        ),
        Route(
            "GET",
            f"{_PATH}/progress",
            schedules.get_progress,
            "getScheduleProgress",
            "How far a schedule has come, and what of it runs or waits",
            (RouteResponse("The progress.", (ScheduleProgress,)),),
            READ_ERRORS,
            access=access,
        ),
        Route(
            "GET",
            f"{_PATH}/occurrences",
            schedules.get_occurrences,
            "listOccurrences",
            "What was due of a schedule, latest first: run, waiting, or skipped and why",
            (RouteResponse("A page.", (OccurrenceList,)),),
            (*READ_ERRORS, InvalidError),
            query=_OCCURRENCES,
            access=access,
        ),
    )


def _command(action: str, handler: Handler, summary: str, access: Access) -> Route:
    return Route(
        "POST",
        f"{_PATH}/{action}",
        handler,
        f"{action}Schedule",
        summary,
        (_SENT,),
        READ_ERRORS,
        access=access,
    )


_RULE: Final = "/v1/rules/{rule_id}"


def rule_routes(owners: Owners, rules: RuleEndpoints) -> tuple[Route, ...]:
    """What became of a rule's records, and what one would lead to."""
    return (
        Route(
            "GET",
            f"{_RULE}/progress",
            rules.get_progress,
            "getRuleProgress",
            "What became of a rule's records, and why nothing is read, if so",
            (RouteResponse("The progress.", (RuleProgress,)),),
            READ_ERRORS,
            access=read_access(owners.defined("rule")),
        ),
        Route(
            "POST",
            f"{_RULE}/test",
            rules.post_test,
            "testRule",
            "Whether a record fits, and exactly what it would lead to; nothing is done",
            (RouteResponse("What it would lead to.", (RuleTest,)),),
            (*BODY_ERRORS, *READ_ERRORS, InvalidError),
            body_models=(RuleSample,),
            access=Access(role=Role.READ, operators_only=True),
        ),
    )
