"""`pop-stream lab walk`: the path of one submission through the code, on real servers.

It starts `pop-stream dev`, a process for every part, with `recorder` in each of them, and runs
a few agendas so that imports, caches and connections are not counted. Then it records one
submission at a time: from the moment before `POST /v1/agendas`, of an agenda with one no-op
operation, to the moment at which its row in Postgres says succeeded.

What is counted. A *stretch* is what one thread does from entering the first function of the
package until it has left the last one: a step of a task, a callback, the body of a thread. Its
*shape* is the sequence of functions entered and resumed in it. A stretch whose shape the same
part also shows in an idle window, recorded before and much longer than a submission takes, is
background (ticks, heartbeats, polls, metrics), and so is one that began outside the window. All
others happen on behalf of the submission, and count whole, even functions that the background
calls too:

- files: with at least one function that was entered (called; a resumed coroutine was entered
  when it was called) in such a stretch;
- functions: that were entered, distinguished by file, qualified name and line; comprehensions,
  generator expressions and lambdas are functions, as Python 3.11 has it;
- changes: how often a call, resumption or return belongs to another file than the one before
  it, in the order of time within a stretch, and stretches one after another as they began. So
  how the processes happened to overlap does not matter.

The same file in two parts counts once. Code outside the package, that of classes generated at
run time (dataclasses), and C code do not count, nor does a change to them and back.

Of the product it uses `pop-stream dev` with `--folder` and `--port`, `POST /v1/agendas`,
POP_POSTGRES_DSN, and two columns of the table `agendas`; it imports none of it.
What is reported is the run with the fewest changes, beside the least, median and most of all
runs. What differs between runs only adds to it, and is no property of the code: the scheduler
may process that the agenda has ended before the summary says so (300 changes and more), and
two reports of the puller may come in one batch or in two (30 changes). So the median jumps,
the least stays.
"""

import asyncio
import itertools
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import typer

from pop_stream.lab.walk import recorder

if TYPE_CHECKING:
    import aiohttp
    import asyncpg

_PACKAGE: Final = Path(__file__).parents[2]
_AGENDA: Final = {"customer_id": "walker", "operations": [{"name": "only", "type": "noop"}]}
_DONE: Final = "SELECT state = 'succeeded' FROM agendas WHERE agenda_id = $1"
_DSN: Final = "POP_POSTGRES_DSN"
_TIMEOUT_S: Final = 90.0
_POLL_EVERY_S: Final = 0.003
_SETTLED_AFTER_S: Final = 2.0
"""What an agenda leaves behind, such as settling and commits, is over by then."""


class WalkError(Exception):
    """The system did not do what a walk needs; the text is all that its user sees."""


class Step(NamedTuple):
    """One record of a part; see `recorder.Recorder`."""

    part: str
    at: int
    thread: int
    event: Literal["call", "resume", "return"]
    file: str
    function: str
    line: int


Stretch = tuple[Step, ...]
Shape = tuple[object, ...]


def stretches(steps: Iterable[Step]) -> Iterator[Stretch]:
    """Cut the steps of one thread, in order, where no function of the package is left.

    Returns from what was entered before the first step are left out, as are those that an
    exception thrown into a waiting coroutine makes it do.
    """
    current: list[Step] = []
    entered: list[tuple[object, ...]] = []
    for step in steps:
        code = step[4:]
        if step.event != "return":
            entered.append(code)
        elif entered and entered[-1] == code:
            entered.pop()
        else:
            continue
        current.append(step)
        if not entered:
            yield tuple(current)
            current.clear()
    if current:
        yield tuple(current)


def shape(stretch: Stretch) -> Shape:
    """What makes two stretches the same; a part does the same work under another number."""
    return (stretch[0].part, *(step[3:] for step in stretch if step.event != "return"))


def cut(steps: Iterable[Step]) -> list[Stretch]:
    """The stretches of all threads of all parts, in the order in which they began."""
    threads: dict[tuple[str, int], list[Step]] = {}
    for step in steps:
        threads.setdefault((step.part, step.thread), []).append(step)
    found = itertools.chain.from_iterable(map(stretches, threads.values()))
    return sorted(found, key=lambda stretch: stretch[0].at)


