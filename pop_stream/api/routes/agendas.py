"""The routes of agendas and links: submit, read, follow, list, and command them."""

from http import HTTPStatus
from typing import Final

from pop_stream.api.agendas.commands import CommandEndpoints
from pop_stream.api.agendas.queries import QueueEndpoints
from pop_stream.api.agendas.reads import AgendaListEndpoints, ProgressEndpoints
from pop_stream.api.agendas.selection import QUERY
from pop_stream.api.agendas.streams import StreamEndpoints
from pop_stream.api.http.access import Access, Handler, read_access
from pop_stream.api.http.errors import (
    BODY_ERRORS,
    BusyError,
    IdConflictError,
    InvalidError,
    NoneAcceptedError,
)
from pop_stream.api.http.route import EVENT_STREAM, READ_ERRORS, Route, RouteResponse
from pop_stream.api.owners import Owners
from pop_stream.api.submissions.submissions import WAIT_FOR_SPACE, SubmissionEndpoints
from pop_stream.api_models.agendas import (
    AgendaProgress,
    AgendaSummary,
    CallbackList,
    LinkView,
    OperationView,
)
from pop_stream.api_models.commands import (
    AgendaList,
    BulkCommand,
    BulkResult,
    CommandRequest,
    CommandResult,
    Reprioritisation,
    Rerun,
    SelectedAgendas,
)
from pop_stream.api_models.queues import WhyView
from pop_stream.api_models.submissions import (
    AcceptedAgenda,
    CloudEvent,
    SubmissionResults,
)
from pop_stream.model.agenda import Agenda
from pop_stream.model.errors import (
    CapacityError,
    DuplicateError,
    ForbiddenError,
    QuotaError,
    RateLimitError,
    StateError,
    SubmissionError,
    UnavailableError,
)
from pop_stream.model.events.lifecycle import Action
from pop_stream.model.identity import Role
from pop_stream.model.template import TEMPLATE_RUN
from pop_stream.policy.ingress.cloud_events import BATCH, STRUCTURED


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
        _callbacks_route(owners, progress),
        _link_route(owners, progress),
        *_streams(owners, streams),
        _why_route(owners, queue_endpoints),
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
            DuplicateError,
            QuotaError,
            CapacityError,
            NoneAcceptedError,
            InvalidError,
            UnavailableError,
        ),
        query=(WAIT_FOR_SPACE,),
        body_models=(Agenda, TEMPLATE_RUN, list[Agenda], list[TEMPLATE_RUN]),  # type: ignore[valid-type]  # made at run time
        submits=True,
        other_bodies={STRUCTURED: CloudEvent, BATCH: list[CloudEvent]},
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
    )


def _callbacks_route(owners: Owners, progress: ProgressEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/agendas/{agenda_id}/callbacks",
        progress.get_callbacks,
        "getAgendaCallbacks",
        "What became of the reports of an agenda's ends: the newest 100",
        (RouteResponse("The callbacks.", (CallbackList,)),),
        READ_ERRORS,
        access=read_access(owners.agenda),
    )


def _link_route(owners: Owners, progress: ProgressEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/links/{link_id}/summary",
        progress.get_link,
        "getLinkSummary",
        "What all agendas with this link id add up to",
        (RouteResponse("The roll-up.", (LinkView,)),),
        READ_ERRORS,
        access=read_access(owners.link),
    )


def _streams(owners: Owners, handlers: StreamEndpoints) -> tuple[Route, ...]:
    over = RouteResponse(
        "Last-Event-ID was the final event: nothing will follow.",
        status=HTTPStatus.NO_CONTENT,
        media_type=None,
    )
    progress = "Events `progress`: AgendaProgress as JSON, now and after every change."
    summary = "Events `summary`: LinkView as JSON, now and after every change."
    errors = (*READ_ERRORS, BusyError, RateLimitError)
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
            access=read_access(owners.agenda, appears_within=handlers.appears_within),
        ),
        Route(
            "GET",
            "/v1/links/{link_id}/events",
            handlers.get_link_events,
            "followLink",
            "Follow what all agendas with this link id add up to",
            (RouteResponse(summary, (LinkView,), media_type=EVENT_STREAM, event="summary"),),
            errors,
            access=read_access(owners.link, appears_within=handlers.appears_within),
        ),
    )


