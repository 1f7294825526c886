"""What the scheduler is asked: why an agenda waits, and what an insight's queue is like."""

from http import HTTPStatus

from aiohttp import web

from pop_stream.api.agendas.progress import found
from pop_stream.api.http.access import object_of, principal_of
from pop_stream.api.http.answers import answer
from pop_stream.api.http.patience import answer_in_time
from pop_stream.core.errors import NotFoundError
from pop_stream.core.events import CustomerShare, InsightAnswered
from pop_stream.core.lifecycle.explain import explain
from pop_stream.core.lifecycle.summary import Summary
from pop_stream.core.values.identity import Principal
from pop_stream.core.values.ids import InsightId
from pop_stream.core.values.own_ids import plain_id
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.questions import Questions
from pop_stream.ports.summaries import SummaryReader
from pop_stream.shapes.queues import CustomerStanding, QueueView, WhyView


class Explanations:
    """The handlers that need the scheduler's answer."""

    def __init__(
        self, questions: Questions, summaries: SummaryReader, definitions: DefinitionSource
    ) -> None:
        self._questions = questions
        self._summaries = summaries
        self._definitions = definitions

    async def get_why(self, request: web.Request) -> web.Response:
        """Why the agenda is where it is."""
        agenda_id = object_of(request)
        known = await answer_in_time(self._summaries.agenda(agenda_id))
        shown_id = plain_id(agenda_id, principal_of(request).customer_id)
        summary = found(known, "agenda", shown_id)
        told = None
        if not summary.state.is_terminal:
            told = await self._questions.ask(summary.insight_id, agenda_id)
        return answer(_why(summary, told, principal_of(request)), status=HTTPStatus.OK)

    async def get_queue(self, request: web.Request) -> web.Response:
        """What waits in the insight, whose it is, and how fast it goes."""
        insight_id = request.match_info["insight_id"]
        if InsightId(insight_id) not in self._definitions.current.insights:
            kind = "insight"
            raise NotFoundError(kind, insight_id[:200])
        told = await self._questions.ask(insight_id)
        return answer(_queue(told, principal_of(request)), status=HTTPStatus.OK)


def _why(summary: Summary, told: InsightAnswered | None, principal: Principal) -> WhyView:
    place = told.agenda if told else None
    return WhyView(
        id=plain_id(summary.agenda_id, principal.customer_id),
        state=summary.state,
        why=explain(summary, told),
        insight_id=summary.insight_id or None,
        position=place.position if place and place.state == "ready" else None,
        own_ahead=place.own_ahead if place and place.state == "ready" else None,
        urgent_ahead=place.urgent_ahead if place and place.state == "ready" else None,
        rises_at=place.rises_at if place else None,
        eta_s=place.eta_s if place else None,
        until=place.until if place else None,
        stopping=(place.stopping or None) if place else None,
        customer=_standing(place.customer) if place and place.customer else None,
        queue=_queue(told, principal) if told else None,
    )


def _queue(told: InsightAnswered, principal: Principal) -> QueueView:
    """The queue, with other customers counted but not named to a customer."""
    named = [one for one in told.customers if principal.speaks_for(one.customer_id)]
    return QueueView(
        insight_id=told.insight_id,
        at=told.at,
        algorithm=told.algorithm,
        ready=told.ready,
        waiting=told.delayed,
        held=told.held,
        lag=told.lag,
        in_flight=told.in_flight,
        slots=told.slots,
        limited_by=told.limited_by or None,
        target=told.target,
        rate_per_s=told.rate_per_s,
        gap_s=told.gap,
        bound_s=told.bound,
        customers=[_standing(one) for one in named],
        other_customers=told.others + len(told.customers) - len(named),
    )


def _standing(share: CustomerShare) -> CustomerStanding:
    return CustomerStanding(
        customer_id=share.customer_id,
        ready=share.ready,
        in_flight=share.in_flight,
        weight=share.weight,
        share=share.share,
        wait_s=share.wait_s,
        held_by=share.held_by or None,
    )
