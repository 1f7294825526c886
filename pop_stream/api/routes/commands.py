"""The routes of lists of agendas, and of what is wanted of agendas."""

from http import HTTPStatus
from typing import Final

from pop_stream.api.agendas.commands import CommandEndpoints
from pop_stream.api.agendas.lists import AgendaListEndpoints
from pop_stream.api.agendas.selection import QUERY
from pop_stream.api.http.access import Access, Handler, read_access
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import READ_ERRORS, RouteResponse, Route
from pop_stream.api.owners import Owners
from pop_stream.core.errors import StateError, UnavailableError
from pop_stream.core.events import Action
from pop_stream.core.values.identity import Role
from pop_stream.shapes.commands import (
    AgendaList,
    BulkCommand,
    BulkResult,
    CommandResult,
    Reprioritisation,
    Rerun,
    CommandRequest,
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
    ("cancel", "End an agenda: at once while it waits; while it runs, its puller is told"),
    ("hold", "Let an agenda that waits wait until it is released"),
    ("release", "Let an agenda that was held take its turn"),
    ("reprioritise", "Change where a waiting agenda stands among its customer's own"),
)


def command_routes(
    owners: Owners, commands: CommandEndpoints, lists: AgendaListEndpoints
) -> tuple[Route, ...]:
    """List agendas; cancel, hold, release, reprioritise, rerun and delete them."""
    own = Access(role=Role.OPERATE, subject=owners.agenda, changes=True)
    return (
        Route(
            "GET",
            "/v1/agendas",
            lists.get,
            "listAgendas",
            "Agendas that fit a filter, page by page, with their exact number",
            (RouteResponse("A page.", (AgendaList,)),),
            (InvalidError, UnavailableError),
            query=QUERY,
            access=read_access(),
        ),
        *(
            _command(action, commands.post(action), summary, own)
            for action, summary in _COMMANDS
        ),
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
        Route(
            "POST",
            "/v1/commands",
            commands.post_bulk,
            "commandAgendas",
            "One command for all agendas that fit a filter and are in a state for it",
            (
                RouteResponse("What would be done.", (BulkResult,)),
                RouteResponse("On their way.", (BulkResult,), HTTPStatus.ACCEPTED),
            ),
            (*_ERRORS, UnavailableError),
            body_models=(BulkCommand,),
            access=Access(role=Role.OPERATE),
        ),
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
