"""How many more agendas a puller may take."""

import asyncio
from time import monotonic

from pop_stream.pullers.ages import RunDurations
from pop_stream.pullers.lookahead import Prefetch


class Capacity:
    """Slots shared by all feeds of a puller; a slot is held from claim to end.

    There is one for each runner, and some more for what is claimed ahead of them.

    Args:
        runners: Agendas that run at a time, at least 1.
    """

    def __init__(self, runners: int) -> None:
        self._runners = runners
        self._held = 0
        self._durations = RunDurations()
        self._prefetch = Prefetch(runners)
        self._is_free = asyncio.Event()
        self._is_free.set()

    @property
    def free(self) -> int:
        """Slots that could be taken now; what is claimed ahead varies with its use."""
        return max(0, self._runners + self._prefetch_target() - self._held)

    @property
    def idle(self) -> int:
        """Runners that no slot is held for: they wait for an agenda to come."""
        return max(0, self._runners - self._held)

    @property
    def has_idle_runner(self) -> bool:
        """Whether one more agenda may begin to run."""
        return len(self._durations) < self._runners

    async def some(self) -> None:
        """Wait until slots are free; by the time the caller runs, another may have them.

        Those for claims ahead are dealt out half of them at a time, as each claim costs the
        brokers much the same whatever it is of; but no runner waits for that.
        """
        while not self._is_worth_taking():
            self._is_free.clear()
            await self._is_free.wait()

    def _is_worth_taking(self) -> bool:
        ahead = self._prefetch_target()
        free = self._runners + ahead - self._held
        return self._held < self._runners or free >= max(1, ahead // 2)

    def take(self, most: int) -> int:
        """Hold up to `most` slots; returns how many."""
        taken = min(most, self.free)
        self._held += taken
        return taken

    def give_back(self, count: int = 1) -> None:
        """Free slots that were taken."""
        self._held -= count
        self._is_free.set()

    def note_claim(self, seconds: float) -> None:
        """Take note of how long a claim took, from the slots taken to the commit."""
        self._prefetch.note_claim(seconds)
        self._is_free.set()

    def begin(self, now_s: float) -> None:
        """An agenda begins to run, `now_s` on the monotonic clock."""
        self._durations.begin(now_s)

    def end(self, started_s: float, now_s: float) -> None:
        """The agenda that began at `started_s` has ended; its slot is given back by itself."""
        self._durations.end(started_s)
        self._prefetch.note_run(now_s - started_s)

    def release_runner(self, started_s: float) -> None:
        """The agenda that began at `started_s` waits for something: others may have its place."""
        self._durations.end(started_s)
        self.give_back()

    def reacquire_slot(self) -> None:
        """It has its slot again, though all may be held; a runner it waits for."""
        self._held += 1

    def _prefetch_target(self) -> int:
        long, long_for_s = self._durations.long(self._prefetch.long_after_s, monotonic())
        return self._prefetch.ahead(long, long_for_s)
