"""Runs a steady load and samples memory, files, connections and threads of every process."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import psutil

from pop_stream.composition.client import open_client
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.kafka import connections
from pop_stream.kafka.topics import Topics
from pop_stream.lab.chaos.handlers import STARTS
from pop_stream.lab.chaos.load import RETRY, ChaosLoad, submit
from pop_stream.model.errors import UnavailableError
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.postgres.pool import open_pool

FLAT: Final = 0.10
"""What may be held more at the end than after the first third, and be called flat."""

_DEFINITIONS: Final = Path(__file__).parents[1] / "chaos" / "definitions.toml"
_HANDLERS: Final = "pop_stream.lab.chaos.handlers:handlers"
_ENDED_WITHIN_S: Final = 120.0
_MIB: Final = 1 << 20
_MIN_GROWTH: Final = 3.0
_NO_SERVER: Final = ("kafka", "postgres")


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """What one process holds.

    Attributes:
        at: Seconds since the load began.
        files: Open files, sockets among them.
        connections: Sockets that are connected.
    """

    at: float
    rss_mb: float
    files: int
    connections: int
    threads: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one quantity of one part: its means in the middle and the last third of the time."""

    middle: float
    last: float

    @property
    def is_flat(self) -> bool:
        """Whether it grew by a tenth at most, or by no more than a handful."""
        grown = self.last - self.middle
        return grown <= max(FLAT * self.middle, _MIN_GROWTH)


@dataclass(frozen=True, slots=True)
class SoakResult:
    """What a soak came to; `lost` agendas had not ended two minutes after the load."""

    submitted: int
    lost: int
    samples: Mapping[str, Sequence[ResourceSample]]

    def growths(self) -> Mapping[str, Mapping[str, Growth]]:
        """By part, and by quantity."""
        return {
            part: {
                name: growth([(one.at, getattr(one, name)) for one in some])
                for name in ("rss_mb", "files", "connections", "threads")
            }
            for part, some in self.samples.items()
        }


def growth(values: Sequence[tuple[float, float]]) -> Growth:
    """Compare the middle third of the time with the last; the first is warming up."""
    ends = values[-1][0]
    middle = [value for at, value in values if ends / 3 <= at < 2 * ends / 3]
    last = [value for at, value in values if at >= 2 * ends / 3]
    return Growth(fmean(middle or [values[0][1]]), fmean(last))


async def run_soak(
    folder: Path, *, seconds: float, rate_per_s: float, every_s: float, on_progress: OnProgress
) -> SoakResult:
    """Load a system of its own for so long, and look at its processes meanwhile.

    Raises:
        CommandError: If a part does not start.
    """
    plan = StackPlan(
        folder=folder,
        definitions=_DEFINITIONS,
        pullers=2,
        handlers=(_HANDLERS,),
        overrides={"topic_prefix": f"soak-{secrets.token_hex(3)}.", "puller_concurrency": 50},
        environment={STARTS: "/dev/null"},
    )
    load = ChaosLoad(f"s{secrets.token_hex(4)}", 1, rate_per_s, seconds)
    samples: dict[str, list[ResourceSample]] = {}
    stack = Stack(plan, on_progress)
    async with stack, failing_with(stack):
        watching = asyncio.create_task(
            _watch(stack, samples, every_s=every_s, on_progress=on_progress)
        )
        topic = Topics(stack.settings.topic_prefix).submissions
        async with (
            open_client(stack.settings, retry=RETRY) as api,
            connections.publisher(stack.settings, client_id="soak") as publisher,
        ):
            await submit(load, api, publisher, topic)
        watching.cancel()
        lost = await _left(stack, load)
    return SoakResult(len(load.acknowledged), lost, samples)


async def _watch(
    stack: Stack,
    samples: dict[str, list[ResourceSample]],
    *,
    every_s: float,
    on_progress: OnProgress,
) -> None:
    now = asyncio.get_running_loop().time
    began = now()
    while True:
        for part, pid in stack.processes().items():
            if not part.startswith(_NO_SERVER):
                samples.setdefault(part, []).append(_sample_process(pid, now() - began))
        total = sum(some[-1].rss_mb for some in samples.values())
        on_progress(f"{now() - began:.0f} s: {total:.0f} MB in all parts")
        await asyncio.sleep(every_s)


def _sample_process(pid: int, at: float) -> ResourceSample:
    process = psutil.Process(pid)
    with process.oneshot():
        return ResourceSample(
            at=at,
            rss_mb=process.memory_info().rss / _MIB,
            files=process.num_fds(),
            connections=sum(
                one.status == psutil.CONN_ESTABLISHED for one in process.net_connections()
            ),
            threads=process.num_threads(),
        )


async def _left(stack: Stack, load: ChaosLoad) -> int:
    """How many of the agendas have not ended when the time is over."""
    waiting = set(load.acknowledged)
    async with open_pool(stack.settings) as pool:
        ledger = PostgresSummaryScan(pool)
        try:
            async with asyncio.timeout(_ENDED_WITHIN_S):
                while waiting:
                    entries = await ledger.states([*waiting])
                    waiting -= {one for one, e in entries.items() if e.state.is_terminal}
                    await asyncio.sleep(0.5)
        except (TimeoutError, UnavailableError):
            return len(waiting)
    return 0
