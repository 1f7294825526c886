"""Measures the latency of every agenda at a fixed rate, in an open loop.

Agendas are submitted at even intervals, whatever becomes of those before them, and their ends
are polled for. The time of each is split at the instants of its lifecycle and at those that
client and handler noted.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Final, Literal

import aiohttp

from pop_stream.clock import WallClock
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.kafka import connections
from pop_stream.kafka.topics import Topics
from pop_stream.lab.bench.figures import percentiles_ms
from pop_stream.lab.bench.handlers import NOTED, read_starts
from pop_stream.lab.bench.load import NoopWorkload
from pop_stream.lab.bench.meter import (
    cpu_seconds,
    other_usage,
    own_parts,
    read_machine,
    read_usage,
)
from pop_stream.lab.bench.pipeline_run import PipelineBenchOptions, insights_of, plan_of
from pop_stream.lab.bench.results import (
    BenchStore,
    EndOffsets,
    open_store,
    read_end_offsets,
    read_events,
)
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.operations.errors import CommandError
from pop_stream.ports.publisher import Record

POLL_S: Final = 0.01
"""Between two looks at the summaries: the resolution of what is read there."""

_POLL_BATCH: Final = 2_000
_GIVE_UP_S: Final = 30.0

Submit = Callable[[int], Awaitable[None]]
"""Submits the agenda with this number; returns when it is acknowledged."""

Ended = Callable[[Sequence[int]], Awaitable[Sequence[int]]]
"""Which of these agendas have a summary that says they ended."""


@dataclass(slots=True)
class OpenLoopRun:
    """What was seen; all instants by `time.monotonic`.

    Attributes:
        begin: When the first agenda was due.
        rate: Agendas a second.
        sent: When each was really handed over, by number.
        summaries: When the summary of each was seen to have ended.
    """

    begin: float
    rate: float
    sent: list[float] = field(default_factory=list)
    summaries: dict[int, float] = field(default_factory=dict)

    def due(self, number: int) -> float:
        """When an agenda was to be submitted: what all latencies count from."""
        return self.begin + number / self.rate


async def run_open_loop(
    submit: Submit, ended: Ended, *, rate: float, total: int
) -> OpenLoopRun:
    """Submit so many agendas, each when it is due, and wait for their ends.

    One that is late, because this process or Kafka was, is counted from when it was due: a
    stall shows in the figures of all that it kept waiting.

    Raises:
        CommandError: If a submission fails.
    """
    run = OpenLoopRun(monotonic() + POLL_S, rate)
    submitting: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(_poll_ends(run, ended, total))
        for number in range(total):
            await asyncio.sleep(max(0.0, run.due(number) - monotonic()))
            run.sent.append(monotonic())
            submitting.add(tasks.create_task(_submit(submit, number)))
        await asyncio.gather(*submitting)
        await asyncio.wait([looking], timeout=_GIVE_UP_S)
        looking.cancel()
    return run


async def _submit(submit: Submit, number: int) -> None:
    try:
        await submit(number)
    except Exception as error:
        msg = f"the submission of agenda {number} failed: {error!r}"
        raise CommandError(msg) from error


async def _poll_ends(run: OpenLoopRun, ended: Ended, total: int) -> None:
    open_: dict[int, None] = {}
    seen = 0
    while len(run.summaries) < total:
        open_.update(dict.fromkeys(range(seen, len(run.sent))))
        seen = len(run.sent)
        asked = [number for number, _ in zip(open_, range(_POLL_BATCH), strict=False)]
        for number in await ended(asked) if asked else ():
            # Noted after the answer: what a reader would have in hand.
            run.summaries[number] = monotonic()
            del open_[number]
        await asyncio.sleep(POLL_S)


NAMES: Final = ("due", "accepted", "emitted", "claimed", "started", "succeeded", "readable")


def name_of(event: LifecycleEvent) -> str | None:
    """The stage that an event ends; None for any other event."""
    match event:
        case AgendaAccepted():
            return "accepted"
        case AgendaEmitted():
            return "emitted"
        case AgendaClaimed():
            return "claimed"
        case AgendaSucceeded():
            return "succeeded"
        case _:
            return None


def stages(instants: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
    """Percentiles of the time between each two stages that follow one another.

    Args:
        instants: In seconds, by stage, of each agenda; those that miss one are left out of
            the spans it bounds.
    """
    return {
        f"{before}_to_{after}": percentiles_ms(
            [one[after] - one[before] for one in instants if before in one and after in one]
        )
        for before, after in pairwise(NAMES)
    }


def on_monotonic(at: datetime, *, ahead: float) -> float:
    """A wall-clock instant on the monotonic clock, given how far the wall clock is ahead."""
    return at.timestamp() - ahead


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
