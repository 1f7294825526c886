"""The work of a chaos run: every start is noted in a file before anything else is done.

Given to pullers as `pop_stream.lab.chaos.handlers:handlers`.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import time_ns
from typing import Final

from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.handlers.registry import Handlers

WORK: Final = "chaos.work"
STARTS: Final = "POP_CHAOS_STARTS"
"""Variable with the file that all pullers append to."""

handlers = Handlers()


@dataclass(frozen=True, slots=True)
class Start:
    """One call of a handler.

    Attributes:
        at: Seconds since the epoch.
        pid: Of the puller.
    """

    agenda_id: str
    attempt: int
    operation: str
    at: float
    pid: int


@handlers.handler(WORK)
async def work(call: OperationCall) -> None:
    """Note the start, then take as long as the payload says, in seconds."""
    words = (call.agenda_id, call.attempt, call.name, time_ns(), os.getpid())
    # One write of a line with O_APPEND: not mixed with others', the kernel's once it returns.
    os.write(_file(), (" ".join(map(str, words)) + "\n").encode())
    if isinstance(call.payload, int | float):
        await asyncio.sleep(call.payload)


def read_starts(path: Path) -> Iterator[Start]:
    """All starts on record, in order of writing; none if nothing was ever started.

    A line that is being written is left for the next reading: one that crosses a page of the
    file may be seen in part.
    """
    if not path.exists():
        return
    for line in path.read_text().split("\n")[:-1]:
        agenda_id, attempt, operation, at, pid = line.split(" ")
        yield Start(agenda_id, int(attempt), operation, int(at) / 1e9, int(pid))


@cache
def _file() -> int:
    return os.open(os.environ[STARTS], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
