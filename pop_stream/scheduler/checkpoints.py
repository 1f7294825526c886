"""Checkpoints on `pop.decisions`: how often, so that they cost little beside the rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.backlog.checkpoint import take_checkpoint
from pop_stream.core.events import encode
from pop_stream.ports.wire import Record

CHECKPOINT_EVERY_S: Final = 600.0
"""Between two of an insight, at least."""

_AGAIN_S: Final = 10.0
"""After one that no round followed, or that would have been too large."""


@dataclass(slots=True)
class Checkpoints:
    """When an insight's next one is due; one is also a checkpoint's worth of decisions apart.

    Attributes:
        decided: Bytes of decisions since the last one.
    """

    decided: int = 0
    _size: int = 0
    _not_before: float = 0.0
    _is_first: bool = True

    def records(self, backlog: Backlog, topics: Topics, now: float) -> Sequence[Record]:
        """What tells the state that a round is about to be chosen from; empty if not due.

        An insight's first round needs none. The first one after it was read from the table
        has one: the scheduler begins anew with leases and tokens.
        """
        if not backlog.rounds:
            self._is_first, self._not_before = False, now + CHECKPOINT_EVERY_S
        if now < self._not_before or self.decided < self._size:
            return ()
        self._not_before = now + _AGAIN_S
        key = backlog.insight.id.encode()
        parts = take_checkpoint(backlog, now, begins=self._is_first)
        return [Record(topics.decisions, key, encode(part)) for part in parts]

    def record_sent(self, records: Sequence[Record], now: float) -> None:
        """These go out with their round."""
        if records:
            self._is_first, self.decided, self._not_before = False, 0, now + CHECKPOINT_EVERY_S
            self._size = sum(len(one.value or b"") for one in records)
