"""What is read once: an agenda, its progress, the roll-up of a link."""

from http import HTTPStatus
from typing import Final, Literal, TypeVar

from aiohttp import web

from pop_stream.api.agendas.views import agenda_view, link_view, operation_views, progress_view
from pop_stream.api.http.access import object_of, principal_of
from pop_stream.api.http.answers import json_response
from pop_stream.api.http.patience import with_timeout
from pop_stream.core.errors import NotFoundError
from pop_stream.core.lifecycle.summary import Summary
from pop_stream.core.values.own_ids import display_id
from pop_stream.ports.summaries import LinkScope, SummaryReader

Kind = Literal["agenda", "link"]

T = TypeVar("T")

_OPERATION: Final = "operation"
_SHOWN: Final = 200


class ProgressEndpoints:
    """The handlers that read one summary each."""

    def __init__(self, summaries: SummaryReader) -> None:
        self._summaries = summaries

    async def get_agenda(self, request: web.Request) -> web.Response:
        """The agenda's summary and the agenda itself."""
        seen_by = principal_of(request).customer_id
        view = agenda_view(await self._summary(request), seen_by=seen_by)
        return json_response(view, status=HTTPStatus.OK)

    async def get_progress(self, request: web.Request) -> web.Response:
        """How far the agenda is, operation by operation."""
        seen_by = principal_of(request).customer_id
        view = progress_view(await self._summary(request), seen_by=seen_by)
        return json_response(view, status=HTTPStatus.OK)

    async def get_operation(self, request: web.Request) -> web.Response:
        """How far one operation is, with its result."""
        named = request.match_info["operation"]
        summary = await self._summary(request)
        one = next((one for one in operation_views(summary) if one.name == named), None)
        if one is None:
            raise NotFoundError(_OPERATION, named[:_SHOWN])
        return json_response(one, status=HTTPStatus.OK)

    async def get_link(self, request: web.Request) -> web.Response:
        """What all agendas of the link add up to."""
        link_id = object_of(request)
        part = LinkScope(link_id, principal_of(request).customer_id)
        link = await with_timeout(self._summaries.link(part))
        return json_response(link_view(found(link, "link", link_id)), status=HTTPStatus.OK)

    async def _summary(self, request: web.Request) -> Summary:
        agenda_id = object_of(request)
        summary = await with_timeout(self._summaries.agenda(agenda_id))
        return found(
            summary, "agenda", display_id(agenda_id, principal_of(request).customer_id)
        )


def found(value: T | None, kind: Kind, object_id: str) -> T:
    """The value, if there is one.

    Raises:
        NotFoundError: If there is none.
    """
    if value is None:
        raise NotFoundError(kind, object_id)
    return value
