"""What a route asks of its caller, and the guard that stands before its handler.

The guard decides about everything that a path names, so that no handler can forget to. What
a body names, and what a list holds, only the handler knows: it asks `principal_of`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog
from aiohttp import web

from pop_stream.api.http.answers import with_timeout
from pop_stream.api.http.path_ids import id_pattern
from pop_stream.model.errors import NotFoundError, UnavailableError
from pop_stream.model.identity import (
    ANYONE,
    Ownership,
    Principal,
    Role,
    require_access,
    require_role,
)
from pop_stream.model.tenancy import candidate_ids

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PRINCIPAL: Final = web.RequestKey("principal", Principal)

_OBJECT_ID: Final = web.RequestKey("object_id", str)


@dataclass(frozen=True, slots=True)
class PathObject:
    """The kind of object that a path names.

    Attributes:
        kind: As an error calls it, such as `agenda`.
        parameter: Of the path, such as `agenda_id`.
        owner: Whose the object with this id is, as far as a principal may know; None if there
            is none. Raises UnavailableError while that cannot be said.
        is_named_by_customers: Whether customers choose such ids, each in a space of its own.
        canonical_id: The id that an operator means by what it says; without, that itself.
    """

    kind: str
    parameter: str
    owner: Callable[[str, Principal], Awaitable[Ownership | None]]
    is_named_by_customers: bool = False
    canonical_id: Callable[[str], Awaitable[str]] | None = None

    def expect_id(self, named: str) -> None:
        """Check that something could have this id, so that odd text is never looked up.

        Raises:
            NotFoundError: If nothing can.
        """
        shape = id_pattern(self.parameter)
        if not shape.fits(named):
            raise NotFoundError(self.kind, named[: shape.max_length])

    def candidate_ids(self, named: str, principal: Principal) -> Sequence[str]:
        """The ids that a caller may mean, likeliest first."""
        return candidate_ids(named, principal) if self.is_named_by_customers else (named,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a route asks of its caller.

    Attributes:
        role: Which it must hold; None serves everyone, known or not.
        path_object: Of the object that the path names, if it names one.
        changes: Whether that object must be the caller's own.
        operator_role: Which an operator must hold instead; None asks for the same.
        operators_only: Whether no customer may, whatever its roles.
        appears_within: How long an object that is not there yet is waited for.
    """

    role: Role | None
    path_object: PathObject | None = None
    changes: bool = False
    operator_role: Role | None = None
    operators_only: bool = False
    appears_within: timedelta = timedelta(0)


PUBLIC: Final = Access(role=None)


def read_access(
    path_object: PathObject | None = None, *, appears_within: timedelta = timedelta(0)
) -> Access:
    """The access that reading asks for.

    Args:
        path_object: Of the object in the path, if there is one.
        appears_within: How long an object that is not there yet is waited for.
    """
    return Access(role=Role.READ, path_object=path_object, appears_within=appears_within)


class RequestAuthenticator(Protocol):
    """Authenticates the sender of a request."""

    async def identify(self, authorization: str | None) -> Principal:
        """Who the value of the header `Authorization` belongs to.

        Raises:
            UnauthenticatedError: If it identifies nobody.
            UnavailableError: If that cannot be found out now.
        """
        ...


@dataclass(frozen=True, slots=True)
class _PresentedCredentials:
    """What a request showed, for a second look at it."""

    authorization: str | None
    authenticator: RequestAuthenticator


_PRESENTED: Final = web.RequestKey("shown", _PresentedCredentials)


class AllowAll:
    """Authenticates nobody: for a single machine."""

    async def identify(self, authorization: str | None) -> Principal:
        """Every caller is an operator."""
        return ANYONE


class AccessGuard:
    """Runs a handler only for callers whom its route allows.

    Args:
        authenticator: Who tells callers apart.
        tick: Between two looks for an object that may still appear.
    """

    def __init__(self, authenticator: RequestAuthenticator, *, tick: timedelta) -> None:
        self._authenticator = authenticator
        self._tick_s = tick.total_seconds()

    def before(self, handler: Handler, access: Access) -> Handler:
        """The handler, behind the guard."""
        needed = access.role
        if needed is None:
            return handler

        async def guarded(request: web.Request) -> web.StreamResponse:
            shown = request.headers.get("Authorization")
            principal = await self._authenticator.identify(shown)
            request[_PRINCIPAL] = principal
            request[_PRESENTED] = _PresentedCredentials(shown, self._authenticator)
            structlog.contextvars.bind_contextvars(principal=principal.name)
            role = access.operator_role if principal.is_operator else None
            role = role or needed
            if access.path_object is None or access.operators_only:
                require_role(principal, role, operators_only=access.operators_only)
            else:
                await self._expect_access(request, principal, access, access.path_object, role)
            return await handler(request)

        return guarded

    async def _expect_access(
        self,
        request: web.Request,
        principal: Principal,
        access: Access,
        path_object: PathObject,
        role: Role,
    ) -> None:
        named = request.match_info[path_object.parameter]
        path_object.expect_id(named)
        if principal.is_operator and principal.has_role(role):
            # Every object is its own; the handler will say whether there is one.
            if path_object.canonical_id is not None and principal is not ANYONE:
                named = await with_timeout(path_object.canonical_id(named))
            request[_OBJECT_ID] = named
            return
        request[_OBJECT_ID], owner = await self._find(named, principal, access, path_object)
        require_access(
            principal, role, owner, named=(path_object.kind, named), changes=access.changes
        )

    async def _find(
        self, named: str, principal: Principal, access: Access, path_object: PathObject
    ) -> tuple[str, Ownership | None]:
        """The id that the path means, and its owner if the caller sees the object.

        What is hidden is waited for just as long as what may yet appear.
        """
        now = asyncio.get_running_loop().time
        until = now() + access.appears_within.total_seconds()
        meant = path_object.candidate_ids(named, principal)
        while True:
            for object_id in meant:
                owner = await with_timeout(path_object.owner(object_id, principal))
                if owner is not None and principal.sees(owner):
                    return object_id, owner
            if now() >= until:
                return meant[0], None
            await asyncio.sleep(self._tick_s)


def principal_of(request: web.Request) -> Principal:
    """Who sent the request; known to every handler of a route that is not public."""
    return request[_PRINCIPAL]


async def expect_still_authenticated(request: web.Request) -> None:
    """Check again who sends a request that goes on for long, before more is sent to it.

    While that cannot be found out, it goes on as it was let in.

    Raises:
        UnauthenticatedError: If its key was revoked, or its token expired, meanwhile.
    """
    shown = request[_PRESENTED]
    with suppress(UnavailableError):
        await shown.authenticator.identify(shown.authorization)


def object_of(request: web.Request) -> str:
    """The id inside of the object that the path names; the guard has found out which."""
    return request[_OBJECT_ID]
