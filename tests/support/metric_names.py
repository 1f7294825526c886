"""The metrics that parts show, as their collectors name them, and those of the reference."""

import re
from datetime import timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from pop_stream.api.http.server import Metrics
from pop_stream.clock import WallClock
from pop_stream.kafka.topics import Topics
from pop_stream.puller.metrics import PullerMetrics
from pop_stream.reconciler.schedule import ReconciliationMetrics
from pop_stream.rollup.metrics import RollupMetrics
from pop_stream.scheduler.metrics import RoundMetrics, SchedulerCollector
from pop_stream.scheduler.stall_watchdog import StallWatchdog
from pop_stream.telemetry.process import part_registry
from pop_stream.timekeeper.rule_counts import RuleMetrics

REFERENCE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def _scheduler(registry):
    RoundMetrics(registry)
    registry.register(SchedulerCollector(list, WallClock()))
    registry.register(
        StallWatchdog(
            None,
            Topics("pop."),
            WallClock(),
            stall_timeout=timedelta(minutes=1),
            partitions=set,
            is_suspended=bool,
        )
    )


def shown():
    """By part, the metrics that it shows: name to type."""
    every = part_registry()
    parts = {"All parts": every}
    for title in ("The API", "Ingest", "The scheduler", "The rollup", "A puller"):
        parts[title] = CollectorRegistry()
    Metrics(parts["The API"])
    RuleMetrics(parts["Ingest"])
    _scheduler(parts["The scheduler"])
    RollupMetrics(parts["The rollup"])
    ReconciliationMetrics(parts["The rollup"])
    PullerMetrics().register(parts["A puller"])
    names = {title: _names(registry) for title, registry in parts.items()}
    names["The API"] = {
        name: kind for name, kind in names["The API"].items() if name not in names["All parts"]
    }
    return names


def _names(registry):
    return {
        one.name + ("_total" if one.type == "counter" else ""): one.type
        for one in registry.collect()
    }


def documented():
    """By heading, the metrics of its table: name to type and labels."""
    found, heading = {}, ""
    for line in REFERENCE.read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif match := re.match(r"\| `(\w+)` \| (\w+) \| (.*?) \|", line):
            name, kind, labels = match.groups()
            found.setdefault(heading, {})[name] = (kind, re.findall(r"`(\w+)`", labels))
    return found
