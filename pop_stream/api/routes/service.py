"""The routes of those who run the service."""

from typing import Any

from pop_stream.api.health import HealthEndpoints
from pop_stream.api.http.access import PUBLIC, Access, Handler
from pop_stream.api.http.errors import NotReadyError
from pop_stream.api.http.metrics import Metrics
from pop_stream.api.http.route import RouteResponse, Route
from pop_stream.core.values.identity import Role
from pop_stream.shapes.service import Health, Readiness


def service_routes(
    health: HealthEndpoints, metrics: Metrics, document: Handler
) -> tuple[Route, ...]:
    """Probes, metrics and the document."""
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
