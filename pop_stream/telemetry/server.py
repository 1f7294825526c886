"""Metrics and probes of a part that serves no other HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from pop_stream.telemetry.process import event_loop_watched

if TYPE_CHECKING:
    from aiohttp import web

_CUT_OFF_AFTER_S: Final = 0.5
"""How long the end of a part waits for scrapers that do not read; 0 would be for ever."""

_log = structlog.get_logger()


def render_metrics(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics, and their content type, in the format that a scraper accepts.

    OpenMetrics, with an agenda in each bucket of a wait, if it asks for that; else Prometheus'
    text format. Collected at once, in the caller's thread: collectors may read what the event
    loop alone changes.
    """
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_LATEST


@asynccontextmanager
async def serve_metrics(
    registry: CollectorRegistry,
    host: str,
    port: int | None,
    *,
    is_ready: Callable[[], bool] = lambda: True,
) -> AsyncIterator[None]:
    """Serve `/metrics`, `/healthz` and `/readyz` while the block runs; nothing without a port.

    Args:
        registry: What is shown.
        host: Where to listen.
        port: Where to listen; 0 takes a free one.
        is_ready: Whether the part does its work now; `/readyz` answers 503 while it does not.

    Raises:
        OSError: If the address is taken or not ours.
    """
    if port is None:
        yield
        return
    from aiohttp import web  # noqa: PLC0415  # a third of the start of a part without a port

    async def metrics(request: "web.Request") -> "web.Response":
        body, content_type = render_metrics(registry, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def health(_: "web.Request") -> "web.Response":
        return web.json_response({"status": "ok"})

    async def readiness(_: "web.Request") -> "web.Response":
        if is_ready():
            return web.json_response({"status": "ready"})
        unavailable = HTTPStatus.SERVICE_UNAVAILABLE
        return web.json_response({"status": "not ready"}, status=unavailable)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", readiness)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CUT_OFF_AFTER_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        _log.info("metrics.exposed", addresses=[str(one) for one in runner.addresses])
        with event_loop_watched():
            yield
    finally:
        await runner.cleanup()
