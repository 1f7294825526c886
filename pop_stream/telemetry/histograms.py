"""Histograms by label values, bounded in number, with an example in each bucket.

The client's own histogram costs a lock and a walk over its buckets for each value. Ends of
agendas come by the ten thousand a second, in one thread, so here a value costs one bisection.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

OTHERS: Final = "(others)"
"""In place of each label's value, once as many series as may be are named."""

SERIES: Final = 200
"""Most series of a histogram, those of `(others)` aside."""

SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
    3600.0, 21_600.0, 86_400.0,
)  # fmt: skip
"""Waits and durations, from what a short queue takes to a day."""

_MAX_EXEMPLAR_LENGTH: Final = 128
"""Of names and values together, as OpenMetrics allows."""

_EXEMPLAR_EVERY_S: Final = 1.0
_TRACED_FOR_S: Final = 60.0
"""How long an example with a trace stays if there are only others: few agendas are traced."""


class BoundedLabels:
    """Values that may be labels: the first so many by their own names, all others by one.

    Args:
        most: How many are named.
    """

    def __init__(self, most: int = SERIES) -> None:
        self._most = most
        self._named: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """The values to show for these; a value that was named stays named."""
        known = self._named.get(values)
        if known is None:
            if len(self._named) >= self._most:
                return (OTHERS,) * len(values)
            known = self._named[values] = values
        return known


class _Series:
    __slots__ = ("counts", "exemplars", "free_at", "total", "traced_free_at")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.exemplars: list[Exemplar | None] = [None] * buckets
        self.free_at = [0.0] * buckets
        self.traced_free_at = [0.0] * buckets
        self.total = 0.0

    def add_example(
        self, bucket: int, seconds: float, example: str, trace_id: str, at: float
    ) -> None:
        """Name an agenda in the bucket, unless another was named there a moment ago."""
        if at < (self.traced_free_at if trace_id else self.free_at)[bucket]:
            return
        self.free_at[bucket] = at + (_TRACED_FOR_S if trace_id else _EXEMPLAR_EVERY_S)
        labels = {"agenda_id": example}
        if trace_id:
            self.traced_free_at[bucket] = at + _EXEMPLAR_EVERY_S
            labels["trace_id"] = trace_id
        if sum(map(len, (*labels, *labels.values()))) > _MAX_EXEMPLAR_LENGTH:
            del labels["agenda_id"]
        if labels:
            self.exemplars[bucket] = Exemplar(labels, seconds, at)


class LabelledHistogram(Collector):
    """A histogram by label values; for one thread.

    Args:
        name: Of the metric; ends in `_seconds`.
        help_text: What is measured.
        labels: Their names.
        buckets: Upper bounds, rising, without infinity.
    """

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str],
        buckets: Sequence[float] = SECONDS,
    ) -> None:
        self._name, self._help_text, self._labels = name, help_text, tuple(labels)
        self._bounds = tuple(buckets)
        self._bounded = BoundedLabels()
        self._series: dict[tuple[str, ...], _Series] = {}

    def observe(
        self,
        values: tuple[str, ...],
        seconds: float,
        *,
        example: str = "",
        trace_id: str = "",
        at: float = 0.0,
    ) -> None:
        """Count a value; one below 0, as clocks that differ lead to, counts as 0.

        Args:
            values: Of the labels.
            seconds: The value.
            example: The agenda that it is of; remembered once a second for each bucket.
            trace_id: Of its trace, if it is sampled; such an example goes first for a minute.
            at: The present instant, in seconds since the epoch.
        """
        series = self._series.get(values)
        if series is None:
            shown = self._bounded.of(values)
            series = self._series.get(shown)
            if series is None:
                series = self._series[shown] = _Series(len(self._bounds) + 1)
        seconds = max(0.0, seconds)
        bucket = bisect_left(self._bounds, seconds)
        series.counts[bucket] += 1
        series.total += seconds
        if example:
            series.add_example(bucket, seconds, example, trace_id, at)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """The family, with what was counted so far."""
        family = HistogramMetricFamily(self._name, self._help_text, labels=self._labels)
        for values, series in self._series.items():
            family.add_metric(values, self._buckets_of(series), series.total)
        yield family

    def _buckets_of(
        self, series: _Series
    ) -> Sequence[tuple[str, float] | tuple[str, float, Exemplar]]:
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        return [
            (bound, count) if exemplar is None else (bound, count, exemplar)
            for bound, count, exemplar in zip(
                bounds, accumulate(series.counts), series.exemplars, strict=True
            )
        ]
