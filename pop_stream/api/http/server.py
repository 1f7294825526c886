"""The listener, and what stands around every request: its id, its problem, its metrics.

It announces the actual address once it accepts connections, and stops in order: requests that
have begun end, event streams close.
It counts what it served, for Prometheus.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from yarl import URL

from pop_stream.api.http import problems
from pop_stream.api.http.correlation import (
    HEADER,
    bind_correlation,
    bind_span,
    correlation_id,
    current_trace,
)
from pop_stream.api.http.problems import from_malformed
from pop_stream.model.errors import PopStreamError
from pop_stream.settings import Settings
from pop_stream.telemetry import tracing
from pop_stream.telemetry.process import event_loop_watched, register_process_metrics
from pop_stream.telemetry.server import render_metrics

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The API's counters, in the registry of the process.

    Args:
        registry: Everything in it is shown at `/metrics`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        register_process_metrics(registry)
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

    async def get(self, request: web.Request) -> web.Response:
        """All metrics as text, for a Prometheus server."""
        body, content_type = render_metrics(self._registry, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})


_BACKLOG: Final = 1024
_KEEP_ALIVE_S: Final = 75.0
_HEADERS_WITHIN_S: Final = 10.0
_SHUTDOWN_TIMEOUT_S: Final = 1.0


async def serve(
    app: web.Application,
    settings: Settings,
    stop: asyncio.Event,
    *,
    on_url: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until `stop`, then let requests under way end and event streams close.

    Args:
        app: From `create_app`; it can be served once.
        settings: Where to listen, and how long a submission may take.
        stop: Set by whoever ends the process.
        on_url: Called with the actual address once it accepts connections.

    Raises:
        OSError: If the address is taken or not ours.
    """
    grace_s = settings.publish_timeout.total_seconds() + _SHUTDOWN_TIMEOUT_S
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=grace_s)
    await runner.setup()
    try:
        listener = await _listen(runner, settings)
        try:
            host, port = listener.sockets[0].getsockname()[:2]
            on_url(str(URL.build(scheme="http", host=host, port=port)))
            with event_loop_watched():
                await stop.wait()
        finally:
            listener.close()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, settings: Settings) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    server = runner.server
    if server is None:
        msg = "the runner is not set up"
        raise RuntimeError(msg)

    def protocol() -> web.RequestHandler:
        return _Protocol(server, loop)

    return await loop.create_server(
        protocol, settings.http_host, settings.http_port, backlog=_BACKLOG, reuse_address=True
    )


class _Protocol(web.RequestHandler):
    """aiohttp's, but a request's headers must arrive in time, and noise is answered too.

    The time runs from the connection, or from the first byte after an answer, until the
    middleware has the request. What comes meanwhile is its body, which `BodyReader` bounds.
    """

    __slots__ = ("_clock", "_headers_timer", "_serves")

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server, loop=loop, keepalive_timeout=_KEEP_ALIVE_S)
        self._clock = loop
        self._headers_timer: asyncio.TimerHandle | None = None
        self._serves = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio, once."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with bytes of headers or of a body."""
        if not self._serves:
            self._await_headers()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by asyncio, once."""
        self.serves(is_serving=True)
        super().connection_lost(exc)

    def serves(self, *, is_serving: bool) -> None:
        """Called by the middleware when it has a request, and when it has the answer."""
        self._serves = is_serving
        if is_serving and self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _await_headers(self) -> None:
        if self._headers_timer is None:
            self._headers_timer = self._clock.call_later(_HEADERS_WITHIN_S, self._give_up)

    def _give_up(self) -> None:
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.write(_HEADERS_TIMEOUT)
            self.transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what never became a request; all else is a fault of ours."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or request.writer.output_size:
            return super().handle_error(request, status, exc, message)
        return from_malformed(request, message or "this is no HTTP request")


_HEADERS_TIMEOUT: Final = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
_NO_SNIFF: Final = "X-Content-Type-Options"
_FIRST_ERROR: Final = 400


def around_requests(metrics: Metrics, submitting: Collection[str] = frozenset()) -> Middleware:
    """The application's one middleware.

    Args:
        metrics: Count what is answered.
        submitting: Paths of routes by which agendas come in.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        protocol = request.protocol
        if isinstance(protocol, _Protocol):
            protocol.serves(is_serving=True)
        bind_correlation(request)
        try:
            response = await _traced(request, handler, submitting)
        finally:
            if isinstance(protocol, _Protocol):
                protocol.serves(is_serving=False)
        metrics.answered(request, response, time.perf_counter() - started)
        return response

    return middleware


def bare_application() -> web.Application:
    """An application without routes that treats its requests as the API's treats its own."""
    app = web.Application(middlewares=[around_requests(Metrics(CollectorRegistry()))])
    app.on_response_prepare.append(add_correlation_id)
    return app


async def add_correlation_id(request: web.Request, response: web.StreamResponse) -> None:
    """Put the request's id on every answer, streams included, before its headers go out."""
    response.headers[HEADER] = correlation_id(request)
    response.headers[_NO_SNIFF] = "nosniff"


async def _traced(
    request: web.Request, handler: Handler, submitting: Collection[str]
) -> web.StreamResponse:
    """Answer; a submission within a span, if it is sampled."""
    spans = tracing.active()
    resource = request.match_info.route.resource
    if spans is None or request.method != "POST" or resource is None:
        return await _answer(request, handler)
    path = resource.canonical
    if path not in submitting:
        return await _answer(request, handler)

    def attributes() -> dict[str, str]:
        return {
            "http.request.method": request.method,
            "http.route": path,
            "url.scheme": request.scheme,
        }

    span = spans.begin_submit(current_trace(), attributes, over_http=True)
    if span is None:
        return await _answer(request, handler)
    bind_span(span)
    status = HTTPStatus.INTERNAL_SERVER_ERROR.value
    try:
        response = await _answer(request, handler)
        status = response.status
    finally:
        span.end(status=status, error_type=str(status) if status >= _FIRST_ERROR else "")
    return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except PopStreamError as error:
        return problems.from_error(request, error)
    except web.HTTPException as error:
        return problems.from_http(request, error)
    except Exception as error:
        if request.writer.output_size:
            raise  # an answer has begun: all that is left is to cut the connection
        return problems.from_fault(request, error)
