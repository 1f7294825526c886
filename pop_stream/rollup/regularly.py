"""Looks for what nobody has, at regular times, and what became of them."""

import asyncio
from datetime import timedelta
from itertools import islice
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from pop_stream.clock import wait_until_set
from pop_stream.core.errors import UnavailableError
from pop_stream.rollup.reconciliation import ReconciliationResult, Reconciler

_MAX_LOGGED: Final = 20

_log = structlog.get_logger()


class ReconciliationMetrics:
    """What became of all looks, for Prometheus.

    Args:
        registry: Where the counters are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "pop_reconciliations", "Looks for what nobody has.", ["result"], registry=registry
        )
        self._requeued = Counter(
            "pop_agendas_placed_again", "Agendas that nobody had.", registry=registry
        )

    def note(self, reconciled: ReconciliationResult | None) -> None:
        """Count and log what a look led to."""
        if reconciled is None:
            self._runs.labels("others_turn").inc()
            return
        self._requeued.inc(len(reconciled.placed))
        left = reconciled.beyond or reconciled.unanswered
        self._runs.labels("incomplete" if left else "complete").inc()
        if reconciled.placed or reconciled.beyond:
            _log.warning(
                "agendas.placed_again",
                count=len(reconciled.placed),
                agenda_ids=reconciled.placed[:_MAX_LOGGED],
                beyond_repair=dict(islice(reconciled.beyond.items(), _MAX_LOGGED)),
            )
        if reconciled.unanswered:
            _log.info("reconciliation.incomplete", unanswered=reconciled.unanswered)

    def record_postponed(self, error: Exception) -> None:
        """Count and log a look that could not be."""
        self._runs.labels("postponed").inc()
        _log.info("reconciliation.postponed", reason=str(error))


async def schedule_reconciliation(
    reconciler: Reconciler, told: ReconciliationMetrics, every: timedelta, stop: asyncio.Event
) -> None:
    """Look every so often until `stop`, the first time after that long."""
    while not await wait_until_set(stop, every.total_seconds()):
        try:
            told.note(await reconciler.reconcile(every))
        except UnavailableError as error:
            told.record_postponed(error)
