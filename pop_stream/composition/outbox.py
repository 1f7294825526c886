"""Composes the reader of a service's outbox."""

import asyncio
from contextlib import AsyncExitStack

import structlog
from pydantic import SecretStr

from pop_stream.client.client import Client
from pop_stream.client.transport import NO_RETRY
from pop_stream.outbox.reader import OutboxReader
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.submission_outbox import SubmissionOutbox
from pop_stream.settings import Settings
from pop_stream.telemetry.process import part_registry
from pop_stream.telemetry.server import serve_metrics

_log = structlog.get_logger()


async def run_outbox(
    settings: Settings, dsn: SecretStr, stop: asyncio.Event, *, creates_table: bool = False
) -> None:
    """Submit what is committed in the outbox of a service, until `stop`.

    Args:
        settings: Where the API is.
        dsn: The service's database.
        stop: Ends it.
        creates_table: Whether the table is made first, where there is none.
    """
    token = settings.api_token
    shown = token.get_secret_value() if token else None
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        at_service = settings.model_copy(update={"postgres_dsn": dsn})
        outbox = SubmissionOutbox(await enter(open_pool(at_service)))
        client = await enter(Client(settings.api_url, token=shown, retry=NO_RETRY))
        host, port = settings.metrics_host, settings.metrics_port
        await enter(
            serve_metrics(part_registry(), host, port, is_ready=lambda: not stop.is_set())
        )
        if creates_table:
            await outbox.create()
        _log.info("outbox.started", api=settings.api_url)
        await OutboxReader(outbox, client).run(stop)
    _log.info("outbox.stopped")
