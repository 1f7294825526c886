"""What a puller process does: runners, attempts, and how long operations take."""

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.telemetry.histograms import BoundedLabels, LabelledHistogram

Example = tuple[str, str, float]
"""The id of an agenda and that of its trace, and the present instant, since the epoch."""


class PullerMetrics(Collector):
    """Counts what ends; for one puller, in its event loop. Shown nowhere until registered.

    Operation types are those of registered handlers; insights are as records
    name them.

    Args:
        runners: Agendas that it runs at a time.

    Attributes:
        running: How many it holds the leases of now.
    """

    def __init__(self, runners: int = 0) -> None:
        self._runners = runners
        self.running: Callable[[], int] = int
        self._insights = BoundedLabels()
        self._attempts = Counter[tuple[str, str]]()
        self._operations = LabelledHistogram(
            "pop_operation_seconds",
            "Worker-seconds of ended operations: all tries of an attempt and pauses.",
            ["type", "outcome"],
        )

    def register(self, registry: CollectorRegistry) -> None:
        """Show it; once per registry."""
        registry.register(self)
        registry.register(self._operations)

    def record_operation(
        self, operation_type: str, outcome: str, worked_s: float, example: Example | None = None
    ) -> None:
        """An operation whose type has a handler has ended; the example is of a trace."""
        agenda_id, trace_id, at = example or ("", "", 0.0)
        self._operations.observe(
            (operation_type, outcome), worked_s, example=agenda_id, trace_id=trace_id, at=at
        )

    def record_attempt(self, insight_id: str, outcome: str) -> None:
        """An attempt has ended: `succeeded`, `failed`, `deferred` or `stopped`."""
        [shown] = self._insights.of((insight_id,))
        self._attempts[shown, outcome] += 1

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Runners, what runs, and ended attempts."""
        for name, help_text, value in (
            ("pop_puller_runners", "Agendas that this puller runs at a time.", self._runners),
            ("pop_puller_running", "Agendas that it has claimed.", self.running()),
        ):
            family = GaugeMetricFamily(name, help_text)
            family.add_metric([], value)
            yield family
        ended = CounterMetricFamily(
            "pop_attempts_ended",
            "Attempts that this puller has ended.",
            labels=["insight", "outcome"],
        )
        for labels, count in self._attempts.items():
            ended.add_metric(labels, count)
        yield ended
