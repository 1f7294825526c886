"""Drives agendas through a path and samples how many came out: a burst, or sustained."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from pop_stream.cli.bench.figures import ProgressSample
from pop_stream.cli.errors import CommandError

CHUNK_SIZE: Final = 500
"""Agendas that are handed over at once."""

SAMPLE_S: Final = 0.05
"""Between two looks at how many have ended."""

_STALL_TIMEOUT_S: Final = 60.0

Submit = Callable[[int, int], Awaitable[None]]
"""Submits agendas from a number on, so many; returns when they are on their way."""


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """How agendas are driven; both ways the loop is closed.

    Attributes:
        agendas: So many, as fast as Kafka takes them; 0 goes on until the time is over.
        seconds: So long, with at most `window` agendas submitted and not ended.
        window: Unbounded for a burst.
    """

    agendas: int = 0
    seconds: float = 0.0
    window: int = 1 << 62

    @property
    def loop(self) -> str:
        """In words, for a report."""
        if self.agendas:
            return f"burst: {self.agendas} agendas submitted as fast as Kafka acknowledges them"
        return f"closed: {self.window} agendas outstanding, for {self.seconds:g} s"


async def drive(
    submit: Submit, ended: Callable[[], Awaitable[int]], profile: LoadProfile
) -> list[ProgressSample]:
    """Submit until the pace is done, then wait until everything has ended.

    Args:
        submit: Where agendas go in.
        ended: How many have come out, ever; durable ones only.
        profile: How many, or how long.

    Returns:
        Samples in order, the first of before the submission, the last of after the end.

    Raises:
        CommandError: If nothing ends for a minute though something should.
    """
    driven = _Driver(profile, await ended())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(driven.feed(submit))
        tasks.create_task(driven.watch(ended))
    return driven.samples


class _Driver:
    def __init__(self, profile: LoadProfile, base: int) -> None:
        self._profile = profile
        self._base = base
        self._begin = monotonic()
        self._sent = 0
        self._is_fed = False
        self.samples = [ProgressSample(0.0, 0, 0)]

    async def feed(self, submit: Submit) -> None:
        while (room := self._room()) is not None:
            if room <= 0:
                await asyncio.sleep(SAMPLE_S / 5)
                continue
            first, self._sent = self._sent, self._sent + room
            await submit(first, room)
        self._is_fed = True

    async def watch(self, ended: Callable[[], Awaitable[int]]) -> None:
        moved_at = monotonic()
        while not self._is_fed or self.samples[-1].ended < self._sent:
            await asyncio.sleep(SAMPLE_S)
            count = await ended() - self._base
            one = ProgressSample(monotonic() - self._begin, self._sent, count)
            if count > self.samples[-1].ended:
                moved_at = monotonic()
            elif monotonic() - moved_at > _STALL_TIMEOUT_S:
                msg = f"only {count} of {self._sent} agendas have ended, none in a minute"
                raise CommandError(msg)
            self.samples.append(one)

    def _room(self) -> int | None:
        """How many may be submitted now; None once all were."""
        room = min(CHUNK_SIZE, self._profile.window - (self._sent - self.samples[-1].ended))
        if self._profile.agendas:
            left = self._profile.agendas - self._sent
            return min(room, left) if left else None
        is_over = monotonic() - self._begin >= self._profile.seconds
        return None if is_over else room