@dataclass(frozen=True)
class Walk:
    """What happened on behalf of one submission.

    Attributes:
        path: Its stretches, in the order in which they began.
        background: Stretches of the same window that are not on its behalf.
        milliseconds: From before the POST until the summary says succeeded.
    """

    path: Sequence[Stretch]
    background: Sequence[Stretch]
    milliseconds: float

    @classmethod
    def of(cls, steps: Iterable[Step], idle: set[Shape], began: int, ended: int) -> "Walk":
        """Separate what the submission caused from background, whose shapes are known."""
        within = [one for one in cut(steps) if began <= one[0].at <= ended]
        path = [one for one in within if shape(one) not in idle]
        background = [one for one in within if shape(one) in idle]
        return cls(path, background, (ended - began) / 1e6)

    @cached_property
    def steps(self) -> Sequence[Step]:
        """All steps on the path, one stretch after another."""
        return [step for stretch in self.path for step in stretch]

    @property
    def calls(self) -> Sequence[Step]:
        """Only the functions entered, in order."""
        return [step for step in self.steps if step.event == "call"]

    def changes(self) -> Counter[tuple[str, str]]:
        """How often control goes from one file to another, by these two."""
        pairs = itertools.pairwise(step.file for step in self.steps)
        return Counter(pair for pair in pairs if pair[0] != pair[1])

    def figures(self) -> dict[str, int]:
        """The three numbers that the command reports."""
        return {
            "files": len({step.file for step in self.calls}),
            "functions": len({step[4:] for step in self.calls}),
            "changes": self.changes().total(),
        }


