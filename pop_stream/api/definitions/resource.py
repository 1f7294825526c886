"""Customers, pools, insights and templates: read, written and listed, one resource each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web
from pydantic import BaseModel, ConfigDict

from pop_stream.api.definitions.models import definition_view
from pop_stream.api.definitions.naming import IdResolver, ownership
from pop_stream.api.http.access import author_of, principal_of
from pop_stream.api.http.answers import JSON, with_timeout
from pop_stream.api.http.body import MERGE_PATCH, BodyReader
from pop_stream.api.http.conditions import condition_of, etag, is_known
from pop_stream.api.http.errors import InvalidError, NotJsonError
from pop_stream.api.http.parameters import id_pattern, read_query
from pop_stream.api.http.route import QueryParameter
from pop_stream.api_models.commands import MAX_REASON, Reason
from pop_stream.model.definition_lists import (
    MAX_LISTED,
    Filter,
    ListQuery,
    ListRequest,
    cursor_of,
    parse_list,
)
from pop_stream.model.definitions import CUSTOMERS_KINDS, Definition, Kind
from pop_stream.model.errors import DefinitionError, Issue, NotFoundError, SubmissionError
from pop_stream.model.identity import Principal, Role, require_access
from pop_stream.model.revisions import (
    Revision,
    VersionedDefinition,
    create,
    parse_definition,
    patch,
    put,
    remove,
)
from pop_stream.model.tenancy import display_id
from pop_stream.model.validation import without_nul
from pop_stream.ports.definitions import DefinitionStore

PATHS: Final[Mapping[Kind, str]] = {
    "customer": "/v1/customers",
    "pool": "/v1/pools",
    "insight": "/v1/insights",
    "template": "/v1/agenda-templates",
    "schedule": "/v1/schedules",
    "rule": "/v1/rules",
}

REASON: Final = QueryParameter(
    "reason",
    "Why it is changed, for the audit log.",
    {"type": "string", "maxLength": MAX_REASON, "default": ""},
)


class _ChangeQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Reason = ""


class DefinitionEndpoints:
    """The handlers of one kind of definition.

    Args:
        kind: Of the definitions.
        store: The truth; reads see what was written before them.
        body_reader: Reads requests' bodies.
        on_defined: Called after every change that was committed.
        check: Called with every definition that is to be; raises DefinitionError.
    """

    def __init__(
        self,
        kind: Kind,
        store: DefinitionStore,
        body_reader: BodyReader,
        on_defined: Callable[[], None] = lambda: None,
        check: Callable[[Definition], None] = lambda _: None,
    ) -> None:
        self.kind = kind
        self.path = PATHS[kind]
        self.parameter = f"{kind}_id"
        self.writer = Role.OPERATE if kind in CUSTOMERS_KINDS else Role.ADMIN
        self._store = store
        self._id_resolver = IdResolver(kind, store)
        self._body_reader = body_reader
        self._on_defined = on_defined
        self._check = check

    async def get_all(self, request: web.Request) -> web.Response:
        """A page of the definitions that the caller sees."""
        principal = principal_of(request)
        wanted = parse_list(
            self.kind,
            [
                (name, one)
                for name, value in request.query.items()
                for one in (
                    self._id_resolver.candidates(value, principal) if name == "id" else (value,)
                )
            ],
            seen_by=principal.customer_id,
        )
        listed = await with_timeout(self._store.list(wanted.query))
        items = [
            _selected(await self._view(one, request, wanted.fields), wanted.fields)
            for one in listed.found
        ]
        page = {"items": items, "total": listed.total, "next": _next(wanted, listed.last)}
        return _json(page, HTTPStatus.OK)

    async def get_one(self, request: web.Request) -> web.Response:
        """One definition, with its version as ETag."""
        stored = await self.find(request)
        if is_known(request, stored):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=etag(stored))
        return await self._answer(request, stored)

    async def get_version(self, request: web.Request) -> web.Response:
        """One version of a definition, even if it was deleted since."""
        text, seen_by = request.match_info["version"], principal_of(request).customer_id
        number = int(text) if id_pattern("version").fits(text) else 0
        for object_id in await self._id_resolver.named(request):
            stored = await with_timeout(
                self._store.version(self.kind, object_id, number, seen_by=seen_by)
            )
            if stored is not None:
                return await self._answer(request, stored)
        kind = f"{self.kind} version"
        raise NotFoundError(kind, f"{request.match_info[self.parameter]}/{text}"[:200])

    async def post(self, request: web.Request) -> web.Response:
        """Create a definition; one that exists already is refused."""
        content = await self._content(request)
        object_id = content.get("id")
        if not isinstance(object_id, str):
            raise InvalidError([Issue("id", str(object_id)[:200], "name it: an id is a text")])
        object_id = await self._id_resolver.resolve_new(object_id, principal_of(request))
        owned = self._owned(request, content, object_id)
        stored = await self._make(
            request, create(parse_definition(self.kind, object_id, owned))
        )
        return await self._created(request, stored)

    async def put(self, request: web.Request) -> web.Response:
        """Create a definition, or replace the one that exists."""
        content, object_id = (
            await self._content(request),
            await self._id_resolver.resolve_target(request, creates=True),
        )
        owned = self._owned(request, content, object_id)
        definition = parse_definition(self.kind, object_id, owned)
        was_there = False

        revision = put(definition, condition_of(request))

        def decide(before: VersionedDefinition | None) -> Any:  # noqa: ANN401  # the revision's own outcome
            nonlocal was_there
            was_there = before is not None
            return revision.decide(before)

        noted = Revision(revision.kind, revision.object_id, decide)
        stored = await self._make(request, noted)
        if was_there:
            return await self._answer(request, stored)
        return await self._created(request, stored)

    async def patch(self, request: web.Request) -> web.Response:
        """Change fields of one; null takes a field back to its default."""
        content = await self._content(request, MERGE_PATCH)
        object_id = await self._id_resolver.resolve_target(request)
        content = self._id_resolver.identified(request, content, object_id)
        _expect_owner_unchanged(principal_of(request), content)
        revision = patch(self.kind, object_id, content, condition_of(request))
        return await self._answer(request, await self._make(request, revision))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a definition that nothing refers to."""
        object_id = await self._id_resolver.resolve_target(request)
        await self._change(request, remove(self.kind, object_id, condition_of(request)))
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def find(self, request: web.Request) -> VersionedDefinition:
        """The definition that the path names.

        Raises:
            NotFoundError: If there is none, or none that the caller may see.
        """
        stored = await self._id_resolver.resolve_visible(request)
        if stored is None:
            raise NotFoundError(self.kind, request.match_info[self.parameter][:200])
        return stored

    async def _make(self, request: web.Request, revision: Revision) -> VersionedDefinition:
        stored = await self._change(request, revision)
        if stored is None:
            raise NotFoundError(self.kind, revision.object_id)
        return stored

    async def _change(
        self, request: web.Request, revision: Revision
    ) -> VersionedDefinition | None:
        """Store a revision; whether the caller may make it is checked in the transaction."""
        principal = principal_of(request)

        def decide(before: VersionedDefinition | None) -> Any:  # noqa: ANN401  # the revision's own outcome
            self._expect_own(principal, before, revision.object_id)
            wanted = revision.decide(before)
            if wanted is not None:
                self._check(wanted)
            return wanted

        guarded = Revision(revision.kind, revision.object_id, decide)
        author = author_of(request, read_query(request, _ChangeQuery).reason)
        [outcome] = await with_timeout(self._store.change([guarded], author))
        self._on_defined()
        return outcome

    def _expect_own(
        self, principal: Principal, before: VersionedDefinition | None, object_id: str
    ) -> None:
        if before is not None:
            named = (self.kind, object_id)
            require_access(principal, self.writer, ownership(before), named=named, changes=True)

    def _owned(
        self, request: web.Request, content: Mapping[str, Any], object_id: str
    ) -> Mapping[str, Any]:
        """What a customer defines is its own unless it says otherwise."""
        content = self._id_resolver.identified(request, content, object_id)
        principal = principal_of(request)
        _expect_owner_unchanged(principal, content)
        if (
            principal.customer_id is None
            or "owner" in content
            or self.kind not in CUSTOMERS_KINDS
        ):
            return content
        return {**content, "owner": principal.customer_id}

    async def _content(self, request: web.Request, *types: str) -> Mapping[str, Any]:
        async with self._body_reader.read(request, accept=(JSON, *types)) as raw:
            try:
                content = msgspec.json.decode(without_nul(raw, document=self.kind))
            except SubmissionError as error:
                raise DefinitionError(self.kind, error.issues) from None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                msg = f"the body is not JSON: {error}"
                raise NotJsonError(msg) from None
        if not isinstance(content, dict):
            message = f"must be a JSON object with the fields of a {self.kind}"
            raise InvalidError([Issue("body", type(content).__name__, message)])
        return content

    async def _created(self, request: web.Request, stored: VersionedDefinition) -> web.Response:
        visible_id = display_id(stored.definition.id, principal_of(request).customer_id)
        location = {"Location": f"{self.path}/{visible_id}"}
        return await self._answer(request, stored, HTTPStatus.CREATED, location)

    async def _answer(
        self,
        request: web.Request,
        stored: VersionedDefinition,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> web.Response:
        content = await self._view(stored, request, None)
        return _json(content, status, {**etag(stored), **(headers or {})})

    async def _view(
        self, stored: VersionedDefinition, request: web.Request, fields: Sequence[str] | None
    ) -> dict[str, Any]:
        """With a pool, the insights that share it, unless nobody asks for them."""
        stored = stored.as_seen_by(principal_of(request).customer_id)
        if self.kind != "pool" or (fields is not None and "insight_ids" not in fields):
            seen_by = principal_of(request).customer_id
            return {**definition_view(stored), "id": display_id(stored.definition.id, seen_by)}
        seen_by = principal_of(request).customer_id
        insight_ids = await self._insight_ids(stored.definition.id, seen_by)
        return definition_view(stored, insight_ids=insight_ids)

    async def _insight_ids(self, pool_id: str, seen_by: str | None) -> list[str]:
        """All insights of a pool, however many."""
        query = ListQuery(
            kind="insight",
            filters=(Filter(("pool",), (pool_id,)),),
            limit=MAX_LISTED,
            seen_by=seen_by,
        )
        found: list[str] = []
        while True:
            listed = await with_timeout(self._store.list(query))
            found += [one.definition.id for one in listed.found]
            if listed.last is None:
                return found
            query = replace(query, after=listed.last)


def _expect_owner_unchanged(principal: Principal, content: Mapping[str, Any]) -> None:
    """What a customer defines stays its own."""
    owner = content.get("owner", principal.customer_id)
    if owner is not None and not isinstance(owner, str):
        return  # which is answered as what it is
    if not principal.speaks_for(owner):
        message = "a definition cannot be given away; leave it out, or name yourself"
        raise InvalidError([Issue("owner", str(owner)[:200], message)])


def _selected(content: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    return content if fields is None else {name: content[name] for name in fields}


def _next(wanted: ListRequest, last: Sequence[Any] | None) -> str | None:
    return None if last is None else cursor_of(wanted.query.sorts, last)


def _json(
    content: object, status: HTTPStatus, headers: Mapping[str, str] | None = None
) -> web.Response:
    body = msgspec.json.encode(content)
    return web.Response(body=body, status=status, headers=headers, content_type=JSON)
