"""Questions that the scheduler answers: why an agenda waits, what an insight's queue has."""

from http import HTTPStatus

from aiohttp import web

from pop_stream.api.agendas.reads import found
from pop_stream.api.http.access import object_of, principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.body import BodyReader
from pop_stream.api_models.queues import (
    CustomerForecastView,
    CustomerQueueView,
    ForecastRequest,
    ForecastView,
    QueueView,
    StartForecastView,
    WhyView,
)
from pop_stream.model.errors import NotFoundError, UnavailableError
from pop_stream.model.events.forecast import StartForecast
from pop_stream.model.events.scheduling import CustomerShare, QueueDescribed
from pop_stream.model.identity import Principal
from pop_stream.model.ids import InsightId
from pop_stream.model.tenancy import display_id
from pop_stream.policy.lifecycle.explain import explain
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.queries import QueueQueries
from pop_stream.ports.summaries import SummaryReader


class QueueEndpoints:
    """The handlers that need the scheduler's answer."""

    def __init__(
        self,
        questions: QueueQueries,
        summaries: SummaryReader,
        definitions: DefinitionSource,
        body_reader: BodyReader,
    ) -> None:
        self._queries = questions
        self._summaries = summaries
        self._definitions = definitions
        self._body_reader = body_reader

    async def get_why(self, request: web.Request) -> web.Response:
        """Why the agenda is where it is."""
        agenda_id = object_of(request)
        known = await with_timeout(self._summaries.agenda(agenda_id))
        visible_id = display_id(agenda_id, principal_of(request).customer_id)
        summary = found(known, "agenda", visible_id)
        description = None
        if not summary.state.is_terminal:
            description = await self._queries.ask(summary.insight_id, agenda_id)
        return json_response(
            _why(summary, description, principal_of(request)), status=HTTPStatus.OK
        )

    async def get_queue(self, request: web.Request) -> web.Response:
        """What waits in the insight, whose it is, and how fast it goes."""
        description = await self._queries.ask(self._insight_id(request))
        return json_response(_queue(description, principal_of(request)), status=HTTPStatus.OK)

    async def post_forecast(self, request: web.Request) -> web.Response:
        """Who would start when with other weights."""
        insight_id = self._insight_id(request)
        asked = await self._body_reader.read_model(request, ForecastRequest)
        description = await self._queries.ask(insight_id, weights=asked.weights)
        return json_response(_forecast(description), status=HTTPStatus.OK)

    def _insight_id(self, request: web.Request) -> str:
        insight_id = request.match_info["insight_id"]
        if InsightId(insight_id) not in self._definitions.current.insights:
            kind = "insight"
            raise NotFoundError(kind, insight_id[:200])
        return insight_id


def _why(summary: Summary, description: QueueDescribed | None, principal: Principal) -> WhyView:
    place = description.agenda if description else None
    overdeclared = place.overdeclared if place else None
    return WhyView(
        id=display_id(summary.agenda_id, principal.customer_id),
        state=summary.state,
        why=explain(summary, description),
        insight_id=summary.insight_id or None,
        position=place.position if place and place.state == "ready" else None,
        own_ahead=place.own_ahead if place and place.state == "ready" else None,
        urgent_ahead=place.urgent_ahead if place and place.state == "ready" else None,
        rises_at=place.rises_at if place else None,
        eta_s=place.eta_s if place else None,
        until=place.until if place else None,
        stopping=(place.stopping or None) if place else None,
        declared_s=overdeclared.declared_s if overdeclared else None,
        counts_as_s=overdeclared.counts_as_s if overdeclared else None,
        customer=_customer_view(place.customer) if place and place.customer else None,
        queue=_queue(description, principal) if description else None,
    )


def _queue(description: QueueDescribed, principal: Principal) -> QueueView:
    """The queue, with other customers counted but not named to a customer."""
    named = [one for one in description.customers if principal.speaks_for(one.customer_id)]
    return QueueView(
        insight_id=description.insight_id,
        at=description.at,
        algorithm=description.algorithm,
        ready=description.ready,
        waiting=description.delayed,
        held=description.held,
        lag=description.lag,
        in_flight=description.in_flight,
        slots=description.slots,
        limited_by=description.limited_by or None,
        target=description.target,
        rate_per_s=description.rate_per_s,
        gap_s=description.gap,
        bound_s=description.bound,
        health=1.0 if description.health is None else round(description.health, 4),
        health_by=description.health_by or None,
        health_reason=description.health_reason or None,
        health_until=description.health_until,
        eligible=description.eligible,
        eligible_s=description.eligible_s,
        oldest_wait_s=description.oldest_wait_s,
        replicas_wanted=description.replicas_wanted,
        customers=[_customer_view(one) for one in named],
        other_customers=description.others + len(description.customers) - len(named),
    )


def _customer_view(share: CustomerShare) -> CustomerQueueView:
    return CustomerQueueView(
        customer_id=share.customer_id,
        ready=share.ready,
        in_flight=share.in_flight,
        weight=share.weight,
        share=share.share,
        wait_s=share.wait_s,
        held_by=share.held_by or None,
        delivered_s=share.delivered_s,
    )


def _forecast(description: QueueDescribed) -> ForecastView:
    forecast = description.forecast
    if forecast is None:
        msg = "the scheduler is of a version that makes no forecasts; update it"
        raise UnavailableError(msg)
    return ForecastView(
        insight_id=description.insight_id,
        at=description.at,
        algorithm=description.algorithm,
        rate_per_s=forecast.rate_per_s,
        horizon_s=forecast.horizon_s,
        customers=[
            CustomerForecastView(
                customer_id=one.customer_id,
                ready=one.ready,
                weight=one.weight,
                new_weight=one.new_weight,
                before=_starts(one.before),
                after=_starts(one.after),
            )
            for one in forecast.customers
        ],
        other_customers=forecast.others,
    )


def _starts(starts: StartForecast) -> StartForecastView:
    return StartForecastView(next_s=starts.next_s, last_s=starts.last_s, started=starts.started)
