"""Signals in memory; the contract suite holds them to their port."""

from collections.abc import Sequence
from datetime import datetime

from pop_stream.model.errors import RateLimitError
from pop_stream.model.signal import MAX_KEPT_SIGNALS, Signal


class MemorySignals:
    """The port."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Signal] = {}

    async def give(self, signal: Signal) -> None:
        others = [
            one
            for one in self.kept.values()
            if one.customer_id == signal.customer_id
            and one.name != signal.name
            and one.expires_at > signal.given_at
        ]
        if len(others) >= MAX_KEPT_SIGNALS:
            raise RateLimitError(
                signal.customer_id,
                "signals kept",
                MAX_KEPT_SIGNALS,
                "keep_s",
                retry_after_s=60,
            )
        self.kept[signal.customer_id, signal.name] = signal

    async def kept_of(
        self, customer_id: str | None, now: datetime, limit: int
    ) -> Sequence[Signal]:
        found = [
            one
            for key, one in sorted(self.kept.items())
            if customer_id in {None, key[0]} and one.expires_at > now
        ]
        return found[:limit]
