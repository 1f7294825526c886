"""Reads: an agenda, its progress, the roll-up of a link, and lists of agendas page by page."""

from http import HTTPStatus
from typing import Final, Literal, TypeVar

from aiohttp import web

from pop_stream.api.agendas.selection import cursor_of, page_of
from pop_stream.api.agendas.views import (
    agenda_view,
    link_view,
    operation_views,
    progress_view,
    rounded,
)
from pop_stream.api.http.access import object_of, principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api_models.agendas import CallbackList, CallbackView
from pop_stream.api_models.commands import AgendaList, ListedAgenda, SelectedAgendas
from pop_stream.model.errors import NotFoundError
from pop_stream.model.tenancy import display_id
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.agendas import AgendaListItem, AgendaStore
from pop_stream.ports.summaries import Callback, LinkScope, SummaryReader


class AgendaListEndpoints:
    """The handler of `GET /v1/agendas`."""

    def __init__(self, agendas: AgendaStore) -> None:
        self._agendas = agendas

    async def get(self, request: web.Request) -> web.Response:
        """A page of the agendas that the caller may see and the query selects."""
        principal = principal_of(request)
        page = page_of(request, principal)
        counted = await with_timeout(self._agendas.count(page.wanted))
        found = await with_timeout(
            self._agendas.page(
                page.wanted,
                limit=page.limit,
                after=page.after,
                newest_first=page.newest_first,
            )
        )
        listed = AgendaList(
            total=counted.agendas,
            total_is_capped=counted.is_capped,
            agendas=[_listed(one, principal.customer_id) for one in found.agendas],
            next=cursor_of(found.next) if found.next else None,
        )
        if page.fields is None:
            return json_response(listed, status=HTTPStatus.OK)
        selected = [
            {name: getattr(one, name) for name in page.fields} for one in listed.agendas
        ]
        return json_response(
            SelectedAgendas(
                total=listed.total,
                total_is_capped=listed.total_is_capped,
                agendas=selected,
                next=listed.next,
            ),
            status=HTTPStatus.OK,
        )


def _listed(one: AgendaListItem, seen_by: str | None) -> ListedAgenda:
    summary = one.summary
    return ListedAgenda(
        id=display_id(summary.agenda_id, seen_by),
        state=summary.state,
        attempt=summary.attempt,
        insight_id=summary.insight_id or None,
        customer_id=summary.customer_id or None,
        title=summary.title,
        link_id=summary.link_id,
        external_id=one.external_id,
        correlation_id=one.correlation_id,
        template_id=display_id(one.template_id, seen_by) if one.template_id else None,
        puller_id=summary.puller_id or None,
        priority=summary.priority,
        percent=rounded(one.percent),
        message=summary.message,
        accepted_at=summary.accepted_at,
        emitted_at=summary.emitted_at,
        started_at=summary.started_at,
        ended_at=summary.ended_at,
        waiting_until=summary.waiting_until,
        waiting_for=summary.waiting_for,
        stopping=summary.stopping,
    )


Kind = Literal["agenda", "link"]

T = TypeVar("T")

_OPERATION: Final = "operation"
_SHOWN: Final = 200
_MAX_CALLBACKS: Final = 100


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

    async def get_callbacks(self, request: web.Request) -> web.Response:
        """What became of the reports of the agenda's ends."""
        agenda_id, seen_by = object_of(request), principal_of(request).customer_id
        status = await with_timeout(self._summaries.attempt_status(agenda_id))
        found(status, "agenda", display_id(agenda_id, seen_by))
        known = await with_timeout(self._summaries.callbacks(agenda_id, limit=_MAX_CALLBACKS))
        view = CallbackList(callbacks=[_callback_view(one) for one in known])
        return json_response(view, status=HTTPStatus.OK)

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


def _callback_view(one: Callback) -> CallbackView:
    return CallbackView(
        id=one.webhook_id,
        url=one.url,
        state=one.state,
        tries=one.tries,
        created_at=one.created_at,
        due_at=one.due_at,
        ended_at=one.ended_at,
        reason=one.reason,
    )


def found(value: T | None, kind: Kind, object_id: str) -> T:
    """The value that was read, unless there is none.

    Raises:
        NotFoundError: If there is none.
    """
    if value is None:
        raise NotFoundError(kind, object_id)
    return value
