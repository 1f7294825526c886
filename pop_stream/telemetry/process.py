"""What all parts count alike, and the registry that a part shows.

The counters are the process's: whatever in it counts, they are shown once.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.clock import WallClock
from pop_stream.telemetry.progress import ConsumerProgressCollector

UNREADABLE_RECORDS: Final = Counter(
    "pop_unreadable_records",
    "Records of internal topics that this process skipped, as it could not read them.",
    ["topic"],
    registry=None,
)
UNWRITABLE_RECORDS: Final = Counter(
    "pop_unwritable_records",
    "Records that this process left out, as no record can be so large.",
    ["topic"],
    registry=None,
)
DEAD_LETTERS: Final = Counter(
    "pop_dead_letters", "Dead letters that this process made.", ["part"], registry=None
)
SPANS: Final = Counter(
    "pop_spans",
    "Spans that ended here: exported, export_failed, or dropped as the queue was full.",
    ["result"],
    registry=None,
)
EVENT_LOOP_DELAY: Final = Histogram(
    "pop_event_loop_delay_seconds",
    "How much later than asked for the event loop called, four times a second.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    registry=None,
)

_PERIOD_S: Final = 0.25
_WALL: Final = WallClock()


class OutboxAges(Collector):
    """Since when the oldest entry of each outbox waits, as whoever empties it last found."""

    def __init__(self) -> None:
        self._oldest: dict[str, datetime | None] = {}

    def set(self, outbox: str, oldest_at: datetime | None) -> None:
        """Take note of what was found; None if nothing waits."""
        self._oldest[outbox] = oldest_at

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The age by outbox; it grows while nobody can look."""
        family = GaugeMetricFamily(
            "pop_outbox_age_seconds",
            "Since the oldest entry of an outbox of the database waits.",
            labels=["outbox"],
        )
        now = _WALL.now()
        for outbox, at in self._oldest.items():
            age_s = 0.0 if at is None else max(0.0, (now - at).total_seconds())
            family.add_metric([outbox], age_s)
        yield family


OUTBOX_AGES: Final = OutboxAges()


def register_process_metrics(registry: CollectorRegistry) -> None:
    """Show what this process counts, its processor time and memory among it."""
    for one in (UNREADABLE_RECORDS, UNWRITABLE_RECORDS, DEAD_LETTERS, SPANS, EVENT_LOOP_DELAY):
        registry.register(one)
    registry.register(ConsumerProgressCollector())
    registry.register(OUTBOX_AGES)
    ProcessCollector(registry=registry)


def part_registry() -> CollectorRegistry:
    """A new registry that shows what this process counts; the part adds its own."""
    registry = CollectorRegistry()
    register_process_metrics(registry)
    return registry


@contextmanager
def event_loop_watched() -> Iterator[None]:
    """Measure the delay of the running event loop while the block runs."""
    loop = asyncio.get_running_loop()
    handle = loop.call_later(0.0, lambda: None)

    def call(due: float | None = None) -> None:
        nonlocal handle
        now = monotonic()
        if due is not None:
            EVENT_LOOP_DELAY.observe(max(0.0, now - due))
        handle = loop.call_later(_PERIOD_S, call, now + _PERIOD_S)

    call()
    try:
        yield
    finally:
        handle.cancel()
