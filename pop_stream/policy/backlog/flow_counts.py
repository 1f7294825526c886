"""What a target depth is learned from: claims, ends, and what pullers say of their runners.

All of it is in memory only: after a restart the next reports say it again.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pop_stream.model.events.scheduling import IdleRunners


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Where an insight's agendas are at one moment.

    Attributes:
        emitted: Ever; never falls.
        claimed: Ever, as far as reported; never falls.
        ready: Waiting for emission.
        sync_matched: Of those claimed, for how many a runner stood idle; never falls.
        sync_matched_s: Seconds from their emissions to the reports of their claims, in all;
            never falls.
        idle: Runners that could start one more each, as pullers last reported.
        running: Claimed, and not ended.
        run_s: What an attempt usually takes; None if that is not known.
        are_reported: Whether pullers say how many runners are idle, and pull nothing else.
    """

    emitted: int
    claimed: int
    ready: int
    sync_matched: int = 0
    sync_matched_s: float = 0.0
    idle: int = 0
    running: int = 0
    run_s: float | None = None
    are_reported: bool = False


FRESH_FOR_S: Final = 1.0
"""How long a puller's count is believed: one that claims nothing since may be busy, or gone."""

_REMEMBERED_S: Final = 86_400.0
"""How long it is remembered that a puller does not say how many of its runners are idle."""

MAX_PULLERS: Final = 1_000
"""Most pullers remembered: anyone may claim under any name. The longest silent goes first."""


class IdleRunnerCounts:
    """By puller, how many more agendas it could start at once, as in its last claim."""

    def __init__(self) -> None:
        self._reported: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._unreported: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """How many pullers have claimed, as far as that is remembered."""
        return len(self._reported)

    def update(self, idle: Iterable[IdleRunners], now: float) -> None:
        """Replace the counts of these pullers; `now` is in seconds since the epoch."""
        for one in idle:
            self._reported.pop(one.puller_id, None)
            self._reported[one.puller_id] = (max(0, one.runners), now)
            self._unreported.pop(one.puller_id, None)
            if one.insights != 1:
                self._unreported[one.puller_id] = now
        while len(self._reported) > MAX_PULLERS:
            gone, _ = self._reported.popitem(last=False)
            self._unreported.pop(gone, None)

    def are_reported(self, now: float) -> bool:
        """Whether all that claimed within a day say what is idle, and pull nothing else.

        Of others an idle runner may be unknown: one that another insight left, or one of a
        worker that does not count them.
        """
        while self._unreported and now - next(iter(self._unreported.values())) >= _REMEMBERED_S:
            self._unreported.popitem(last=False)
        return bool(self._reported) and not self._unreported

    def count(self, now: float) -> int:
        """Idle runners by the counts that are fresh; a clock that was set back gives none."""
        return sum(
            count for count, at in self._reported.values() if 0 <= now - at < FRESH_FOR_S
        )
