"""Measures a standing backlog: what an agenda costs to pick, to hold, and to recover."""

import secrets
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.topics import Topics, ensure, insight_spec
from pop_stream.lab.bench.load import NoopWorkload
from pop_stream.lab.bench.meter import ProcessUsage, read_usage
from pop_stream.lab.bench.session import definitions_toml
from pop_stream.lab.bench.standing_backlog import (
    SCHEDULER,
    SchedulerClients,
    StandingBacklog,
    insight_topics,
)
from pop_stream.model.definitions import AlgorithmName

_MAX_TARGET: Final = 200
_MIN_ROUND_AGENDAS: Final = 10_000
_WARM_UP_PICKS: Final = 100
_US: Final = 1e6


@dataclass(frozen=True, slots=True)
class BacklogBenchOptions:
    """What is to be measured.

    Attributes:
        ready: Agendas that wait, of all insights together.
        picks: Most that are picked one at a time.
        size: Bytes of an agenda.
    """

    ready: int
    customers: int
    insights: int
    picks: int
    size: int

    @property
    def target(self) -> int:
        """Target depth of each insight: less than its agendas, so that a backlog remains."""
        return max(1, min(_MAX_TARGET, self.ready // self.insights // 4))


async def run_backlog(
    bench_options: BacklogBenchOptions, folder: Path, on_progress: OnProgress
) -> Mapping[str, Any]:
    """Start broker and scheduler, fill, pick, kill, recover, stop; the report.

    Args:
        bench_options: What is to be measured.
        folder: For data and logs; a new one.
        on_progress: What is going on.

    Raises:
        CommandError: If something does not start, fails, or stands still for minutes.
    """
    run = secrets.token_hex(4)
    insights = [f"bench-{number}" for number in range(1, bench_options.insights + 1)]
    work = NoopWorkload(
        run, insights, customers=bench_options.customers, size=bench_options.size
    )
    async with AsyncExitStack() as entering:
        stack = Stack(_plan(bench_options, insights, folder), on_progress)
        await entering.enter_async_context(stack)
        await entering.enter_async_context(failing_with(stack))
        kafka_clients = await entering.enter_async_context(_connected_clients(stack, insights))
        backlog = StandingBacklog(kafka_clients, work)
        filled = await _fill(stack, backlog, bench_options)
        on_progress(f"{bench_options.ready:,} agendas routed in {filled['fill_s']:.1f} s")
        picked = await _pick(stack, backlog, bench_options)
        on_progress(f"picked one at a time: {picked['pick_us']:,.0f} µs of the scheduler")
        rounds = await _rounds(stack, backlog)
        memory = _scheduler(stack)
        recovery_s = await _recover(stack, backlog)
        after = _scheduler(stack)
    return {
        "ready": bench_options.ready,
        "customers": bench_options.customers,
        "insights": bench_options.insights,
        "target": bench_options.target,
        **picked,
        "rss_mb": round(memory.rss_mb, 1),
        "recovery_s": round(recovery_s, 3),
        **rounds,
        **filled,
        "peak_rss_mb": round(memory.peak_rss_mb, 1),
        "rss_after_recovery_mb": round(after.rss_mb, 1),
        "peak_rss_of_recovery_mb": round(after.peak_rss_mb, 1),
    }


def _plan(bench_options: BacklogBenchOptions, insights: list[str], folder: Path) -> StackPlan:
    folder.mkdir(parents=True, exist_ok=True)
    definitions = folder / "definitions.toml"
    algorithms: dict[str, AlgorithmName] = dict.fromkeys(insights, "weighted_fair")
    # A refill at once: whatever is claimed is replaced, one or many.
    text = definitions_toml(
        algorithms,
        bench_options.target,
        more=(f"low_water = {bench_options.target}", "partitions = 1", "lease_ms = 86400000"),
    )
    definitions.write_text(text, encoding="utf-8")
    return StackPlan(
        folder=folder,
        definitions=definitions,
        overrides={"topic_prefix": f"bench-{secrets.token_hex(3)}."},
        only=(SCHEDULER,),
    )


@asynccontextmanager
async def _connected_clients(
    stack: Stack, insights: list[str]
) -> AsyncIterator[SchedulerClients]:
    settings = stack.settings
    topics = Topics(settings.topic_prefix)
    async with (
        connections.admin_client(settings, client_id="bench-backlog") as admin,
        connections.publisher(settings, client_id="bench-backlog") as publisher,
        DefinitionFollower(settings, client_id="bench-backlog") as follower,
    ):
        specs = [insight_spec(topics, one, 1) for one in insights]
        await ensure(admin, specs, replication_factor=settings.replication_factor)
        consumer = clients.consumer(settings, client_id="bench-backlog", group_id=None)
        consumer.assign(insight_topics(topics, insights))
        async with consumer:
            yield SchedulerClients(topics, follower.current, publisher, consumer, admin)


async def _fill(
    stack: Stack, backlog: StandingBacklog, bench_options: BacklogBenchOptions
) -> dict[str, float]:
    """Fill to the target depth first: then the scheduler has started and joined its group."""
    out = bench_options.target * bench_options.insights
    await backlog.fill(out)
    await backlog.gather(out)
    before, begin = _scheduler(stack), monotonic()
    await backlog.fill(bench_options.ready)
    lasted, spent = monotonic() - begin, _scheduler(stack).cpu_s - before.cpu_s
    return {
        "fill_s": round(lasted, 3),
        "place_us": round(spent / bench_options.ready * _US, 2),
    }


async def _pick(
    stack: Stack, backlog: StandingBacklog, bench_options: BacklogBenchOptions
) -> dict[str, float]:
    """Pick one agenda at a time, of each insight in turn; each makes the backlog smaller."""
    insights = [*backlog.out]
    for number in range(min(_WARM_UP_PICKS, bench_options.ready // 4)):
        await backlog.pick_one(insights[number % len(insights)])
    picks = min(bench_options.picks, bench_options.ready // 2)
    before, begin = _scheduler(stack), monotonic()
    for number in range(picks):
        await backlog.pick_one(insights[number % len(insights)])
    lasted, spent = monotonic() - begin, _scheduler(stack).cpu_s - before.cpu_s
    return {
        "pick_us": round(spent / picks * _US, 1),
        "pick_wall_us": round(lasted / picks * _US, 1),
        "picks": picks,
    }


async def _rounds(stack: Stack, backlog: StandingBacklog) -> dict[str, float]:
    """Pick as many at a time as are emitted, and replace each: the backlog keeps its size."""
    await backlog.pick_all()
    before, begin, count = _scheduler(stack), monotonic(), 0
    while count < _MIN_ROUND_AGENDAS:
        count += await backlog.pick_all()
    lasted, spent = monotonic() - begin, _scheduler(stack).cpu_s - before.cpu_s
    return {
        "round_us": round(spent / count * _US, 2),
        "round_wall_us": round(lasted / count * _US, 2),
        "round_agendas": count,
    }


async def _recover(stack: Stack, backlog: StandingBacklog) -> float:
    """Kill and restart the scheduler; seconds from the kill until it emits again."""
    insight_id = next(iter(backlog.out))
    begin = monotonic()
    stack.supervisor.kill(SCHEDULER, signal.SIGKILL)
    await backlog.publish([backlog.note(insight_id, 1)])
    await backlog.gather(1)
    return monotonic() - begin


def _scheduler(stack: Stack) -> ProcessUsage:
    processes = stack.processes()
    return read_usage({SCHEDULER: processes[SCHEDULER]})[SCHEDULER]
