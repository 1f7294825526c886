"""What became of agendas, as the rollup folds it, and how long writing that takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.summaries import FoldedBatch, SummaryChange
from pop_stream.telemetry.histograms import BoundedLabels, LabelledHistogram

_LOST: Final = "lost"
_ENDS: Final = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "stopped",
    State.EXPIRED: "stopped",
}


class RollupMetrics:
    """Counts what is committed; for one rollup, in its event loop.

    A batch whose commit fails is not counted, and one that is folded again has no changes: so
    an end is counted once, unless the process dies between its commit and its next scrape.

    Args:
        registry: Where it is shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._insights = BoundedLabels()
        self._ends = LabelledHistogram(
            "pop_submission_to_end_seconds",
            "From an agenda's acceptance to its end, planned waits included.",
            ["insight", "state"],
        )
        registry.register(self._ends)
        self._attempts = Counter(
            "pop_attempts_folded",
            "Attempts that are over, by how they ended.",
            ["insight", "outcome"],
            registry=registry,
        )
        self._refused = Counter(
            "pop_agendas_refused", "Submissions refused by ingest.", registry=registry
        )
        self._events = Counter(
            "pop_events_folded",
            "Lifecycle events, by whether they followed from the state.",
            ["result"],
            registry=registry,
        )
        self._writes = Histogram(
            "pop_postgres_write_seconds",
            "Of one batch of events: from the first statement to the commit.",
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=registry,
        )

    @contextmanager
    def write_timed(self) -> Iterator[None]:
        """Measure a transaction, whether it commits or fails."""
        started = perf_counter()
        try:
            yield
        finally:
            self._writes.observe(perf_counter() - started)

    def record(self, folded: FoldedBatch, at: datetime) -> None:
        """Count what a committed batch changed.

        Args:
            folded: The batch.
            at: The present instant.
        """
        self._events.labels("applied").inc(folded.applied)
        self._events.labels("skipped").inc(folded.skipped)
        for change in folded.changes:
            if change.before is None or change.after.state is not change.before.state:
                self._record_state(change, at)
            if len(change.after.history) > (len(change.before.history) if change.before else 0):
                past = change.after.history[-1]
                if past.outcome in {"failed", _LOST}:
                    self._count_attempt(change.after.insight_id, past.outcome)

    def _record_state(self, change: SummaryChange, at: datetime) -> None:
        after = change.after
        if after.state is State.REFUSED:
            self._refused.inc()
        outcome = _ENDS.get(after.state)
        if outcome is None or after.accepted_at is None or after.ended_at is None:
            return
        self._ends.observe(
            (after.insight_id, after.state.value),
            (after.ended_at - after.accepted_at).total_seconds(),
            example=after.agenda_id,
            at=at.timestamp(),
        )
        if after.started_at is not None:
            self._count_attempt(after.insight_id, outcome)

    def _count_attempt(self, insight_id: str, outcome: str) -> None:
        [shown] = self._insights.of((insight_id,))
        self._attempts.labels(shown, outcome).inc()
