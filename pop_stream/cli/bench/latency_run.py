"""An open loop at a fixed rate through the whole path, every agenda followed."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Final, Literal

import aiohttp

from pop_stream.bus.topics import Topics
from pop_stream.cli.bench.figures import percentiles_ms
from pop_stream.cli.bench.handlers import NOTED, read_starts
from pop_stream.cli.bench.meter import (
    other_usage,
    own_parts,
    read_usage,
    read_machine,
    cpu_seconds,
)
from pop_stream.cli.bench.noop_work import NoopWorkload
from pop_stream.cli.bench.open_loop import OpenLoopRun, Submit, run_open_loop
from pop_stream.cli.bench.pipeline_run import PipelineBenchOptions
from pop_stream.cli.bench.pipeline_run import insights_of, plan_of
from pop_stream.cli.bench.stages import name_of, on_monotonic, stages
from pop_stream.cli.bench.store import BenchStore, open_store
from pop_stream.cli.bench.tail import EndOffsets, read_end_offsets, read_events
from pop_stream.cli.stack import Stack, OnProgress, failing_with
from pop_stream.clock import WallClock
from pop_stream.ports.wire import Record
from pop_stream.wiring import connections

Via = Literal["kafka", "http"]

_MAX_CONNECTIONS: Final = 100


@dataclass(frozen=True, slots=True)
class LatencyBenchOptions:
    """What is to be measured.

    Attributes:
        rate: Agendas a second.
        warm_up: Seconds at the same rate before what is counted.
        path: What is started.
    """

    rate: float
    seconds: float
    warm_up: float
    via: Via
    path: PipelineBenchOptions


async def run_latency(
    bench_options: LatencyBenchOptions, folder: Path, on_progress: OnProgress
) -> Mapping[str, Any]:
    """Start a stack, run the loop, stop it; the report without its conditions.

    Args:
        bench_options: What is to be measured.
        folder: Absolute, for data and logs; a new one.
        on_progress: What is going on.

    Raises:
        CommandError: If something does not start, or fails on the way.
    """
    starts = folder / "starts"
    async with AsyncExitStack() as entering:
        plan = plan_of(bench_options.path, folder, bench_starts=starts)
        starts.mkdir(exist_ok=True)
        stack = Stack(plan, on_progress)
        await entering.enter_async_context(stack)
        await entering.enter_async_context(failing_with(stack))
        store = await entering.enter_async_context(open_store(stack.settings))
        on_progress(f"warming up for {bench_options.warm_up:g} s")
        await _loop(stack, store, bench_options, bench_options.warm_up)
        on_progress(
            f"measuring for {bench_options.seconds:g} s at {bench_options.rate:g} agendas/s"
        )
        begin = await read_end_offsets(stack.settings)
        before, began, used = read_usage(stack.processes()), read_machine(), process_time()
        work, run = await _loop(stack, store, bench_options, bench_options.seconds)
        costs, ended = read_usage(stack.processes()), read_machine()
        cpu_s = {**cpu_seconds(before, costs), "bench": process_time() - used}
        lasted = ended.at - began.at
        lifecycle = await _read_instants(stack, work, run, begin)
    by_id = _instants(work, run, read_starts(starts), lifecycle)
    return {
        **_report(run, by_id),
        "core_share": {name: round(one / lasted, 4) for name, one in cpu_s.items()},
        "core_share_besides": other_usage(began, ended, sum(cpu_s.values())),
        "peak_rss_mb": round(sum(costs[name].peak_rss_mb for name in own_parts(costs)), 1),
    }


async def _loop(
    stack: Stack, store: BenchStore, bench_options: LatencyBenchOptions, seconds: float
) -> tuple[NoopWorkload, OpenLoopRun]:
    path = bench_options.path
    work = NoopWorkload(
        secrets.token_hex(4),
        insights_of(path.insights),
        customers=path.customers,
        operations=path.operations,
        size=path.size,
        operation_type=NOTED,
    )

    async def ended(numbers: Sequence[int]) -> Sequence[int]:
        found = await store.ended_among([work.agenda_id(one) for one in numbers])
        return [int(one.rpartition("-")[2]) for one in found]

    total = max(1, int(bench_options.rate * seconds))
    async with AsyncExitStack() as entering:
        submit = await _submitter(entering, stack, work, bench_options.via)
        return work, await run_open_loop(submit, ended, rate=bench_options.rate, total=total)


async def _submitter(
    entering: AsyncExitStack, stack: Stack, work: NoopWorkload, via: Via
) -> Submit:
    """Ready to submit: connected, and with the topic's metadata known."""
    settings = stack.settings
    if via == "http":
        connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS)
        session = await entering.enter_async_context(aiohttp.ClientSession(connector=connector))
        url = f"{settings.api_url}/v1/agendas"
        headers = {"Content-Type": "application/json"}

        async def post(number: int) -> None:
            async with session.post(url, data=work.body(number), headers=headers) as answer:
                answer.raise_for_status()
                await answer.read()

        return post
    topic = Topics(settings.topic_prefix).submissions
    publisher = await entering.enter_async_context(
        connections.publisher(settings, client_id="bench")
    )
    await publisher.partitions(topic)

    async def publish(number: int) -> None:
        key = work.agenda_id(number).encode()
        await publisher.publish([Record(topic, key, work.body(number))])

    return publish


async def _read_instants(
    stack: Stack, work: NoopWorkload, run: OpenLoopRun, begin: EndOffsets
) -> Mapping[str, Mapping[str, float]]:
    """The instants of each agenda's lifecycle, by id and stage, on the monotonic clock."""
    # All processes are on this machine, so one comparison of its clocks serves for all.
    ahead = WallClock().now().timestamp() - monotonic()
    found: dict[str, dict[str, float]] = {
        work.agenda_id(number): {} for number in range(len(run.sent))
    }
    async for event in read_events(stack.settings, begin):
        name = name_of(event)
        if name is not None and event.agenda_id in found:
            found[event.agenda_id].setdefault(name, on_monotonic(event.at, ahead=ahead))
    return found


def _instants(
    work: NoopWorkload,
    run: OpenLoopRun,
    starts: Mapping[str, float],
    lifecycle: Mapping[str, Mapping[str, float]],
) -> list[Mapping[str, float]]:
    found: list[Mapping[str, float]] = []
    for number in range(len(run.sent)):
        agenda_id = work.agenda_id(number)
        one = {"due": run.due(number), **lifecycle[agenda_id]}
        if agenda_id in starts:
            one["started"] = starts[agenda_id]
        if number in run.summaries:
            one["readable"] = run.summaries[number]
        found.append(one)
    return found


def _report(run: OpenLoopRun, instants: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    def spans(stage: str) -> list[float]:
        return [one[stage] - one["due"] for one in instants if stage in one]

    late = [at - run.due(number) for number, at in enumerate(run.sent)]
    return {
        "submit_to_start_ms": percentiles_ms(spans("started")),
        "submit_to_summary_ms": percentiles_ms(spans("readable")),
        "agendas": len(run.sent),
        "lost": sum("readable" not in one for one in instants),
        "generator_late_ms": percentiles_ms(late),
        "stages_ms": stages(instants),
    }
