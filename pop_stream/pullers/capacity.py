"""How many more agendas a puller may take."""

import asyncio


class Capacity:
    """Slots shared by all feeds of a puller; a slot is held from claim to end.

    Args:
        total: Agendas at a time, at least 1.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._any = asyncio.Event()
        self._any.set()

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self._free

    async def some(self) -> None:
        """Wait until a slot is free; by the time the caller runs, another may have it."""
        await self._any.wait()

    def take(self, most: int) -> int:
        """Hold up to `most` slots; returns how many."""
        taken = min(most, self._free)
        self._free -= taken
        if not self._free:
            self._any.clear()
        return taken

    def give_back(self, count: int = 1) -> None:
        """Free slots that were taken."""
        if count:
            self._free += count
            self._any.set()
