"""The routes of lists of agendas, and of what is wanted of agendas."""

from http import HTTPStatus
from typing import Final

from pop_stream.api.agendas.commands import Commands
from pop_stream.api.agendas.lists import AgendaLists
from pop_stream.api.agendas.selection import QUERY
from pop_stream.api.http.access import Access, Handler, reading
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import READ_ERRORS, Answer, Route
from pop_stream.api.owners import Owners
from pop_stream.core.errors import StateError, UnavailableError
from pop_stream.core.events import Action
from pop_stream.core.values.identity import Role
from pop_stream.shapes.commands import (
    AgendaList,
    BulkCommand,
    BulkResult,
    Commanded,
    Reprioritisation,
    Rerun,
    Wish,
)

_ERRORS: Final = (
    *BODY_ERRORS,
    InvalidError,
)

_DONE: Final = Answer("There was nothing left to do.", (Commanded,))
_SENT: Final = Answer(
    "On its way to the scheduler; GET shows what comes of it.",
    (Commanded,),
    HTTPStatus.ACCEPTED,
)

_WISHES: Final[tuple[tuple[Action, str], ...]] = (
    ("cancel", "End an agenda: at once while it waits; while it runs, its puller is told"),
    ("hold", "Let an agenda that waits wait until it is released"),
    ("release", "Let an agenda that was held take its turn"),
    ("reprioritise", "Change where a waiting agenda stands among its customer's own"),
)


def command_routes(owners: Owners, commands: Commands, lists: AgendaLists) -> tuple[Route, ...]:
    """List agendas; cancel, hold, release, reprioritise, rerun and delete them."""
    own = Access(role=Role.OPERATE, subject=owners.agenda, changes=True)
    return (
        Route(
            "GET",
            "/v1/agendas",
            lists.get,
            "listAgendas",
            "Agendas that fit a filter, page by page, with their exact number",
            (Answer("A page.", (AgendaList,)),),
            (InvalidError, UnavailableError),
            query=QUERY,
            access=reading(),
        ),
        *(_command(action, commands.post(action), summary, own) for action, summary in _WISHES),
        Route(
            "POST",
            "/v1/agendas/{agenda_id}/rerun",
            commands.post_rerun,
            "rerunAgenda",
            "Run an agenda that has ended again: all of it, what failed, or chosen operations",
            (_SENT,),
            (*_ERRORS, *READ_ERRORS, StateError),
            takes=(Rerun,),
            may_be_bare=True,
            access=own,
        ),
        Route(
            "DELETE",
            "/v1/agendas/{agenda_id}",
            commands.delete,
            "deleteAgenda",
            "Remove an agenda that has ended, with all that is known of it",
            (Answer("Removed.", status=HTTPStatus.NO_CONTENT, media_type=None),),
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
                Answer("What would be done.", (BulkResult,)),
                Answer("On their way.", (BulkResult,), HTTPStatus.ACCEPTED),
            ),
            (*_ERRORS, UnavailableError),
            takes=(BulkCommand,),
            access=Access(role=Role.OPERATE),
        ),
    )


def _command(action: Action, handler: Handler, summary: str, access: Access) -> Route:
    shape = Reprioritisation if action == "reprioritise" else Wish
    return Route(
        "POST",
        f"/v1/agendas/{{agenda_id}}/{action}",
        handler,
        f"{action}Agenda",
        summary,
        (_DONE, _SENT),
        (*_ERRORS, *READ_ERRORS, StateError),
        takes=(shape,),
        may_be_bare=action != "reprioritise",
        access=access,
    )
