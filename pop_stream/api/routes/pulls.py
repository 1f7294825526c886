"""The routes of workers that pull over HTTP."""

from typing import Final

from pop_stream.api.http.access import Access
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import READ_ERRORS, Route, RouteResponse
from pop_stream.api.owners import Owners
from pop_stream.api.pulls.pulls import PullEndpoints
from pop_stream.api_models.pulls import (
    Completion,
    Heartbeat,
    ProgressReport,
    PulledAgendas,
    PullRequest,
    ReportAcknowledgement,
)
from pop_stream.model.errors import LeaseLostError, SubmissionError
from pop_stream.model.identity import Role

_ERRORS: Final = (*BODY_ERRORS, InvalidError, *READ_ERRORS)
_ACKNOWLEDGED: Final = RouteResponse("In Kafka; heed `stop`.", (ReportAcknowledgement,))


def pull_routes(owners: Owners, pulls: PullEndpoints) -> tuple[Route, ...]:
    """Pull agendas of an insight; keep, report on and end their attempts."""
    attempts = "/v1/agendas/{agenda_id}/attempts/{attempt}"
    worker = Access(role=Role.PULL)  # whose the attempt is, its lease token tells
    return (
        Route(
            "POST",
            "/v1/insights/{insight_id}/pull",
            pulls.post_pull,
            "pullAgendas",
            "Claim agendas of an insight to run them, waiting for the first",
            (RouteResponse("Agendas, if there were any in time.", (PulledAgendas,)),),
            _ERRORS,
            body_models=(PullRequest,),
            access=Access(role=Role.PULL, subject=owners.insight, changes=True),
        ),
        Route(
            "POST",
            f"{attempts}/heartbeat",
            pulls.post_heartbeat,
            "renewAttempt",
            "A sign of life: the lease of an attempt runs anew",
            (_ACKNOWLEDGED,),
            (*_ERRORS, LeaseLostError),
            body_models=(Heartbeat,),
            access=worker,
        ),
        Route(
            "POST",
            f"{attempts}/progress",
            pulls.post_progress,
            "reportProgress",
            "Report on operations of an attempt, or append operations to its agenda",
            (_ACKNOWLEDGED,),
            (*_ERRORS, LeaseLostError, SubmissionError),
            body_models=(ProgressReport,),
            access=worker,
        ),
        Route(
            "POST",
            f"{attempts}/complete",
            pulls.post_complete,
            "completeAttempt",
            "Tell how an attempt ended",
            (_ACKNOWLEDGED,),
            (*_ERRORS, LeaseLostError),
            body_models=(Completion,),
            access=worker,
        ),
    )
