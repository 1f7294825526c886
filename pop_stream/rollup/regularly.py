"""Looks for what nobody has, at regular times, and what became of them."""

import asyncio
from datetime import timedelta
from itertools import islice
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from pop_stream.clock import is_set_within
from pop_stream.core.errors import UnavailableError
from pop_stream.rollup.reconciliation import Reconciled, Reconciler

_SHOWN: Final = 20

_log = structlog.get_logger()


class Reconciliations:
    """What became of all looks, for Prometheus.

    Args:
        registry: Where the counters are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._looks = Counter(
            "pop_reconciliations", "Looks for what nobody has.", ["result"], registry=registry
        )
        self._placed = Counter(
            "pop_agendas_placed_again", "Agendas that nobody had.", registry=registry
        )

    def note(self, reconciled: Reconciled | None) -> None:
        """Count and log what a look led to."""
        if reconciled is None:
            self._looks.labels("others_turn").inc()
            return
        self._placed.inc(len(reconciled.placed))
        left = reconciled.beyond or reconciled.unanswered
        self._looks.labels("incomplete" if left else "complete").inc()
        if reconciled.placed or reconciled.beyond:
            _log.warning(
                "agendas.placed_again",
                count=len(reconciled.placed),
                agenda_ids=reconciled.placed[:_SHOWN],
                beyond_repair=dict(islice(reconciled.beyond.items(), _SHOWN)),
            )
        if reconciled.unanswered:
            _log.info("reconciliation.incomplete", unanswered=reconciled.unanswered)

    def note_postponed(self, error: Exception) -> None:
        """Count and log a look that could not be."""
        self._looks.labels("postponed").inc()
        _log.info("reconciliation.postponed", reason=str(error))


async def reconcile_regularly(
    reconciler: Reconciler, told: Reconciliations, every: timedelta, stop: asyncio.Event
) -> None:
    """Look every so often until `stop`, the first time after that long."""
    while not await is_set_within(stop, every.total_seconds()):
        try:
            told.note(await reconciler.reconcile(every))
        except UnavailableError as error:
            told.note_postponed(error)
