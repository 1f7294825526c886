"""The routes of API keys and of the audit log."""

from http import HTTPStatus
from typing import Final

from pop_stream.api.http.access import Access, read_access
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import (
    CHANGE_ERRORS,
    READ_ERRORS,
    QueryParameter,
    Route,
    RouteResponse,
)
from pop_stream.api.keys.keys import AuditEndpoints, KeyEndpoints, get_caller
from pop_stream.api.owners import Owners
from pop_stream.api_models.keys import (
    MAX_PAGE_SIZE,
    AuditList,
    CallerView,
    KeyList,
    KeyRequest,
    KeyView,
    NewKey,
    Rotation,
)
from pop_stream.model.api_keys import KEY_ID_PATTERN
from pop_stream.model.errors import KeyStateError, SubmissionError, UnavailableError
from pop_stream.model.identity import Role
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN

_ERRORS: Final = (
    *BODY_ERRORS,
    *CHANGE_ERRORS,
    InvalidError,
    SubmissionError,
)

_TEXT: Final = {"type": "string"}
_KEY_ID: Final = {"type": "string", "pattern": KEY_ID_PATTERN}
_LIMIT: Final = QueryParameter(
    "limit",
    "Of a page.",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": 100},
)
_NEW: Final = RouteResponse(
    "Made. Its token is shown here and nowhere again.", (NewKey,), HTTPStatus.CREATED
)


def key_routes(owners: Owners, keys: KeyEndpoints, audit: AuditEndpoints) -> tuple[Route, ...]:
    """Keys, of which a customer who operates sees its own and an admin all; the audit log."""
    return (_caller_route(), *_all_keys(keys), *_one_key(owners, keys), _audit_route(audit))


def _caller_route() -> Route:
    return Route(
        "GET",
        "/v1/me",
        get_caller,
        "getCaller",
        "Who the caller is, and what it may do",
        (RouteResponse("The caller.", (CallerView,)),),
        (UnavailableError,),
        access=read_access(),
    )


def _all_keys(keys: KeyEndpoints) -> tuple[Route, ...]:
    access = Access(role=Role.OPERATE, operator_role=Role.ADMIN)
    return (
        Route(
            "GET",
            "/v1/keys",
            keys.get_list,
            "listKeys",
            "Keys by id, page by page, revoked ones too; never their secrets",
            (RouteResponse("A page.", (KeyList,)),),
            (InvalidError, UnavailableError),
            query=(
                QueryParameter(
                    "customer_id",
                    "Of this customer.",
                    {"type": "string", "pattern": ID_PATTERN, "maxLength": ID_LENGTH},
                ),
                QueryParameter("after", "`next` of the page before.", _KEY_ID),
                _LIMIT,
            ),
            access=access,
        ),
        Route(
            "POST",
            "/v1/keys",
            keys.post,
            "createKey",
            "Make a key; its token is shown once",
            (_NEW,),
            (*_ERRORS, UnavailableError),
            body_models=(KeyRequest,),
            access=access,
        ),
    )


def _one_key(owners: Owners, keys: KeyEndpoints) -> tuple[Route, ...]:
    own = Access(
        role=Role.OPERATE, operator_role=Role.ADMIN, path_object=owners.key, changes=True
    )
    return (
        Route(
            "GET",
            "/v1/keys/{key_id}",
            keys.get,
            "getKey",
            "A key, without its secret",
            (RouteResponse("The key.", (KeyView,)),),
            READ_ERRORS,
            access=own,
        ),
        Route(
            "POST",
            "/v1/keys/{key_id}/rotate",
            keys.post_rotation,
            "rotateKey",
            "Make a key with the same powers and expiry; the old one goes on for a while",
            (_NEW,),
            (*_ERRORS, *READ_ERRORS, KeyStateError),
            body_models=(Rotation,),
            may_be_bare=True,
            access=own,
        ),
        Route(
            "POST",
            "/v1/keys/{key_id}/revoke",
            keys.post_revocation,
            "revokeKey",
            "End a key at once",
            (RouteResponse("Revoked, now or before.", (KeyView,)),),
            READ_ERRORS,
            access=own,
        ),
    )


def _audit_route(audit: AuditEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/audit",
        audit.get,
        "listAudit",
        "Who changed what, newest first, page by page",
        (RouteResponse("A page.", (AuditList,)),),
        (InvalidError, UnavailableError),
        query=(
            QueryParameter("kind", "Of objects of this kind, such as `insight`.", _TEXT),
            QueryParameter("object_id", "Of objects with this id.", _TEXT),
            QueryParameter("principal", "By this principal.", _TEXT),
            QueryParameter(
                "before",
                "`next` of the page before.",
                {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
            ),
            _LIMIT,
        ),
        access=Access(role=Role.ADMIN, operators_only=True),
    )
