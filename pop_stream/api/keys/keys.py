"""API keys: made, shown once, rotated, revoked, listed; and the audit log."""

from collections.abc import Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
import structlog
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from pop_stream.api.http import body
from pop_stream.api.http.access import author_of, principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.parameters import read_query
from pop_stream.api_models.base import NULL
from pop_stream.api_models.keys import (
    MAX_PAGE_SIZE,
    AuditEntryView,
    AuditList,
    CallerView,
    KeyList,
    KeyRequest,
    KeyView,
    NewKey,
    Rotation,
)
from pop_stream.auth.keys import make_key
from pop_stream.model.agenda import Id
from pop_stream.model.api_keys import ApiKey, KeyId, check_grant
from pop_stream.model.errors import NotFoundError
from pop_stream.model.identity import Role
from pop_stream.ports.audit import AuditEntry, AuditFilter, AuditLog
from pop_stream.ports.clock import Clock
from pop_stream.ports.keys import KeyStore


def key_view(key: ApiKey, now: datetime) -> KeyView:
    """A key as clients see it."""
    return KeyView(
        id=key.id,
        customer_id=key.customer_id,
        roles=tuple(role for role in Role if role in key.roles),
        title=key.title,
        state=key.state(now),
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        replaced_by=key.replaced_by,
    )


async def get_caller(request: web.Request) -> web.Response:
    """Who the caller is, and what it may do."""
    principal = principal_of(request)
    roles = tuple(role for role in Role if principal.has_role(role))
    view = CallerView(name=principal.name, customer_id=principal.customer_id, roles=roles)
    return json_response(view, status=HTTPStatus.OK)


def new_key_view(view: KeyView, token: str) -> NewKey:
    """A key that was made just now, as its owner sees it."""
    return NewKey(**msgspec.structs.asdict(view), token=token)


def entry_view(entry: AuditEntry) -> AuditEntryView:
    """An entry as clients see it."""
    return AuditEntryView(
        id=entry.entry_id,
        at=entry.at,
        principal=entry.principal,
        customer_id=entry.customer_id,
        request_id=entry.request_id,
        action=entry.action,
        kind=entry.kind,
        object_id=entry.object_id,
        before=msgspec.Raw(entry.before) if entry.before else NULL,
        after=msgspec.Raw(entry.after) if entry.after else NULL,
        reason=entry.reason,
    )


_SECRET: Final = {"Cache-Control": "no-store"}

_log = structlog.get_logger()


class _Listing(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = 100


class _KeyListing(_Listing):
    customer_id: Id | None = None
    after: KeyId | None = None


class _AuditListing(_Listing):
    kind: str | None = None
    object_id: str | None = None
    principal: str | None = None
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None


class KeyEndpoints:
    """The handlers of API keys."""

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        body_reader: body.BodyReader,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._body_reader = body_reader
        self._on_changed = on_changed

    async def get_list(self, request: web.Request) -> web.Response:
        """A page of the keys that the caller sees."""
        wanted, principal = read_query(request, _KeyListing), principal_of(request)
        customer_id = wanted.customer_id if principal.is_operator else principal.customer_id
        if not principal.speaks_for(wanted.customer_id or customer_id):
            return json_response(KeyList(keys=[], next=None), status=HTTPStatus.OK)
        found = await with_timeout(
            self._store.keys(
                customer_id=customer_id, after=wanted.after or "", limit=wanted.limit + 1
            )
        )
        page = found[: wanted.limit]
        following = page[-1].id if len(found) > len(page) else None
        listed = KeyList(keys=[self._view(one) for one in page], next=following)
        return json_response(listed, status=HTTPStatus.OK)

    async def get(self, request: web.Request) -> web.Response:
        """One key."""
        return json_response(self._view(await self._key(request)), status=HTTPStatus.OK)

    async def post(self, request: web.Request) -> web.Response:
        """Make a key, which is shown once."""
        wish = await self._body_reader.read_model(request, KeyRequest)
        principal = principal_of(request)
        customer_id = wish.customer_id or principal.customer_id
        check_grant(principal, customer_id, wish.roles)
        key, token = make_key(
            customer_id=customer_id,
            roles=wish.roles,
            now=self._clock.now(),
            created_by=principal.name,
            title=wish.title,
            expires_at=wish.expires_at,
        )
        await with_timeout(self._store.create(key, author_of(request)))
        self._on_changed()
        _log.info("key.created", key_id=key.id, customer_id=customer_id)
        return self._made(key, token)

    async def post_rotation(self, request: web.Request) -> web.Response:
        """Make a key with the same powers and expiry; the old one ends after a while."""
        wish = await self._body_reader.read_model(request, Rotation)
        principal = principal_of(request)
        old = await self._key(request)
        check_grant(principal, old.customer_id, old.roles)
        minted, token = make_key(
            customer_id=old.customer_id,
            roles=old.roles,
            now=self._clock.now(),
            created_by=principal.name,
        )
        grace = timedelta(seconds=wish.grace_s)
        new = await with_timeout(
            self._store.rotate(old.id, minted, author_of(request), grace=grace)
        )
        self._on_changed()
        _log.info("key.rotated", key_id=old.id, replaced_by=new.id)
        return self._made(new, token)

    async def post_revocation(self, request: web.Request) -> web.Response:
        """End a key at once."""
        key_id = request.match_info["key_id"]
        now = self._clock.now()
        key = await with_timeout(self._store.revoke(key_id, author_of(request), at=now))
        self._on_changed()
        _log.info("key.revoked", key_id=key_id)
        return json_response(self._view(key), status=HTTPStatus.OK)

    async def _key(self, request: web.Request) -> ApiKey:
        key_id = request.match_info["key_id"]
        key = await with_timeout(self._store.find(key_id))
        if key is None:
            kind = "key"
            raise NotFoundError(kind, key_id)
        return key

    def _made(self, key: ApiKey, token: str) -> web.Response:
        headers = {**_SECRET, "Location": f"/v1/keys/{key.id}"}
        made = new_key_view(self._view(key), token)
        return json_response(made, status=HTTPStatus.CREATED, headers=headers)

    def _view(self, key: ApiKey) -> KeyView:
        return key_view(key, self._clock.now())


class AuditEndpoints:
    """The handler of the audit log."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    async def get(self, request: web.Request) -> web.Response:
        """A page of changes, newest first."""
        wanted = read_query(request, _AuditListing)
        chosen = AuditFilter(wanted.kind, wanted.object_id, wanted.principal)
        found = await with_timeout(
            self._log.entries(chosen, before=wanted.before, limit=wanted.limit + 1)
        )
        page = found[: wanted.limit]
        following = page[-1].entry_id if len(found) > len(page) else None
        listed = AuditList(entries=[entry_view(one) for one in page], next=following)
        return json_response(listed, status=HTTPStatus.OK)
