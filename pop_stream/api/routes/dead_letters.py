"""The routes of dead letters."""

from typing import Final, get_args

from pop_stream.api.dead_letters.endpoints import DeadLetterEndpoints
from pop_stream.api.http.access import Access, read_access
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import (
    READ_ERRORS,
    QueryParameter,
    Route,
    RouteResponse,
    repeatable,
)
from pop_stream.api.owners import Owners
from pop_stream.api_models.dead_letters import (
    LETTER_ID_PATTERN,
    MAX_PAGE_SIZE,
    DeadLetterDetail,
    DeadLetterList,
    LetterCommand,
    LetterCommandResult,
    LetterRequest,
    LetterResult,
    LetterSelection,
    ReasonList,
)
from pop_stream.model.errors import RateLimitError, UnavailableError
from pop_stream.model.identity import Role
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN, OWN_ID_LENGTH, OWN_ID_PATTERN
from pop_stream.policy.lifecycle.dead_letters import LetterKind, LetterState

_ID: Final = {"type": "string", "pattern": ID_PATTERN, "maxLength": ID_LENGTH}
_OWN_ID: Final = {"type": "string", "pattern": OWN_ID_PATTERN, "maxLength": OWN_ID_LENGTH}
_INSTANT: Final = {"type": "string", "format": "date-time"}
_LISTS: Final = (
    ("ids", "One of these.", {"type": "string", "pattern": LETTER_ID_PATTERN}),
    ("kind", "Of one of these kinds.", {"enum": [*get_args(LetterKind)]}),
    ("code", "With one of these codes.", {"type": "string", "maxLength": 100}),
    ("customer_id", "Of one of these customers.", _ID),
    ("insight_id", "Of one of these insights.", _ID),
    ("agenda_id", "About one of these agendas.", _OWN_ID),
    (
        "state",
        "In one of these states; `open` if left out.",
        {"enum": [*get_args(LetterState)]},
    ),
)
_FILTER: Final = (
    *(repeatable(LetterSelection, *one) for one in _LISTS),
    QueryParameter("from_at", "Written at this instant or later.", _INSTANT),
    QueryParameter("before_at", "Written before this instant.", _INSTANT),
)
_PAGE: Final = (
    QueryParameter(
        "before",
        "`next` of the page before.",
        {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
    ),
    QueryParameter(
        "limit",
        "Letters of a page.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": 50},
    ),
)


def dead_letter_routes(owners: Owners, letters: DeadLetterEndpoints) -> tuple[Route, ...]:
    """List dead letters, count them by reason, redrive and discard them."""
    return (
        Route(
            "GET",
            "/v1/dead-letters",
            letters.get_list,
            "listDeadLetters",
            "Dead letters that fit a filter, newest first, page by page",
            (RouteResponse("A page.", (DeadLetterList,)),),
            (InvalidError, UnavailableError),
            query=(*_FILTER, *_PAGE),
            access=read_access(),
        ),
        Route(
            "GET",
            "/v1/dead-letter-reasons",
            letters.get_reasons,
            "countDeadLetters",
            "How many dead letters fit a filter, by reason: the newest 10,000",
            (RouteResponse("The counts.", (ReasonList,)),),
            (InvalidError, UnavailableError),
            query=_FILTER,
            access=read_access(),
        ),
        Route(
            "GET",
            "/v1/dead-letters/{letter_id}",
            letters.get,
            "getDeadLetter",
            "A dead letter, with the value that it is about",
            (RouteResponse("The letter.", (DeadLetterDetail,)),),
            READ_ERRORS,
            access=read_access(owners.letter),
        ),
        *_one_letter(owners, letters),
        _many_letters(letters),
    )


def _one_letter(owners: Owners, letters: DeadLetterEndpoints) -> tuple[Route, ...]:
    own = Access(role=Role.OPERATE, path_object=owners.letter, changes=True)
    settled = RouteResponse("What became of it.", (LetterResult,))
    errors = (*BODY_ERRORS, InvalidError, RateLimitError, *READ_ERRORS)
    return (
        Route(
            "POST",
            "/v1/dead-letters/{letter_id}/redrive",
            letters.post_redrive,
            "redriveDeadLetter",
            "Try again what a dead letter is about; the second time nothing is done",
            (settled,),
            errors,
            body_models=(LetterRequest,),
            may_be_bare=True,
            submits=True,
            access=own,
        ),
        Route(
            "POST",
            "/v1/dead-letters/{letter_id}/discard",
            letters.post_discard,
            "discardDeadLetter",
            "Dismiss a dead letter; the second time nothing is done",
            (settled,),
            errors,
            body_models=(LetterRequest,),
            may_be_bare=True,
            access=own,
        ),
    )


def _many_letters(letters: DeadLetterEndpoints) -> Route:
    return Route(
        "POST",
        "/v1/dead-letter-commands",
        letters.post_many,
        "commandDeadLetters",
        "Redrive or discard the open dead letters that fit a filter, 1,000 at a time",
        (RouteResponse("What became of them, or would.", (LetterCommandResult,)),),
        (*BODY_ERRORS, InvalidError, RateLimitError, UnavailableError),
        body_models=(LetterCommand,),
        access=Access(role=Role.OPERATE),
    )
