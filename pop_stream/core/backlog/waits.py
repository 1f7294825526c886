"""How long an insight's agendas wait up to emission, for people to see; decides nothing."""

from typing import Final

_GAIN: Final = 1 / 64


class MeanWait:
    """A running mean.

    Attributes:
        mean_s: Over the last 64 or so, of whichever customers, in seconds; 0 before any.
    """

    __slots__ = ("mean_s",)

    def __init__(self) -> None:
        self.mean_s = 0.0

    def note(self, wait_s: float) -> None:
        """Another agenda is emitted after such a wait."""
        self.mean_s += _GAIN * (wait_s - self.mean_s)
