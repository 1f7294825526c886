"""Everything that is served, as one table: router and document are both made from it.

Each resource has a table in a module of its own; this one puts them together, with the routes
of those who run the service: probes, metrics and the document itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import HttpVersion11, web

from pop_stream.api.agendas.commands import CommandEndpoints
from pop_stream.api.agendas.queries import QueueEndpoints
from pop_stream.api.agendas.reads import AgendaListEndpoints, ProgressEndpoints
from pop_stream.api.agendas.streams import StreamEndpoints
from pop_stream.api.dead_letters.endpoints import DeadLetterEndpoints
from pop_stream.api.definitions.insight_health import InsightHealthEndpoints
from pop_stream.api.definitions.resource import DefinitionEndpoints
from pop_stream.api.definitions.schedules import ScheduleEndpoints
from pop_stream.api.health import DoctorEndpoints, HealthEndpoints
from pop_stream.api.http.access import PUBLIC, Access, AccessGuard, Handler
from pop_stream.api.http.errors import NotReadyError
from pop_stream.api.http.route import Route, RouteResponse
from pop_stream.api.http.server import Metrics
from pop_stream.api.keys.keys import AuditEndpoints, KeyEndpoints
from pop_stream.api.owners import Owners
from pop_stream.api.pulls.pullers import PullerEndpoints
from pop_stream.api.pulls.pulls import PullEndpoints
from pop_stream.api.routes.agendas import agenda_routes, command_routes
from pop_stream.api.routes.dead_letters import dead_letter_routes
from pop_stream.api.routes.definitions import definition_routes, template_routes
from pop_stream.api.routes.keys import key_routes
from pop_stream.api.routes.pulls import pull_routes, puller_route
from pop_stream.api.routes.schedules import schedule_routes
from pop_stream.api.routes.stats import stats_routes
from pop_stream.api.routes.waits import wait_routes
from pop_stream.api.stats.endpoints import StatsEndpoints
from pop_stream.api.submissions.resubmissions import ResubmissionEndpoints
from pop_stream.api.submissions.submissions import SubmissionEndpoints
from pop_stream.api.submissions.template_runs import TemplateRunEndpoints
from pop_stream.api.waits.completions import CompletionEndpoints
from pop_stream.api.waits.endpoints import DecisionEndpoints, SignalEndpoints
from pop_stream.api_models.base import DoctorReport, Health, Readiness
from pop_stream.model.definitions import Kind
from pop_stream.model.errors import UnavailableError
from pop_stream.model.identity import Role


def service_routes(
    health: HealthEndpoints, doctor: DoctorEndpoints, metrics: Metrics, document: Handler
) -> tuple[Route, ...]:
    """Probes, the doctor, metrics and the document."""
    return (
        *_probe_routes(health),
        _doctor_route(doctor),
        *_description_routes(metrics, document),
    )


def _doctor_route(doctor: DoctorEndpoints) -> Route:
    return Route(
        "GET",
        "/v1/doctor",
        doctor.get,
        "examine",
        "What is wrong with the installation, in words, as `pop-stream doctor` says it",
        (RouteResponse("The findings; none if all is well.", (DoctorReport,)),),
        (UnavailableError,),
        access=Access(role=Role.ADMIN, operators_only=True),
    )


def _probe_routes(health: HealthEndpoints) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/healthz",
            health.get_alive,
            "getHealth",
            "The process is alive, whatever else is away",
            (RouteResponse("Alive.", (Health,)),),
            access=PUBLIC,
        ),
        Route(
            "GET",
            "/readyz",
            health.get_ready,
            "getReadiness",
            "Kafka and Postgres answer",
            (RouteResponse("Ready.", (Readiness,)),),
            (NotReadyError,),
            access=PUBLIC,
        ),
    )


def _description_routes(metrics: Metrics, document: Handler) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/metrics",
            metrics.get,
            "getMetrics",
            "Metrics for Prometheus",
            (RouteResponse("Prometheus text.", media_type="text/plain"),),
            access=Access(role=Role.READ, operators_only=True),
        ),
        Route(
            "GET",
            "/openapi.json",
            document,
            "getDocument",
            "This document",
            (RouteResponse("OpenAPI 3.1.", (dict[str, Any],)),),
            access=PUBLIC,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The handlers of all routes, and the owners of the objects in their paths."""

    owners: Owners
    submissions: SubmissionEndpoints
    progress: ProgressEndpoints
    commands: CommandEndpoints
    lists: AgendaListEndpoints
    pulls: PullEndpoints
    pullers: PullerEndpoints
    queue_endpoints: QueueEndpoints
    insight_health: InsightHealthEndpoints
    streams: StreamEndpoints
    health: HealthEndpoints
    doctor: DoctorEndpoints
    definitions: Mapping[Kind, DefinitionEndpoints]
    template_runs: TemplateRunEndpoints
    schedules: ScheduleEndpoints
    resubmissions: ResubmissionEndpoints
    keys: KeyEndpoints
    audit: AuditEndpoints
    dead_letters: DeadLetterEndpoints
    stats: StatsEndpoints
    signals: SignalEndpoints
    decisions: DecisionEndpoints
    completions: CompletionEndpoints
    metrics: Metrics
    document: Handler


def routes(endpoints: Endpoints) -> tuple[Route, ...]:
    """The table."""
    return (
        *agenda_routes(
            endpoints.owners,
            endpoints.submissions,
            endpoints.progress,
            endpoints.streams,
            endpoints.queue_endpoints,
        ),
        *command_routes(endpoints.owners, endpoints.commands, endpoints.lists),
        *definition_routes(
            endpoints.owners,
            endpoints.definitions,
            endpoints.queue_endpoints,
            endpoints.insight_health,
        ),
        *template_routes(endpoints.owners, endpoints.template_runs, endpoints.resubmissions),
        *schedule_routes(endpoints.owners, endpoints.schedules),
        *key_routes(endpoints.owners, endpoints.keys, endpoints.audit),
        *dead_letter_routes(endpoints.owners, endpoints.dead_letters),
        *stats_routes(endpoints.stats),
        *wait_routes(
            endpoints.owners, endpoints.signals, endpoints.decisions, endpoints.completions
        ),
        *pull_routes(endpoints.owners, endpoints.pulls),
        puller_route(endpoints.pullers),
        *service_routes(
            endpoints.health, endpoints.doctor, endpoints.metrics, endpoints.document
        ),
    )


def register(app: web.Application, table: tuple[Route, ...], guard: AccessGuard) -> None:
    """Let the application serve the table, and HEAD where GET ends by itself."""
    for route in table:
        handler = guard.before(route.handler, route.access)
        app.router.add_route(route.method, route.path, handler, expect_handler=_welcome_body)
        if route.method == "GET" and not route.is_stream:
            app.router.add_head(route.path, handler)


async def _welcome_body(request: web.Request) -> None:
    """Answer `Expect: 100-continue`; any other expectation may be ignored by RFC 9110."""
    wanted = request.headers.get("Expect", "").lower() == "100-continue"
    if wanted and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer proper has not begun
