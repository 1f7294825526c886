"""Everything that is served, as one table: router and document are both made from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import HttpVersion11, web

from pop_stream.api import models, streams
from pop_stream.api.definitions import DefinitionLists
from pop_stream.api.health import HealthChecks
from pop_stream.api.metrics import Metrics
from pop_stream.api.problems import (
    BusyError,
    MediaTypeError,
    NoneAcceptedError,
    NotJsonError,
    NotReadyError,
    RequestError,
    SlowBodyError,
    TooLargeError,
)
from pop_stream.api.progress import Progress
from pop_stream.api.questions import Explanations
from pop_stream.api.submissions import Submissions
from pop_stream.core.agenda import Agenda
from pop_stream.core.definitions import Customer, Insight
from pop_stream.core.errors import (
    NotFoundError,
    PopStreamError,
    SubmissionError,
    UnavailableError,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_READ_ERRORS = (NotFoundError, UnavailableError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a success looks like.

    Attributes:
        shapes: Types of which the JSON is one; without any, the answer is not JSON.
    """

    description: str
    shapes: tuple[Any, ...] = ()
    status: HTTPStatus = HTTPStatus.OK
    media_type: str | None = models.JSON


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    Attributes:
        name: Of the operation, for generated clients.
        summary: One line for a reader of the document.
        errors: What it may be refused with, besides faults of this side.
        takes: Types of which the body is one; none if there is no body.
    """

    method: str
    path: str
    handler: Handler
    name: str
    summary: str
    answers: tuple[Answer, ...]
    errors: tuple[type[PopStreamError], ...] = ()
    takes: tuple[Any, ...] = ()

    @property
    def is_stream(self) -> bool:
        """Whether the answer goes on until something happens."""
        return any(answer.media_type == streams.MEDIA_TYPE for answer in self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """Those who serve the routes."""

    submissions: Submissions
    progress: Progress
    explanations: Explanations
    streams: streams.Streams
    health: HealthChecks
    definitions: DefinitionLists
    metrics: Metrics
    document: Handler


def routes(handlers: Handlers) -> tuple[Route, ...]:
    """The table."""
    return (
        _submit(handlers.submissions),
        *_reads(handlers.progress),
        *_streams(handlers.streams),
        *_questions(handlers.explanations),
        *_lists(handlers.definitions),
        *_operations(handlers),
    )


def register(app: web.Application, table: tuple[Route, ...]) -> None:
    """Let the application serve the table, and HEAD where GET ends by itself."""
    for route in table:
        app.router.add_route(
            route.method, route.path, route.handler, expect_handler=_welcome_body
        )
        if route.method == "GET" and not route.is_stream:
            app.router.add_head(route.path, route.handler)


def _submit(submissions: Submissions) -> Route:
    one = Answer(
        "Acknowledged by Kafka. One agenda: Location says where to read on. "
        "A list: at least one of it was accepted.",
        (models.AcceptedAgenda, models.SubmissionResults),
        HTTPStatus.ACCEPTED,
    )
    return Route(
        "POST",
        "/v1/agendas",
        submissions.post,
        "submitAgendas",
        "Submit one agenda, or a list of which each stands or falls alone",
        (one,),
        errors=(
            NotJsonError,
            RequestError,
            SlowBodyError,
            TooLargeError,
            MediaTypeError,
            SubmissionError,
            NoneAcceptedError,
            UnavailableError,
            BusyError,
        ),
        takes=(Agenda, list[Agenda]),
    )


def _reads(progress: Progress) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/agendas/{agenda_id}",
            progress.get_agenda,
            "getAgenda",
            "An agenda's summary, and the agenda as accepted",
            (Answer("The summary.", (models.AgendaSummary,)),),
            _READ_ERRORS,
        ),
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/progress",
            progress.get_progress,
            "getAgendaProgress",
            "How far an agenda is, operation by operation",
            (Answer("The progress.", (models.AgendaProgress,)),),
            _READ_ERRORS,
        ),
        Route(
            "GET",
            "/v1/links/{link_id}/summary",
            progress.get_link,
            "getLinkSummary",
            "What all agendas with this link id add up to",
            (Answer("The roll-up.", (models.LinkView,)),),
            _READ_ERRORS,
        ),
    )


def _streams(handlers: streams.Streams) -> tuple[Route, ...]:
    over = Answer(
        "Last-Event-ID was the final event: nothing will follow.",
        status=HTTPStatus.NO_CONTENT,
        media_type=None,
    )
    progress = "Events `progress`: AgendaProgress as JSON, now and after every change."
    summary = "Events `summary`: LinkView as JSON, now and after every change."
    errors = (*_READ_ERRORS, BusyError)
    return (
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/events",
            handlers.get_agenda_events,
            "followAgenda",
            "Follow an agenda's progress until it has ended",
            (Answer(progress, media_type=streams.MEDIA_TYPE), over),
            errors,
        ),
        Route(
            "GET",
            "/v1/links/{link_id}/events",
            handlers.get_link_events,
            "followLink",
            "Follow what all agendas with this link id add up to",
            (Answer(summary, media_type=streams.MEDIA_TYPE),),
            errors,
        ),
    )


def _questions(explanations: Explanations) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/agendas/{agenda_id}/why",
            explanations.get_why,
            "explainAgenda",
            "Why an agenda waits: its position, its customer's share, and about how long",
            (Answer("The explanation.", (models.WhyView,)),),
            _READ_ERRORS,
        ),
        Route(
            "GET",
            "/v1/insights/{insight_id}/queue",
            explanations.get_queue,
            "getInsightQueue",
            "What waits in an insight, whose it is, and how fast it goes",
            (Answer("The queue.", (models.QueueView,)),),
            _READ_ERRORS,
        ),
    )


def _lists(definitions: DefinitionLists) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/insights",
            definitions.get_insights,
            "listInsights",
            "All insights in force, by id",
            (Answer("The insights.", (list[Insight],)),),
        ),
        Route(
            "GET",
            "/v1/customers",
            definitions.get_customers,
            "listCustomers",
            "All customers that are defined, by id; any other has the defaults",
            (Answer("The customers.", (list[Customer],)),),
        ),
    )


def _operations(handlers: Handlers) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/healthz",
            handlers.health.get_alive,
            "getHealth",
            "The process is alive, whatever else is away",
            (Answer("Alive.", (models.Health,)),),
        ),
        Route(
            "GET",
            "/readyz",
            handlers.health.get_ready,
            "getReadiness",
            "Kafka and Postgres answer",
            (Answer("Ready.", (models.Readiness,)),),
            (NotReadyError,),
        ),
        Route(
            "GET",
            "/metrics",
            handlers.metrics.get,
            "getMetrics",
            "Metrics for Prometheus",
            (Answer("Prometheus text.", media_type="text/plain"),),
        ),
        Route(
            "GET",
            "/openapi.json",
            handlers.document,
            "getDocument",
            "This document",
            (Answer("OpenAPI 3.1.", (dict[str, Any],)),),
        ),
    )


async def _welcome_body(request: web.Request) -> None:
    """Answer `Expect: 100-continue`; any other expectation may be ignored by RFC 9110."""
    wanted = request.headers.get("Expect", "").lower() == "100-continue"
    if wanted and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer proper has not begun
