"""The definitions in force, read-only."""

from collections.abc import Iterable
from http import HTTPStatus

from aiohttp import web

from pop_stream.api.models import JSON
from pop_stream.core.definitions import Definition
from pop_stream.ports import DefinitionSource


class DefinitionLists:
    """The handlers that list what an operator defined."""

    def __init__(self, definitions: DefinitionSource) -> None:
        self._definitions = definitions

    async def get_insights(self, _: web.Request) -> web.Response:
        """All insights, by id."""
        return _list(self._definitions.current.insights.values())

    async def get_customers(self, _: web.Request) -> web.Response:
        """All customers that are defined, by id; any other has the defaults."""
        return _list(self._definitions.current.customers.values())


def _list(definitions: Iterable[Definition]) -> web.Response:
    by_id = sorted(definitions, key=lambda one: one.id)
    text = f"[{','.join(one.model_dump_json() for one in by_id)}]"
    return web.Response(body=text.encode(), status=HTTPStatus.OK, content_type=JSON)
