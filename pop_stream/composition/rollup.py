"""Composes the rollup, with dead letters, reconciler, retention and webhooks beside it."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry

from pop_stream.clock import WallClock, wait_until_set
from pop_stream.composition.reconciler import open_reconciler
from pop_stream.conditions.watcher import ConditionWatcher
from pop_stream.kafka import connections
from pop_stream.kafka.errors import KafkaError
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import Publisher
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.postgres.conditions import PostgresConditions
from pop_stream.postgres.dead_letters import PostgresDeadLetters
from pop_stream.postgres.occurrences import PostgresOccurrences
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.signals import PostgresSignals
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.reconciler.schedule import ReconciliationMetrics, schedule_reconciliation
from pop_stream.rollup.dead_letters import store_dead_letters
from pop_stream.rollup.metrics import RollupMetrics
from pop_stream.rollup.occurrences import store_occurrences
from pop_stream.rollup.retention import remove_expired, retention_from, schedule_retention
from pop_stream.rollup.rollup import roll_up
from pop_stream.settings import Settings
from pop_stream.telemetry.process import OUTBOX_AGES, part_registry
from pop_stream.telemetry.server import serve_metrics

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool


_log = structlog.get_logger()

_AGAIN_AFTER_S: Final = 5.0
"""When what could not be opened is tried once more."""

_LOOK_EVERY_S: Final = 15.0
"""Between two looks at the outbox of webhooks."""


async def run_rollup(settings: Settings, stop: asyncio.Event) -> None:
    """Rollup and all that runs beside it, until `stop`; ends if one fails."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        pool = await enter(open_pool(settings, for_rollup=True))
        publish = await enter(connections.publisher(settings, client_id="rollup"))
        registry = part_registry()
        metrics = RollupMetrics(registry)
        host, port = settings.metrics_host, settings.metrics_port
        await enter(serve_metrics(registry, host, port, is_ready=lambda: not stop.is_set()))
        async with asyncio.TaskGroup() as tasks:
            store = PostgresSummaries(pool)
            folding = roll_up(
                settings, store=store, publisher=publish, stop=stop, metrics=metrics
            )
            tasks.create_task(folding, name="rollup")
            if settings.webhook_keys:
                sending = _send_webhooks(settings, pool, publish, stop)
                tasks.create_task(sending, name="webhooks")
                if port is not None:
                    tasks.create_task(_watch_webhooks(pool, stop), name="webhook_age")
            else:
                _log.info("webhooks.disabled", remedy="set POP_WEBHOOK_KEYS to send them")
            storing = store_dead_letters(settings, store=PostgresDeadLetters(pool), stop=stop)
            tasks.create_task(storing, name="dead-letters")
            listing = store_occurrences(settings, store=PostgresOccurrences(pool), stop=stop)
            tasks.create_task(listing, name="occurrences")
            watcher = ConditionWatcher(
                settings, PostgresSignals(pool), PostgresConditions(pool), publish, WallClock()
            )
            tasks.create_task(watcher.run(stop), name="conditions")
            retention_store = PostgresRetention(pool)
            retaining = schedule_retention(settings, retention_store, WallClock(), stop)
            tasks.create_task(retaining, name="retention")
            if settings.reconcile_every:
                reconciling = _reconcile(settings, pool, publish, registry, stop)
                tasks.create_task(reconciling, name="reconciliation")


async def _send_webhooks(
    settings: Settings, pool: "Pool", publish: Publisher, stop: asyncio.Event
) -> None:
    from pop_stream.postgres.webhooks import PostgresWebhooks
    from pop_stream.webhooks.sender import WebhookSender

    async with WebhookSender(settings, PostgresWebhooks(pool), publish, WallClock()) as sender:
        await sender.run(stop)


async def _watch_webhooks(pool: "Pool", stop: asyncio.Event) -> None:
    """Look now and then since when the oldest webhook waits, so that no scrape has to."""
    from pop_stream.postgres.webhooks import PostgresWebhooks

    outbox = PostgresWebhooks(pool)
    while not stop.is_set():
        with suppress(UnavailableError):  # the last answer goes on to age
            OUTBOX_AGES.set("webhooks", await outbox.oldest_waiting_at())
        await wait_until_set(stop, _LOOK_EVERY_S)


async def _reconcile(
    settings: Settings,
    pool: "Pool",
    publish: Publisher,
    registry: CollectorRegistry,
    stop: asyncio.Event,
) -> None:
    """Requeue agendas that no scheduler has, until `stop`; waits for brokers and database."""
    metrics = ReconciliationMetrics(registry)
    while not stop.is_set():
        try:
            async with open_reconciler(settings, pool, publish) as reconciler:
                await schedule_reconciliation(
                    reconciler, metrics, settings.reconcile_every, stop
                )
        except (UnavailableError, KafkaError, OSError) as error:
            metrics.record_postponed(error)
            await wait_until_set(stop, _AGAIN_AFTER_S)


async def run_retention_once(settings: Settings, *, dry_run: bool) -> dict[str, int]:
    """Remove what is old enough, once; see `remove_expired`."""
    async with open_pool(settings) as pool:
        now = WallClock().now()
        return await remove_expired(
            PostgresRetention(pool), retention_from(settings), now, dry_run=dry_run
        )
