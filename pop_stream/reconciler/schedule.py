"""Reconciles every so often, and counts and logs what came of it."""

import asyncio
from datetime import timedelta
from itertools import islice
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from pop_stream.clock import wait_until_set
from pop_stream.model.errors import UnavailableError
from pop_stream.reconciler.reconciler import LedgerAudit, Reconciler

_MAX_LOGGED: Final = 20

_log = structlog.get_logger()


class ReconciliationMetrics:
    """What became of all reconciliations, for Prometheus.

    Args:
        registry: Where the counters are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "pop_reconciliations", "Looks for what nobody has.", ["result"], registry=registry
        )
        self._requeued = Counter(
            "pop_agendas_requeued", "Agendas that nobody had.", registry=registry
        )

    def record(self, audit: LedgerAudit | None) -> None:
        """Count and log what a reconciliation led to; None was another process' turn."""
        if audit is None:
            self._runs.labels("others_turn").inc()
            return
        self._requeued.inc(len(audit.repaired))
        left = audit.unrepairable or audit.unanswered
        self._runs.labels("incomplete" if left else "complete").inc()
        if audit.repaired or audit.unrepairable:
            _log.warning(
                "agendas.requeued",
                count=len(audit.repaired),
                agenda_ids=audit.repaired[:_MAX_LOGGED],
                beyond_repair=dict(islice(audit.unrepairable.items(), _MAX_LOGGED)),
            )
        if audit.unanswered:
            _log.info("reconciliation.incomplete", unanswered=[*audit.unanswered])

    def record_postponed(self, error: Exception) -> None:
        """Count and log a reconciliation that could not be."""
        self._runs.labels("postponed").inc()
        _log.info("reconciliation.postponed", reason=str(error))


async def schedule_reconciliation(
    reconciler: Reconciler,
    metrics: ReconciliationMetrics,
    every: timedelta,
    stop: asyncio.Event,
) -> None:
    """Reconcile every so often until `stop`, the first time after that long."""
    while not await wait_until_set(stop, every.total_seconds()):
        try:
            metrics.record(await reconciler.reconcile(every))
        except UnavailableError as error:
            metrics.record_postponed(error)
