"""The routes of agendas and links."""

from http import HTTPStatus

from pop_stream.api.agendas.progress import ProgressEndpoints
from pop_stream.api.agendas.questions import QueueEndpoints
from pop_stream.api.agendas.streams import StreamEndpoints
from pop_stream.api.http.access import Access, read_access
from pop_stream.api.http.errors import (
    BODY_ERRORS,
    BusyError,
    IdConflictError,
    NoneAcceptedError,
)
from pop_stream.api.http.route import EVENT_STREAM, READ_ERRORS, RouteResponse, Route
from pop_stream.api.owners import Owners
from pop_stream.api.submissions.submissions import SubmissionEndpoints
from pop_stream.core.agendas.agenda import Agenda
from pop_stream.core.definitions.template import TEMPLATE_RUN
from pop_stream.core.errors import (
    ForbiddenError,
    CapacityError,
    QuotaError,
    SubmissionError,
    UnavailableError,
)
from pop_stream.core.values.identity import Role
from pop_stream.shapes.agendas import AgendaProgress, AgendaSummary, LinkView, OperationView
from pop_stream.shapes.queues import WhyView
from pop_stream.shapes.submissions import AcceptedAgenda, SubmissionResults


def agenda_routes(
    owners: Owners,
    submissions: SubmissionEndpoints,
    progress: ProgressEndpoints,
    streams: StreamEndpoints,
    queue_endpoints: QueueEndpoints,
) -> tuple[Route, ...]:
    """Submit, read and follow agendas and links."""
    return (
        _submit(submissions),
        *_reads(owners, progress),
        *_streams(owners, streams),
        *_query_routes(owners, queue_endpoints),
    )


def _submit(submissions: SubmissionEndpoints) -> Route:
    one = RouteResponse(
        "Acknowledged by Kafka. One agenda: Location says where to read on. "
        "A list: at least one of it was accepted.",
        (AcceptedAgenda, SubmissionResults),
        HTTPStatus.ACCEPTED,
    )
    return Route(
        "POST",
        "/v1/agendas",
        submissions.post,
        "submitAgendas",
        "Submit an agenda or a template to run, or a list of which each stands or falls alone",
        (one,),
        errors=(
            *BODY_ERRORS,
            SubmissionError,
            ForbiddenError,
            IdConflictError,
            QuotaError,
            CapacityError,
            NoneAcceptedError,
            UnavailableError,
        ),
        body_models=(Agenda, TEMPLATE_RUN, list[Agenda], list[TEMPLATE_RUN]),  # type: ignore[valid-type]  # made at run time
        access=Access(role=Role.SUBMIT),
    )


def _reads(owners: Owners, progress: ProgressEndpoints) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/agendas/{agenda_id}",
            progress.get_agenda,
            "getAgenda",
            "An agenda's summary, and the agenda as accepted",
            (RouteResponse("The summary.", (AgendaSummary,)),),
            READ_ERRORS,
            access=read_access(owners.agenda),
        ),
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/progress",
            progress.get_progress,
            "getAgendaProgress",
            "How far an agenda is, operation by operation",
            (RouteResponse("The progress.", (AgendaProgress,)),),
            READ_ERRORS,
            access=read_access(owners.agenda),
        ),
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/operations/{operation}",
            progress.get_operation,
            "getOperationProgress",
            "How far one operation of an agenda is, with its result",
            (RouteResponse("The operation.", (OperationView,)),),
            READ_ERRORS,
            access=read_access(owners.agenda),
        ),
        Route(
            "GET",
            "/v1/links/{link_id}/summary",
            progress.get_link,
            "getLinkSummary",
            "What all agendas with this link id add up to",
            (RouteResponse("The roll-up.", (LinkView,)),),
            READ_ERRORS,
            access=read_access(owners.link),
        ),
    )


def _streams(owners: Owners, handlers: StreamEndpoints) -> tuple[Route, ...]:
    over = RouteResponse(
        "Last-Event-ID was the final event: nothing will follow.",
        status=HTTPStatus.NO_CONTENT,
        media_type=None,
    )
    progress = "Events `progress`: AgendaProgress as JSON, now and after every change."
    summary = "Events `summary`: LinkView as JSON, now and after every change."
    errors = (*READ_ERRORS, BusyError)
    return (
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/events",
            handlers.get_agenda_events,
            "followAgenda",
            "Follow an agenda's progress until it has ended",
            (
                RouteResponse(
                    progress, (AgendaProgress,), media_type=EVENT_STREAM, event="progress"
                ),
                over,
            ),
            errors,
            access=read_access(owners.agenda, patience=handlers.appears_within),
        ),
        Route(
            "GET",
            "/v1/links/{link_id}/events",
            handlers.get_link_events,
            "followLink",
            "Follow what all agendas with this link id add up to",
            (RouteResponse(summary, (LinkView,), media_type=EVENT_STREAM, event="summary"),),
            errors,
            access=read_access(owners.link, patience=handlers.appears_within),
        ),
    )


def _query_routes(owners: Owners, queue_endpoints: QueueEndpoints) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/why",
            queue_endpoints.get_why,
            "explainAgenda",
            "Why an agenda waits: its position, its customer's share, and about how long",
            (RouteResponse("The explanation.", (WhyView,)),),
            READ_ERRORS,
            access=read_access(owners.agenda),
        ),
    )
