"""Runners that stand idle, as their pullers said when they last claimed; in memory only."""

from collections.abc import Mapping
from typing import Final

FRESH_FOR_S: Final = 1.0
"""A puller that claims nothing for so long may be busy with what it has, or gone."""

MAX_PULLERS: Final = 1_000
"""Kept in mind at most, for anyone may claim under any name; the longest silent goes first."""


class IdleRunners:
    """By puller, how many more agendas it could start at once; instants are in seconds."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[int, float]] = {}

    def update(self, idle: Mapping[str, int], now: float) -> None:
        """Pullers said so; what each said before is over."""
        for puller_id, count in idle.items():
            self._reported.pop(puller_id, None)
            self._reported[puller_id] = (max(0, count), now)
        while len(self._reported) > MAX_PULLERS:
            del self._reported[next(iter(self._reported))]

    def count(self, now: float) -> int:
        """How many there are by what was said lately; none by a clock that was set back."""
        return sum(
            count for count, at in self._reported.values() if 0 <= now - at < FRESH_FOR_S
        )
