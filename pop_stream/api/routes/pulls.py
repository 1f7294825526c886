"""The routes of workers that pull over HTTP."""

from typing import Final

from pop_stream.api.http.access import Access, Handler
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import READ_ERRORS, QueryParameter, Route, RouteResponse
from pop_stream.api.owners import Owners
from pop_stream.api.pulls.pullers import MAX_CURSOR, MAX_PAGE_SIZE, PullerEndpoints
from pop_stream.api.pulls.pulls import PullEndpoints
from pop_stream.api_models.pulls import (
    Completion,
    Heartbeat,
    ProgressReport,
    PulledAgendas,
    PullerList,
    PullRequest,
    ReportAcknowledgement,
)
from pop_stream.model.errors import (
    LeaseLostError,
    PopStreamError,
    SubmissionError,
    UnavailableError,
)
from pop_stream.model.identity import Role
from pop_stream.model.ids import INSIGHT_ID_LENGTH, TOPIC_SAFE_PATTERN

_ERRORS: Final = (*BODY_ERRORS, InvalidError, *READ_ERRORS)
_ACKNOWLEDGED: Final = RouteResponse("In Kafka; heed `stop`.", (ReportAcknowledgement,))


def puller_route(pullers: PullerEndpoints) -> Route:
    """Who pulls what; for operators, as ids of pullers name hosts."""
    return Route(
        "GET",
        "/v1/pullers",
        pullers.get_list,
        "listPullers",
        "Who pulls what, by insight and id, with the last sign of life",
        (RouteResponse("A page.", (PullerList,)),),
        (InvalidError, UnavailableError),
        query=(
            QueryParameter(
                "insight_id",
                "Of this insight.",
                {
                    "type": "string",
                    "pattern": TOPIC_SAFE_PATTERN,
                    "maxLength": INSIGHT_ID_LENGTH,
                },
            ),
            QueryParameter(
                "after",
                "`next` of the page before.",
                {"type": "string", "maxLength": MAX_CURSOR},
            ),
            QueryParameter(
                "limit",
                "Of a page.",
                {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": 100},
            ),
        ),
        access=Access(role=Role.READ, operators_only=True),
    )


def pull_routes(owners: Owners, pulls: PullEndpoints) -> tuple[Route, ...]:
    """Pull agendas of an insight; renew, report on and end their attempts."""
    pull = Route(
        "POST",
        "/v1/insights/{insight_id}/pull",
        pulls.post_pull,
        "pullAgendas",
        "Claim agendas of an insight to run them, waiting for the first",
        (RouteResponse("Agendas, if there were any in time.", (PulledAgendas,)),),
        _ERRORS,
        body_models=(PullRequest,),
        access=Access(role=Role.PULL, path_object=owners.insight, changes=True),
    )
    return (
        pull,
        _report(
            "heartbeat",
            pulls.post_heartbeat,
            "renewAttempt",
            "A sign of life: the lease of an attempt runs anew",
            Heartbeat,
        ),
        _report(
            "progress",
            pulls.post_progress,
            "reportProgress",
            "Report on operations of an attempt, or append operations to its agenda",
            ProgressReport,
            SubmissionError,
        ),
        _report(
            "complete",
            pulls.post_complete,
            "completeAttempt",
            "Report how an attempt ended",
            Completion,
        ),
    )


def _report(  # what a route has, each once
    what: str,
    handler: Handler,
    name: str,
    summary: str,
    body: type[Heartbeat],
    *errors: type[PopStreamError],
) -> Route:
    return Route(
        "POST",
        f"/v1/agendas/{{agenda_id}}/attempts/{{attempt}}/{what}",
        handler,
        name,
        summary,
        (_ACKNOWLEDGED,),
        (*_ERRORS, LeaseLostError, *errors),
        body_models=(body,),
        access=Access(role=Role.PULL),  # whose the attempt is, its lease token says
    )
