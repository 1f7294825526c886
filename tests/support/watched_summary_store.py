"""A summary store that tells of its folds, and lets a test act around them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deadlines import within

from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.ports.summaries import FoldedBatch, SummaryChange, SummaryStore

PATIENCE_S = 30


@dataclass
class FoldCounter:
    """How many events of each agenda were folded, by all stores that share it."""

    folded_counts: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, is_enough: Callable[[], bool]) -> None:
        async with within(PATIENCE_S), self.changed:
            await self.changed.wait_for(is_enough)

    async def until_folded(self, events: int, ids: Iterable[str]) -> None:
        """Wait until so many events of each of the agendas were folded."""
        await self.until(
            lambda: all(self.folded_counts[agenda_id] >= events for agenda_id in ids)
        )


@dataclass
class WatchedStore:
    """A store that tells of its folds, and lets a test act around them."""

    inner: SummaryStore
    ledger: FoldCounter = field(default_factory=FoldCounter)
    batches: list[Mapping[int, tuple[int, int]]] = field(default_factory=list)
    before: Callable[[], Awaitable[None]] | None = None
    after: Callable[[], Awaitable[None]] | None = None

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        return await self.inner.next_offsets(topic)

    async def fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        lifecycle: Sequence[LifecycleEvent],
        before_commit: Callable[[Sequence[SummaryChange]], Awaitable[None]] | None = None,
    ) -> FoldedBatch:
        if self.before:
            await self.before()
        folded = await self.inner.fold(topic, spans, lifecycle, before_commit)
        async with self.ledger.changed:
            self.ledger.folded_counts.update(event.agenda_id for event in lifecycle)
            self.batches.append(spans)
            self.ledger.changed.notify_all()
        if self.after:
            await self.after()
        return folded

    @property
    def consumed(self) -> int:
        """Offsets consumed, over all partitions."""
        return sum(end - start for spans in self.batches for start, end in spans.values())
