"""Lists of agendas, page by page."""

from http import HTTPStatus

from aiohttp import web

from pop_stream.api.agendas.selection import cursor_of, page_of, position_of
from pop_stream.api.agendas.views import rounded
from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import json_response
from pop_stream.api.http.patience import with_timeout
from pop_stream.core.values.own_ids import display_id
from pop_stream.ports.agendas import AgendaStore, AgendaListItem
from pop_stream.shapes.commands import AgendaList, ListedAgenda


class AgendaListEndpoints:
    """The handler of `GET /v1/agendas`."""

    def __init__(self, agendas: AgendaStore) -> None:
        self._agendas = agendas

    async def get(self, request: web.Request) -> web.Response:
        """A page of the agendas that the caller may see and the query selects."""
        principal = principal_of(request)
        page = page_of(request, principal)
        total = await with_timeout(self._agendas.count(page.wanted))
        agendas = await with_timeout(
            self._agendas.page(
                page.wanted,
                limit=page.limit + 1,
                after=page.after,
                newest_first=page.newest_first,
            )
        )
        shown = agendas[: page.limit]
        goes_on = len(agendas) > page.limit
        listed = AgendaList(
            total=total,
            agendas=[_listed(one, principal.customer_id) for one in shown],
            next=cursor_of(position_of(shown[-1].summary)) if goes_on else None,
        )
        return json_response(listed, status=HTTPStatus.OK)


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
