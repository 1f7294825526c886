"""Claims what a feed has read while earlier agendas run: published first, then committed."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final, Protocol, Self

from aiokafka import ConsumerRecord, TopicPartition

from pop_stream import faults
from pop_stream.core.events import EmittedAgenda
from pop_stream.pullers.claims import Claimed, Claimer

HAND_RECORDS: Final = 500
HAND_BYTES: Final = 8 * 1024 * 1024
"""From so many or so large records in hand, no more are read."""

_FULL_PAUSE_S: Final = 0.25

Commit = Callable[[Mapping[TopicPartition, int]], Awaitable[Collection[TopicPartition]]]


class Slots(Protocol):
    """How many more agendas may be claimed; see `Capacity`."""

    @property
    def idle(self) -> int:
        """Runners that no slot is held for."""
        ...

    async def some(self) -> None:
        """Wait until a slot is free; by the time the caller runs, another may have it."""
        ...

    def take(self, most: int) -> int:
        """Hold up to `most` slots; returns how many."""
        ...

    def give_back(self, count: int = 1) -> None:
        """Free slots that were taken."""
        ...

    def note_claim(self, seconds: float) -> None:
        """Take note of how long a claim took."""
        ...


class Starter(Protocol):
    """Takes over what is claimed; see `RunningAgendas`."""

    def start(self, emitted: EmittedAgenda, *, claimed_s: float) -> None:
        """Take over an attempt for which a slot was taken and the claim is committed."""
        ...


class Outlet(Protocol):
    """Where the events of what runs go; see `Reporter`."""

    @property
    def is_full(self) -> bool:
        """Whether no new work should be taken."""
        ...


@dataclass(frozen=True, slots=True)
class Intake:
    """Where the feeds of a puller put what they read.

    Attributes:
        insights: Among which the puller's runners are shared.
    """

    claimer: Claimer
    running: Starter
    reporter: Outlet
    capacity: Slots
    insights: int = 1

    @property
    def idle(self) -> int:
        """Runners without a slot, the part of one insight: all told together are there."""
        return self.capacity.idle // self.insights


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Slots taken for records, and what their claim came to.

    Attributes:
        era: Of the partitions' assignment; after it, the records are others' to claim.
    """

    slots: int
    taken_s: float
    era: int
    claimed: Claimed


class ClaimPipeline:
    """What one feed has in hand, and two stages that each work on all that has gathered.

    One publishes claims, the other commits what is claimed and then starts it. So lag means
    unclaimed, an agenda runs only once no other puller will be given it, and neither wait
    keeps runners idle. While entered, it works; on leaving it ends the claims under way.

    Args:
        intake: Shared with the puller's other feeds.
        commit: Commits offsets; returns the partitions of which nobody else will read the
            records. The others' owners read theirs again, and none is started here.
        end_within_s: How long the claims under way may take to end, on leaving.
    """

    def __init__(self, intake: Intake, commit: Commit, *, end_within_s: float) -> None:
        self._intake = intake
        self._commit = commit
        self._end_within_s = end_within_s
        self._hand: deque[ConsumerRecord] = deque()
        self._hand_bytes = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._claimed: list[_Batch] = []
        self._committing: list[_Batch] = []
        self._to_commit = asyncio.Event()
        self._slots = 0
        self._era = 0
        self._settled = asyncio.Event()
        self._settled.set()
        self._stages: tuple[asyncio.Task[None], ...] = ()

    async def __aenter__(self) -> Self:
        self._stages = tuple(
            asyncio.create_task(stage) for stage in (self._claim(), self._commit_and_start())
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not isinstance(error, asyncio.CancelledError):
                await self.settle(self._end_within_s)
        finally:
            for stage in self._stages:
                stage.cancel()
            ends = await asyncio.gather(*self._stages, return_exceptions=True)
            for batch in (*self._committing, *self._claimed):
                self._intake.claimer.give_up(batch.claimed.fresh)
            self._intake.capacity.give_back(self._slots)
            self._slots = 0
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def failed(self) -> None:
        """Wait until a stage ends by itself; leaving raises why."""
        await asyncio.wait(self._stages, return_when=asyncio.FIRST_COMPLETED)

    async def room(self, within_s: float) -> bool:
        """Wait until more may be read, but no longer; whether it may."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._room.wait()
        return self._room.is_set()

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Take records in hand, in order within a partition."""
        for record in records:
            self._hand.append(record)
            self._hand_bytes += len(record.value or b"")
        self._note_hand()

    async def settle(self, within_s: float) -> None:
        """Drop what is in hand, and wait until no claim is under way, but no longer.

        Claims that are still under way then come to nothing.
        """
        self._drop_hand()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        self._drop_hand()
        self._era += 1

    async def _claim(self) -> None:
        capacity = self._intake.capacity
        while True:
            had_none = not self._hand
            await self._more.wait()
            await capacity.some()
            if self._intake.reporter.is_full:
                await asyncio.sleep(_FULL_PAUSE_S)
                continue
            awaited = capacity.idle if had_none else 0
            await self._older_ended()
            if slots := capacity.take(len(self._hand)):
                self._slots += slots
                self._settled.clear()
                records = [self._hand.popleft() for _ in range(slots)]
                self._hand_bytes -= sum(len(record.value or b"") for record in records)
                self._note_hand()
                taken_s, era = monotonic(), self._era
                claimed = await self._intake.claimer.claim(
                    records, awaited=awaited, idle=self._intake.idle
                )
                self._claimed.append(_Batch(slots, taken_s, era, claimed))
                self._to_commit.set()

    async def _older_ended(self) -> None:
        """Wait for claims of before partitions moved, which may yet come to nothing.

        What is read again meanwhile would pass for a repetition, and nobody would start it.
        """
        if any(one.era != self._era for one in (*self._committing, *self._claimed)):
            await self._settled.wait()

    async def _commit_and_start(self) -> None:
        while True:
            await self._to_commit.wait()
            self._to_commit.clear()
            batches, self._claimed = self._claimed, []
            self._committing = batches
            current = [batch for batch in batches if batch.era == self._era]
            offsets = {tp: at for batch in current for tp, at in batch.claimed.offsets.items()}
            committed = await self._commit(offsets) if current else ()
            self._committing = []
            for batch in batches:
                self._end(batch, committed if batch in current else ())

    def _end(self, batch: _Batch, committed: Collection[TopicPartition]) -> None:
        capacity, claimer = self._intake.capacity, self._intake.claimer
        ours, others = batch.claimed.split(committed)
        if ours:
            faults.reach("puller.committed")
            capacity.note_claim(monotonic() - batch.taken_s)
            for emitted in ours:
                self._intake.running.start(emitted, claimed_s=batch.taken_s)
            claimer.let_go(ours)
        claimer.give_up(others)
        capacity.give_back(batch.slots - len(ours))
        self._slots -= batch.slots
        if not self._slots:
            self._settled.set()

    def _drop_hand(self) -> None:
        self._hand.clear()
        self._hand_bytes = 0
        self._note_hand()

    def _note_hand(self) -> None:
        is_full = len(self._hand) >= HAND_RECORDS or self._hand_bytes >= HAND_BYTES
        (self._room.clear if is_full else self._room.set)()
        (self._more.set if self._hand else self._more.clear)()
