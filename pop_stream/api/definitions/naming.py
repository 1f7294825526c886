"""Which definition a path or a body means: customers choose ids of their own for templates."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import with_timeout
from pop_stream.api.http.parameters import id_pattern
from pop_stream.model.definitions import CUSTOMERS_KINDS, Customer, Kind
from pop_stream.model.errors import NotFoundError
from pop_stream.model.identity import ANYONE, Ownership, Principal
from pop_stream.model.revisions import VersionedDefinition
from pop_stream.model.sharing import SharedDefinition
from pop_stream.model.tenancy import candidate_ids, display_id, is_qualified, resolve_unique
from pop_stream.ports.definitions import DefinitionStore


class IdResolver:
    """Resolves what callers call a definition of one kind to its id."""

    def __init__(self, kind: Kind, store: DefinitionStore) -> None:
        self._kind = kind
        self._is_named_by_customers = kind in CUSTOMERS_KINDS
        self._store = store

    def candidates(self, named: str, principal: Principal) -> Sequence[str]:
        """The ids that a caller may mean, likeliest first."""
        return candidate_ids(named, principal) if self._is_named_by_customers else (named,)

    async def named(self, request: web.Request) -> Sequence[str]:
        """The ids that the path may mean; an operator may leave the only customer out.

        Raises:
            NotFoundError: If nothing can have such an id.
        """
        named, principal = request.match_info[f"{self._kind}_id"], principal_of(request)
        if not id_pattern(f"{self._kind}_id").fits(named):
            raise NotFoundError(self._kind, named[:200])
        if not principal.is_operator or principal is ANYONE or not self._is_named_by_customers:
            return self.candidates(named, principal)
        if is_qualified(named):
            return (named,)
        found = await with_timeout(self._store.find_by_name(self._kind, named))
        return (resolve_unique(named, found),)

    async def resolve_visible(self, request: web.Request) -> VersionedDefinition | None:
        """The definition that the path means; None if the caller sees none.

        Raises:
            NotFoundError: If nothing can have such an id.
        """
        for object_id in await self.named(request):
            seen_by = principal_of(request).customer_id
            stored = await with_timeout(self._store.get(self._kind, object_id, seen_by=seen_by))
            if stored is not None and principal_of(request).sees(ownership(stored)):
                return stored
        return None

    async def resolve_target(self, request: web.Request, *, creates: bool = False) -> str:
        """The id of the definition that a request changes, whether or not it exists.

        Args:
            request: Whose path names it.
            creates: It may be new: then an operator means what it says and nothing else.

        Raises:
            NotFoundError: If nothing can have such an id.
        """
        named, principal = request.match_info[f"{self._kind}_id"], principal_of(request)
        if creates and principal.is_operator:
            return named
        stored = await self.resolve_visible(request)
        return self.candidates(named, principal)[0] if stored is None else stored.definition.id

    async def resolve_new(self, named: str, principal: Principal) -> str:
        """The id of a new definition, or of the caller's own that has the name already."""
        meant = self.candidates(named, principal)
        for object_id in meant[1:]:
            stored = await with_timeout(
                self._store.get(self._kind, object_id, seen_by=principal.customer_id)
            )
            if stored is not None and principal.speaks_for(ownership(stored).owner):
                return object_id
        return meant[0]

    def identified(
        self, request: web.Request, content: Mapping[str, Any], object_id: str
    ) -> Mapping[str, Any]:
        """The content under the id inside, if it comes under the one that the caller knows."""
        named = content.get("id")
        if named != display_id(object_id, principal_of(request).customer_id):
            return content
        return {**content, "id": object_id}


def ownership(stored: VersionedDefinition) -> Ownership:
    """Whose it is; pools belong to operators."""
    one = stored.definition
    return one.ownership if isinstance(one, SharedDefinition | Customer) else Ownership(None)
