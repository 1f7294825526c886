"""The definitions in force, read-only."""

from collections.abc import Iterable
from http import HTTPStatus

from aiohttp import web

from pop_stream.api.access import principal_of
from pop_stream.api.models import JSON
from pop_stream.core.definitions import Customer, Insight
from pop_stream.core.identity import Principal
from pop_stream.ports import DefinitionSource


class DefinitionLists:
    """The handlers that list what an operator defined."""

    def __init__(self, definitions: DefinitionSource) -> None:
        self._definitions = definitions

    async def get_insights(self, request: web.Request) -> web.Response:
        """All insights that the caller sees, by id."""
        return _list(self._definitions.current.insights.values(), principal_of(request))

    async def get_customers(self, request: web.Request) -> web.Response:
        """All customers that are defined and that the caller sees, by id."""
        return _list(self._definitions.current.customers.values(), principal_of(request))


def _list(definitions: Iterable[Insight | Customer], principal: Principal) -> web.Response:
    seen = (one for one in definitions if principal.sees(one.ownership))
    by_id = sorted(seen, key=lambda one: one.id)
    text = f"[{','.join(one.model_dump_json() for one in by_id)}]"
    return web.Response(body=text.encode(), status=HTTPStatus.OK, content_type=JSON)
