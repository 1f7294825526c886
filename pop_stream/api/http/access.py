"""What a route asks of its caller, and the guard that stands before its handler.

The guard decides about everything that a path names, so that no handler can forget to. What
a body names, and what a list holds, only the handler knows: it asks `principal_of`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import Final, Protocol
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from pop_stream.api.http.answers import JSON, with_timeout
from pop_stream.api.http.correlation import correlation_id
from pop_stream.api.http.errors import MediaTypeError
from pop_stream.api.http.parameters import id_pattern
from pop_stream.model.errors import ForbiddenError, NotFoundError, UnavailableError
from pop_stream.model.identity import (
    ANYONE,
    Ownership,
    Principal,
    Role,
    require_access,
    require_role,
)
from pop_stream.model.revisions import Author
from pop_stream.model.tenancy import candidate_ids

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM_TYPES: Final = frozenset(
    {"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}
)
"""What a page may send to other sites without asking them first."""

_SHOWN: Final = 100

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


class ForeignPages:
    """Keeps web pages of others from an API that asks nobody who calls.

    Whatever page a browser shows can reach the API from where the browser runs. A page whose
    name was turned to the API's address calls it by that name, so `Host` is an address or a
    name of the API's. One that sends from another site cannot hide that: browsers say so in
    `Sec-Fetch-Site` and `Origin`, and ask first before they send JSON.

    Args:
        hosts: Names of the API, beside `localhost` and all addresses, which nobody can turn.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = {"localhost", *(one.lower() for one in hosts)}

    def expect_none(self, request: web.Request) -> None:
        """Check that no such page has sent the request.

        Raises:
            ForbiddenError: If one may have, naming the header and what to do.
            MediaTypeError: If it changes something with what a bare form may send.
        """
        self.expect_known_host(request)
        if request.method in _READS:
            return
        self.expect_same_site(request)
        if request.content_type in _FORM_TYPES and "Content-Type" in request.headers:
            msg = f"send {JSON}, not {request.content_type}, also without a body"
            raise MediaTypeError(msg)

    def expect_known_host(self, request: web.Request) -> None:
        """Check that the request calls by an address, or by a name of the API's.

        Raises:
            ForbiddenError: If it does not.
        """
        called = request.headers.get("Host", "localhost")
        name = _host_name(called)
        if name not in self._hosts and not _is_address(name):
            msg = (
                f"Host = {called[:_SHOWN]!r}: is no name of this API, which asks nobody who "
                "calls; use its address, or have an operator add the name to POP_HTTP_HOSTS"
            )
            raise ForbiddenError(msg)

    def expect_same_site(self, request: web.Request) -> None:
        """Check that no page of another site has sent the request.

        Raises:
            ForbiddenError: If one has.
        """
        called = request.headers.get("Host", "localhost")
        site = request.headers.get("Sec-Fetch-Site", "none")
        origin = request.headers.get("Origin")
        if site not in {"same-origin", "none"} or (
            origin is not None and urlsplit(origin).netloc.lower() != called.lower()
        ):
            msg = (
                f"Origin = {(origin or site)[:_SHOWN]!r}: a page of another site may change "
                "nothing in an API that asks nobody who calls; set POP_AUTH=required and send "
                "a key"
            )
            raise ForbiddenError(msg)


def _host_name(host: str) -> str:
    """A header's host without its port."""
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.strip("[]").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class AccessGuard:
    """Runs a handler only for callers whom its route allows.

    Args:
        authenticator: Who tells callers apart.
        tick: Between two looks for an object that may still appear.
        foreign_pages: Kept away; None where callers must show what no page of others has.
    """

    def __init__(
        self,
        authenticator: RequestAuthenticator,
        *,
        tick: timedelta,
        foreign_pages: ForeignPages | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._foreign_pages = foreign_pages
        self._tick_s = tick.total_seconds()

    def _before_public(self, handler: Handler) -> Handler:
        """A route that asks nobody who calls changes nothing for pages of others, either."""
        foreign_pages = self._foreign_pages
        if foreign_pages is None:
            return handler

        async def guarded(request: web.Request) -> web.StreamResponse:
            if request.method not in _READS:
                foreign_pages.expect_none(request)
            return await handler(request)

        return guarded

    def before(self, handler: Handler, access: Access) -> Handler:
        """The handler, behind the guard."""
        needed = access.role
        if needed is None:
            return self._before_public(handler)

        async def guarded(request: web.Request) -> web.StreamResponse:
            if self._foreign_pages is not None:
                self._foreign_pages.expect_none(request)
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


def author_of(request: web.Request, reason: str = "") -> Author:
    """Who changes something by the request, for the audit log."""
    return Author(
        principal=principal_of(request), request_id=correlation_id(request), reason=reason
    )


def sender_of(request: web.Request) -> str:
    """Who holds memory with a request: a customer, an operator's key, or just an address."""
    if _PRINCIPAL not in request:
        return request.remote or ""
    principal = principal_of(request)
    return principal.customer_id or principal.name


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
