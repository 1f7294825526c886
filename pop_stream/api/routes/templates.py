"""The routes that run templates and explain placement."""

from http import HTTPStatus
from typing import Final

from pop_stream.api.http.access import Access, read_access
from pop_stream.api.http.errors import BODY_ERRORS, IdConflictError, InvalidError
from pop_stream.api.http.route import READ_ERRORS, RouteResponse, Route
from pop_stream.api.owners import Owners
from pop_stream.api.submissions.resubmissions import Resubmission, ResubmissionEndpoints
from pop_stream.api.submissions.template_runs import TemplateRunEndpoints
from pop_stream.core.agendas.agenda import Agenda
from pop_stream.core.definitions.template import TEMPLATE_CALL, TEMPLATE_RUN
from pop_stream.core.errors import (
    ForbiddenError,
    CapacityError,
    NotFoundError,
    QuotaError,
    SubmissionError,
    UnavailableError,
)
from pop_stream.core.values.identity import Role
from pop_stream.shapes.placement import RouteExplanation, Preview
from pop_stream.shapes.submissions import AcceptedAgenda, Resubmitted

_RUN_ERRORS: Final = (
    *BODY_ERRORS,
    SubmissionError,
    ForbiddenError,
    UnavailableError,
)


def template_routes(
    owners: Owners, runs: TemplateRunEndpoints, resubmissions: ResubmissionEndpoints
) -> tuple[Route, ...]:
    """Run a template, preview a run, explain a placement, try refused agendas again."""
    accepted = RouteResponse(
        "Acknowledged by Kafka; Location says where to read on.",
        (AcceptedAgenda,),
        HTTPStatus.ACCEPTED,
    )
    template = owners.defined("template")
    return (
        Route(
            "POST",
            "/v1/agenda-templates/{template_id}/run",
            runs.run,
            "runTemplate",
            "Submit the agenda that a template makes of a payload and parameters",
            (accepted,),
            (*_RUN_ERRORS, NotFoundError, IdConflictError, QuotaError, CapacityError),
            body_models=(TEMPLATE_CALL,),
            access=Access(role=Role.SUBMIT, subject=template),
        ),
        Route(
            "POST",
            "/v1/agenda-templates/{template_id}/preview",
            runs.preview,
            "previewTemplate",
            "Show that agenda and where it would go; nothing is submitted",
            (RouteResponse("The agenda.", (Preview,)),),
            (*_RUN_ERRORS, NotFoundError),
            body_models=(TEMPLATE_CALL,),
            access=read_access(template),
        ),
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/explain",
            runs.explain_agenda,
            "explainPlacement",
            "Why an agenda goes where it goes: how each insight fares with it now",
            (RouteResponse("The explanation.", (RouteExplanation,)),),
            READ_ERRORS,
            access=read_access(owners.agenda),
        ),
        Route(
            "POST",
            "/v1/placement/explain",
            runs.explain,
            "explainPlacementOf",
            "The same for an agenda, or a run of a template, that is not submitted",
            (RouteResponse("The explanation.", (RouteExplanation,)),),
            _RUN_ERRORS,
            body_models=(Agenda, TEMPLATE_RUN),
            access=read_access(),
        ),
        Route(
            "POST",
            "/v1/resubmissions",
            resubmissions.post,
            "resubmitAgendas",
            "Submit refused agendas again, those that pass by the definitions in force now",
            (
                RouteResponse("Submitted.", (Resubmitted,), HTTPStatus.ACCEPTED),
                RouteResponse("Only counted.", (Resubmitted,)),
            ),
            (*_RUN_ERRORS, InvalidError),
            body_models=(Resubmission,),
            may_be_bare=True,
            access=Access(role=Role.OPERATE),
        ),
    )