class Recordings:
    """Opens and closes windows in all parts that record.

    Args:
        folder: Shared with the parts; made, with the recorder in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        shutil.copy(recorder.__file__, folder / "sitecustomize.py")

    def environment(self) -> dict[str, str]:
        """Variables that make every part started with them record."""
        others = os.environ.get("PYTHONPATH")
        paths = (str(self._folder), *((others,) if others else ()))
        return {
            "PYTHONPATH": os.pathsep.join(paths),
            recorder.FOLDER: str(self._folder),
            recorder.PACKAGE: str(_PACKAGE),
        }

    def processes(self) -> Mapping[int, str]:
        """The parts by process id."""
        names = (path.name.split(".") for path in self._folder.glob("switched.*"))
        return {int(pid): part for _, part, pid in names}

    async def open(self, window: str) -> None:
        """Returns once all parts record into a window; empty for none."""
        new = self._folder / "control.new"
        new.write_text(window)
        new.rename(self._folder / "control")

        async def all_switched() -> bool:
            return all(one.read_text() == window for one in self._folder.glob("switched.*"))

        await _until(all_switched, "the recorder of a part")

    def steps(self, window: str) -> Iterator[Step]:
        """What all parts did in a window that is closed, part after part."""
        for path in sorted(self._folder.glob(f"{window}.*.json")):
            part = path.name.split(".")[1]
            for at, thread, event, *code in json.loads(path.read_text()):
                yield Step(part, at, thread, event, *code)


class Walker:
    """Submits agendas to a running system, one at a time, and records.

    Args:
        session: Of the HTTP API.
        database: Of the summaries.
        recordings: Of the system's parts.
    """

    def __init__(
        self,
        session: "aiohttp.ClientSession",
        database: "asyncpg.Connection[asyncpg.Record]",
        recordings: Recordings,
    ) -> None:
        self._session = session
        self._database = database
        self._recordings = recordings

    async def submit(self) -> None:
        """Submit one agenda and wait until its summary says that it has succeeded."""
        async with self._session.post("/v1/agendas", json=_AGENDA) as answer:
            answer.raise_for_status()
            agenda_id = (await answer.json())["id"]

        async def is_done() -> bool:
            return bool(await self._database.fetchval(_DONE, agenda_id))

        await _until(is_done, f"the summary of agenda {agenda_id}")

    async def idle(self, seconds: float) -> set[Shape]:
        """The shapes of what the parts do while nothing is submitted."""
        await asyncio.sleep(_SETTLED_AFTER_S)
        await self._recordings.open("idle")
        await asyncio.sleep(seconds)
        await self._recordings.open("")
        return {shape(one) for one in cut(self._recordings.steps("idle"))}

    async def walk(self, number: int, idle: set[Shape]) -> Walk:
        """Record one submission."""
        await asyncio.sleep(_SETTLED_AFTER_S)
        window = f"walk-{number}"
        await self._recordings.open(window)
        began = time.monotonic_ns()
        await self.submit()
        ended = time.monotonic_ns()
        await self._recordings.open("")
        return Walk.of(self._recordings.steps(window), idle, began, ended)


async def measure(runs: int, idle_s: float, warm_up: int) -> list[Walk]:
    """Walk so many times through one system, started and stopped here.

    Raises:
        WalkError: If it ends by itself, or an answer does not come in time.
    """
    # Not below a folder that is closed to others: run as root, PostgreSQL is another user.
    with tempfile.TemporaryDirectory(
        prefix="pop-stream-walk-", ignore_cleanup_errors=True
    ) as folder:
        recordings = Recordings(Path(folder) / "recordings")
        async with _system(Path(folder), recordings) as walker:
            for _ in range(warm_up):
                await walker.submit()
            idle = await walker.idle(idle_s)
            return [await walker.walk(number, idle) for number in range(runs)]


@asynccontextmanager
async def _system(folder: Path, recordings: Recordings) -> AsyncIterator[Walker]:
    """Everything, with a part a process; ready when entered, stopped when left."""
    import aiohttp
    import asyncpg

    port = _free_port()
    log = folder / "dev.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _PACKAGE.name, "dev",
            "--folder", str(folder / "data"), "--port", str(port),
            env=os.environ | recordings.environment(),
            stdout=output, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def is_ready() -> bool:
                if process.returncode is not None:
                    raise WalkError(log.read_text())
                return await _accepts(session)

            await _until(is_ready, "the API")
            database = await asyncpg.connect(_variable(_DSN, recordings.processes()))
            try:
                yield Walker(session, database, recordings)
            finally:
                await database.close()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _accepts(session: "aiohttp.ClientSession") -> bool:
    """Whether a submission is accepted; it is the first to warm the parts."""
    import aiohttp

    try:
        async with session.post("/v1/agendas", json=_AGENDA) as answer:
            return answer.ok
    except aiohttp.ClientConnectionError:  # nobody listens there yet
        await asyncio.sleep(0.25)
        return False


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask until the answer is yes.

    Raises:
        WalkError: If it is no for too long; names what was waited for.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while not await holds():  # noqa: ASYNC110  # it is another process
                await asyncio.sleep(_POLL_EVERY_S)
    except TimeoutError:
        msg = f"waited {_TIMEOUT_S:g} s for {what}"
        raise WalkError(msg) from None


def _variable(name: str, processes: Iterable[int]) -> str:
    """The value that the parts have of an environment variable."""
    import psutil

    found = (psutil.Process(pid).environ().get(name) for pid in processes)
    return next(value for value in found if value)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def shortest(walks: Sequence[Walk]) -> Walk:
    """The walk with the fewest changes of file."""
    return min(walks, key=lambda one: one.figures()["changes"])


def overview(walks: Sequence[Walk]) -> Iterator[str]:
    """The figures of all walks, and those of the parts on the shortest."""
    run = shortest(walks)
    for name, figure in run.figures().items():
        each = [one.figures()[name] for one in walks]
        spread = f"least {min(each):,}, median {statistics.median_low(each):,}"
        yield f"{name:<10} {figure:>6,}  ({spread}, most {max(each):,} of {len(each)} runs)"
    beside = {step[4:] for stretch in run.background for step in stretch}
    yield (
        f"the shortest run: {run.milliseconds:.0f} ms, {len(run.path)} stretches, and "
        f"{len(run.background)} of background with {len(beside)} functions, not counted"
    )
    for part in dict.fromkeys(step.part for step in run.calls):
        calls = [step for step in run.calls if step.part == part]
        files = len({step.file for step in calls})
        functions = len({step[4:] for step in calls})
        yield f"{part:<10} {files:>4} files {functions:>4} functions {len(calls):>5} calls"


def listing(walk: Walk) -> Iterator[str]:
    """Everything on the path: files by first entry, the steps in order, changes by pair."""
    calls: dict[tuple[str, str], Counter[str]] = {}
    for step in walk.calls:
        calls.setdefault((step.part, step.file), Counter())[step.function] += 1
    yield "\n# Files of each part in the order of their first call: functions and their calls"
    for (part, file), functions in calls.items():
        yield f"{part} {file}"
        yield from (f"    {name} {count}" for name, count in functions.items())
    yield "\n# The path: a line wherever functions of another file are called"
    for (part, file), steps in itertools.groupby(walk.calls, lambda one: (one.part, one.file)):
        yield f"{part} {file}: {', '.join(step.function for step in steps)}"
    yield "\n# Changes between two files, either way"
    pairs: Counter[tuple[str, ...]] = Counter()
    for changed, count in walk.changes().items():
        pairs[tuple(sorted(changed))] += count
    for pair, count in pairs.most_common():
        yield f"{count:>4} {' '.join(pair)}"


def walk(
    runs: Annotated[int, typer.Option(min=1, max=100, help="Submissions to trace.")] = 9,
    idle_seconds: Annotated[
        float, typer.Option(min=1, help="How long to learn what runs while nothing is done.")
    ] = 12.0,
    warm_up: Annotated[
        int, typer.Option(min=0, max=1_000, help="Submissions that are run before.")
    ] = 5,
    show_list: Annotated[
        bool, typer.Option("--list", help="Print the path of the shortest run too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object as the last line.")
    ] = False,
) -> None:
    """Trace one submission through the code, from its POST to its summary, on real servers.

    Starts everything on this machine, and ends it. Counts how many files and functions of the
    package one agenda passes, and how often control changes from one file to another.
    """
    walks = asyncio.run(measure(runs, idle_seconds, warm_up))
    run = shortest(walks)
    for line in overview(walks):
        typer.echo(line, err=as_json)
    for line in listing(run) if show_list else ():
        typer.echo(line, err=as_json)
    if as_json:
        typer.echo(json.dumps(run.figures()))