def _why_route(owners: Owners, queue_endpoints: QueueEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/agendas/{agenda_id}/why",
        queue_endpoints.get_why,
        "explainAgenda",
        "Why an agenda waits: its position, its customer's share, and about how long",
        (RouteResponse("The explanation.", (WhyView,)),),
        READ_ERRORS,
        access=read_access(owners.agenda),
    )


_ERRORS: Final = (
    *BODY_ERRORS,
    InvalidError,
)

_DONE: Final = RouteResponse("There was nothing left to do.", (CommandResult,))
_SENT: Final = RouteResponse(
    "On its way to the scheduler; GET shows what comes of it.",
    (CommandResult,),
    HTTPStatus.ACCEPTED,
)

_COMMANDS: Final[tuple[tuple[Action, str], ...]] = (
    ("cancel", "End an agenda: at once while it waits; while it runs, its puller is notified"),
    ("hold", "Let an agenda that waits wait until it is released"),
    ("release", "Let an agenda that was held take its turn"),
    ("reprioritise", "Change where a waiting agenda stands among its customer's own"),
)


def command_routes(
    owners: Owners, commands: CommandEndpoints, lists: AgendaListEndpoints
) -> tuple[Route, ...]:
    """List agendas; cancel, hold, release, reprioritise, rerun and delete them."""
    own = Access(role=Role.OPERATE, path_object=owners.agenda, changes=True)
    return (
        _list_route(lists),
        *(
            _command(action, commands.post(action), summary, own)
            for action, summary in _COMMANDS
        ),
        *_after_the_end(commands, own),
        _bulk_route(commands),
    )


def _list_route(lists: AgendaListEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/agendas",
        lists.get,
        "listAgendas",
        "Agendas that fit a filter, page by page, with their number up to 10,000",
        (RouteResponse("A page.", (AgendaList, SelectedAgendas)),),
        (InvalidError, UnavailableError),
        query=QUERY,
        access=read_access(),
    )


def _after_the_end(commands: CommandEndpoints, own: Access) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/agendas/{agenda_id}/rerun",
            commands.post_rerun,
            "rerunAgenda",
            "Run an agenda that has ended again: all of it, what failed, or chosen operations",
            (_SENT,),
            (*_ERRORS, *READ_ERRORS, StateError),
            body_models=(Rerun,),
            may_be_bare=True,
            access=own,
        ),
        Route(
            "DELETE",
            "/v1/agendas/{agenda_id}",
            commands.delete,
            "deleteAgenda",
            "Remove an agenda that has ended, with all that is known of it",
            (RouteResponse("Removed.", status=HTTPStatus.NO_CONTENT, media_type=None),),
            (*READ_ERRORS, StateError),
            access=own,
        ),
    )


def _bulk_route(commands: CommandEndpoints) -> Route:
    return Route(
        "POST",
        "/v1/commands",
        commands.post_bulk,
        "commandAgendas",
        "One command for all agendas that fit a filter and are in a state for it",
        (
            RouteResponse("What would be done.", (BulkResult,)),
            RouteResponse("On their way.", (BulkResult,), HTTPStatus.ACCEPTED),
        ),
        (*_ERRORS, UnavailableError, RateLimitError),
        body_models=(BulkCommand,),
        access=Access(role=Role.OPERATE),
    )


def _command(action: Action, handler: Handler, summary: str, access: Access) -> Route:
    shape = Reprioritisation if action == "reprioritise" else CommandRequest
    return Route(
        "POST",
        f"/v1/agendas/{{agenda_id}}/{action}",
        handler,
        f"{action}Agenda",
        summary,
        (_DONE, _SENT),
        (*_ERRORS, *READ_ERRORS, StateError),
        body_models=(shape,),
        may_be_bare=action != "reprioritise",
        access=access,
    )
