"""When an attempt that failed is followed by another: exponential backoff with a cap.

The spread is no chance but a hash of agenda and attempt: many that fail together come back
apart, and a replay gives the same instants.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final
from zlib import crc32

from pydantic import ConfigDict, Field

MAX_LOST_PAUSE_S: Final = 1.0
"""Longest pause after a puller fell silent: the agenda itself did nothing wrong."""

MAX_PAUSE_S: Final = 604_800.0
"""Longest pause, whatever the fields hold: an instant after it is one that can be written."""

MIN_DEFERRAL_S: Final = 1.0
"""Shortest time until an operation that waits is looked at again."""

MAX_DEFERRAL_S: Final = 31_622_400.0
"""The longest, 366 days."""

DEFAULT_WAIT_S: Final = 604_800.0
"""How long an operation may wait that names no time-out: a week."""

_HASHES: Final = 2**32
_MAX_DOUBLINGS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause before another try: `first_s * factor ** (failures - 1)`, at most `most_s`.

    Attributes:
        jitter: Part of the pause that is spread: the pause is multiplied by a factor
            between `1 - jitter` and 1.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    first_s: Annotated[float, Field(ge=0, le=86_400)] = 1.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    most_s: Annotated[float, Field(gt=0, le=MAX_PAUSE_S)] = 300.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.2

    def pause_s(self, failures: int, *, seed: str) -> float:
        """Seconds until the next try.

        Args:
            failures: Tries that failed so far, from 1.
            seed: What tries should be spread by, such as the agenda's id.
        """
        try:
            grown = self.first_s * self.factor ** min(failures - 1, _MAX_DOUBLINGS)
        except OverflowError:
            grown = self.most_s
        chance = crc32(f"{seed}/{failures}".encode()) / _HASHES
        pause_s = min(grown, self.most_s) * (1 - self.jitter * chance)
        return max(0.0, min(pause_s, MAX_PAUSE_S))
