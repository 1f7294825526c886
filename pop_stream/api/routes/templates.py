"""The routes that run templates and explain placement."""

from http import HTTPStatus
from typing import Final

from pop_stream.api.http.access import Access, reading
from pop_stream.api.http.errors import BODY_ERRORS, IdTakenError, InvalidError
from pop_stream.api.http.route import READ_ERRORS, Answer, Route
from pop_stream.api.owners import Owners
from pop_stream.api.submissions.resubmissions import Resubmission, Resubmissions
from pop_stream.api.submissions.template_runs import TemplateRuns
from pop_stream.core.agendas.agenda import Agenda
from pop_stream.core.definitions.template import TEMPLATE_CALL, TEMPLATE_RUN
from pop_stream.core.errors import (
    ForbiddenError,
    FullError,
    NotFoundError,
    QuotaError,
    SubmissionError,
    UnavailableError,
)
from pop_stream.core.values.identity import Role
from pop_stream.shapes.placement import Explained, Preview
from pop_stream.shapes.submissions import AcceptedAgenda, Resubmitted

_ERRORS: Final = (
    *BODY_ERRORS,
    SubmissionError,
    ForbiddenError,
    UnavailableError,
)


def template_routes(
    owners: Owners, runs: TemplateRuns, resubmissions: Resubmissions
) -> tuple[Route, ...]:
    """Run a template, preview a run, explain a placement, try refused agendas again."""
    accepted = Answer(
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
            (*_ERRORS, NotFoundError, IdTakenError, QuotaError, FullError),
            takes=(TEMPLATE_CALL,),
            access=Access(role=Role.SUBMIT, subject=template),
        ),
        Route(
            "POST",
            "/v1/agenda-templates/{template_id}/preview",
            runs.preview,
            "previewTemplate",
            "Show that agenda and where it would go; nothing is submitted",
            (Answer("The agenda.", (Preview,)),),
            (*_ERRORS, NotFoundError),
            takes=(TEMPLATE_CALL,),
            access=reading(template),
        ),
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/explain",
            runs.explain_agenda,
            "explainPlacement",
            "Why an agenda goes where it goes: how each insight fares with it now",
            (Answer("The explanation.", (Explained,)),),
            READ_ERRORS,
            access=reading(owners.agenda),
        ),
        Route(
            "POST",
            "/v1/placement/explain",
            runs.explain,
            "explainPlacementOf",
            "The same for an agenda, or a run of a template, that is not submitted",
            (Answer("The explanation.", (Explained,)),),
            _ERRORS,
            takes=(Agenda, TEMPLATE_RUN),
            access=reading(),
        ),
        Route(
            "POST",
            "/v1/resubmissions",
            resubmissions.post,
            "resubmitAgendas",
            "Submit refused agendas again, those that pass by the definitions in force now",
            (
                Answer("Submitted.", (Resubmitted,), HTTPStatus.ACCEPTED),
                Answer("Only counted.", (Resubmitted,)),
            ),
            (*_ERRORS, InvalidError),
            takes=(Resubmission,),
            may_be_bare=True,
            access=Access(role=Role.OPERATE),
        ),
    )
