"""Handlers of the benchmarks: they do nothing, and one notes the instant it was called.

Given to pullers as `pop_stream.lab.bench.handlers:handlers`.
"""

import os
from functools import cache
from pathlib import Path
from time import monotonic_ns
from typing import Final

from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.handlers.registry import Handlers

NOOP: Final = "bench.noop"
NOTED: Final = "bench.noted"
STARTS_FOLDER: Final = "POP_BENCH_STARTS"
"""Variable with the folder in which pullers note when handlers were called."""

handlers = Handlers()


@handlers.handler(NOOP)
async def noop(_: OperationCall) -> None:
    """Do nothing."""


@handlers.handler(NOTED)
async def noted(operation: OperationCall) -> None:
    """Note that the agenda was started, and do nothing else."""
    # One write of one line: a few microseconds, and no agenda's note is held back.
    line = f"{operation.agenda_id} {monotonic_ns()}\n"
    os.write(_file(), line.encode())


def read_starts(folder: Path) -> dict[str, float]:
    """When each agenda's handler was first called, by `time.monotonic` of this machine."""
    found: dict[str, float] = {}
    for file in folder.glob("starts-*"):
        for line in file.read_text().split("\n")[:-1]:  # the last may be half written
            agenda_id, _, at = line.rpartition(" ")
            found[agenda_id] = min(found.get(agenda_id, float("inf")), int(at) / 1e9)
    return found


@cache
def _file() -> int:
    path = Path(os.environ[STARTS_FOLDER]) / f"starts-{os.getpid()}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
