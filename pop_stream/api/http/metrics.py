"""What the API counts, for Prometheus."""

from typing import Final

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from pop_stream.kafka.unreadable_records import UNREADABLE_RECORDS

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The API's counters, in the registry of the process.

    Args:
        registry: Everything in it is shown at `/metrics`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        registry.register(UNREADABLE_RECORDS)
        self._requests = Counter(
            "http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "http_request_seconds",
            "From a request's headers to its answer, event streams left out.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._accepted = Counter(
            "submissions_accepted", "Agendas answered with 202.", registry=registry
        )
        self._refused = Counter(
            "submissions_refused", "Agendas refused by the API.", ["code"], registry=registry
        )
        self.streams = Gauge("event_streams", "Event streams open now.", registry=registry)

    def answered(self, request: web.Request, response: web.StreamResponse, s: float) -> None:
        """Count an answer that took `s` seconds."""
        resource = request.match_info.route.resource
        # Neither paths nor methods that a client makes up may become a label of their own.
        route = resource.canonical if resource is not None else "unknown"
        method = request.method if request.method in _METHODS else "other"
        self._requests.labels(method, route, response.status).inc()
        if isinstance(response, web.Response):
            self._seconds.labels(route).observe(s)

    def accepted(self, agendas: int) -> None:
        """Count agendas that were published."""
        self._accepted.inc(agendas)

    def refused(self, code: str) -> None:
        """Count an agenda that was refused, by the reason's code."""
        self._refused.labels(code).inc()

    async def get(self, _: web.Request) -> web.Response:
        """All metrics as text, for a Prometheus server."""
        content_type = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self._registry), headers=content_type)
