"""The routes of signals, of completions, and of decisions about what waits for a person."""

from http import HTTPStatus
from typing import Final

from pop_stream.api.http.access import PUBLIC, Access, read_access
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import READ_ERRORS, QueryParameter, Route, RouteResponse
from pop_stream.api.owners import Owners
from pop_stream.api.waits.completions import CompletionEndpoints
from pop_stream.api.waits.endpoints import DecisionEndpoints, SignalEndpoints, Verdict
from pop_stream.api_models.completions import (
    CompletionRequest,
    CompletionResult,
    CompletionToken,
    CompletionTokenRequest,
)
from pop_stream.api_models.waits import (
    Decision,
    DecisionResult,
    SignalList,
    SignalRequest,
    SignalView,
)
from pop_stream.model.errors import (
    CompletionError,
    CompletionLateError,
    RateLimitError,
    StateError,
    UnavailableError,
)
from pop_stream.model.identity import Role
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN

_VERDICTS: Final[tuple[tuple[Verdict, str], ...]] = (
    ("approve", "Approve an operation that waits for a person: it has succeeded"),
    (
        "reject",
        "Reject an operation that waits for a person: it has failed, and is not retried",
    ),
)


def wait_routes(
    owners: Owners,
    signals: SignalEndpoints,
    decisions: DecisionEndpoints,
    completions: CompletionEndpoints,
) -> tuple[Route, ...]:
    """Give and list signals; approve, reject and complete operations."""
    return (
        *_signal_routes(signals),
        *_decision_routes(owners, decisions),
        *_completion_routes(completions),
    )


def _signal_routes(signals: SignalEndpoints) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/signals/{name}",
            signals.post,
            "giveSignal",
            "Give a signal: operations of the customer's that wait for it go on",
            (RouteResponse("Kept.", (SignalView,)),),
            (*BODY_ERRORS, *READ_ERRORS, InvalidError, RateLimitError),
            body_models=(SignalRequest,),
            may_be_bare=True,
            access=Access(role=Role.SUBMIT),
        ),
        Route(
            "GET",
            "/v1/signals",
            signals.get_list,
            "listSignals",
            "Signals that are kept, by name, at most a thousand",
            (RouteResponse("Those.", (SignalList,)),),
            (InvalidError, UnavailableError),
            query=(
                QueryParameter(
                    "customer_id",
                    "Of this customer.",
                    {"type": "string", "pattern": ID_PATTERN, "maxLength": ID_LENGTH},
                ),
            ),
            access=read_access(),
        ),
    )


def _decision_routes(owners: Owners, decisions: DecisionEndpoints) -> tuple[Route, ...]:
    own = Access(role=Role.OPERATE, path_object=owners.agenda, changes=True)
    return tuple(
        Route(
            "POST",
            f"/v1/agendas/{{agenda_id}}/operations/{{operation}}/{verdict}",
            decisions.post(verdict),
            f"{verdict}Operation",
            summary,
            (
                RouteResponse(
                    "Recorded, and on its way.", (DecisionResult,), HTTPStatus.ACCEPTED
                ),
            ),
            (*BODY_ERRORS, *READ_ERRORS, InvalidError, StateError, RateLimitError),
            body_models=(Decision,),
            may_be_bare=True,
            access=own,
        )
        for verdict, summary in _VERDICTS
    )


def _completion_routes(completions: CompletionEndpoints) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/completion-tokens",
            completions.post_token,
            "makeCompletionToken",
            "Make a token by which an operation of a running attempt is completed from outside",
            (RouteResponse("Another one each time.", (CompletionToken,)),),
            (*BODY_ERRORS, *READ_ERRORS, InvalidError),
            body_models=(CompletionTokenRequest,),
            access=Access(role=Role.PULL),  # of which insight, the body says
        ),
        Route(
            "POST",
            "/v1/completions",
            completions.post,
            "completeOperation",
            "Complete an operation that was handed over; its token is all that is asked for",
            (RouteResponse("Kept, and on its way.", (CompletionResult,), HTTPStatus.ACCEPTED),),
            (
                *BODY_ERRORS,
                InvalidError,
                CompletionError,
                CompletionLateError,
                UnavailableError,
            ),
            body_models=(CompletionRequest,),
            access=PUBLIC,
        ),
    )
