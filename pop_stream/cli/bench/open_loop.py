"""Submits agendas at a fixed rate, whatever becomes of them, and looks when they have ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from pop_stream.cli.errors import CommandError

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
