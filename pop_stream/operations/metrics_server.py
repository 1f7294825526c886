"""Metrics of a part that serves no other HTTP, in Prometheus' text format."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    from aiohttp import web

_log = structlog.get_logger()


@asynccontextmanager
async def serve_metrics(
    registry: CollectorRegistry, host: str, port: int | None
) -> AsyncIterator[None]:
    """Serve `/metrics` and `/healthz` while the block runs; nothing if there is no port.

    Collected in the event loop, so collectors may read what the loop alone changes.

    Raises:
        OSError: If the address is taken or not ours.
    """
    if port is None:
        yield
        return
    from aiohttp import web  # noqa: PLC0415  # a third of the start of a part without a port

    async def metrics(_: "web.Request") -> "web.Response":
        body = generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def health(_: "web.Request") -> "web.Response":
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        _log.info("metrics.exposed", addresses=[str(one) for one in runner.addresses])
        yield
    finally:
        await runner.cleanup()
