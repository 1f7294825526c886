"""The routes of workers that pull over HTTP."""

from typing import Final

from pop_stream.api.http.access import Access, Subject
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import READ_ERRORS, Answer, Route
from pop_stream.api.owners import Owners
from pop_stream.api.pulls.pulls import Pulls
from pop_stream.core.errors import LeaseLostError, SubmissionError
from pop_stream.core.values.identity import Role
from pop_stream.shapes.pulls import (
    Completion,
    Heard,
    Heartbeat,
    ProgressReport,
    Pull,
    PulledAgendas,
)

_ERRORS: Final = (*BODY_ERRORS, InvalidError, *READ_ERRORS)
_HEARD: Final = Answer("In Kafka; heed `stop`.", (Heard,))


def pull_routes(owners: Owners, pulls: Pulls) -> tuple[Route, ...]:
    """Pull agendas of an insight; keep, report on and end their attempts."""
    attempts = "/v1/agendas/{agenda_id}/attempts/{attempt}"
    worker = Access(
        role=Role.PULL,
        subject=Subject("agenda", "agenda_id", pulls.leases.owner, is_named_by_customers=True),
        changes=True,
        appears_within=pulls.leases.appears_within,
        when_unsure=pulls.signs.pass_on,
    )
    return (
        Route(
            "POST",
            "/v1/insights/{insight_id}/pull",
            pulls.post_pull,
            "pullAgendas",
            "Claim agendas of an insight to run them, waiting for the first",
            (Answer("Agendas, if there were any in time.", (PulledAgendas,)),),
            _ERRORS,
            takes=(Pull,),
            access=Access(role=Role.PULL, subject=owners.insight, changes=True),
        ),
        Route(
            "POST",
            f"{attempts}/heartbeat",
            pulls.post_heartbeat,
            "renewAttempt",
            "A sign of life: the lease of an attempt runs anew",
            (_HEARD,),
            (*_ERRORS, LeaseLostError),
            takes=(Heartbeat,),
            access=worker,
        ),
        Route(
            "POST",
            f"{attempts}/progress",
            pulls.post_progress,
            "reportProgress",
            "Report on operations of an attempt, or append operations to its agenda",
            (_HEARD,),
            (*_ERRORS, LeaseLostError, SubmissionError),
            takes=(ProgressReport,),
            access=worker,
        ),
        Route(
            "POST",
            f"{attempts}/complete",
            pulls.post_complete,
            "completeAttempt",
            "Tell how an attempt ended",
            (_HEARD,),
            (*_ERRORS, LeaseLostError),
            takes=(Completion,),
            access=worker,
        ),
    )
