"""The claim pipeline of one consumer: records in hand, claims published, offsets committed."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final, Protocol, Self

from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.puller.claiming.claims import ClaimedBatch, Claimer

BUFFER_RECORDS: Final = 500
BUFFER_BYTES: Final = 8 * 1024 * 1024
"""While so many, or so large, records are in hand, no more are read."""

_BACKPRESSURE_PAUSE_S: Final = 0.25

Commit = Callable[[Mapping[TopicPartition, int]], Awaitable[bool]]


class SlotPool(Protocol):
    """How many more agendas may be claimed; `Capacity` is one."""

    @property
    def idle_runners(self) -> int:
        """Runners that no slot is held for."""
        ...

    async def wait_free(self) -> None:
        """Wait until a slot is free; by the time the caller runs, another may have it."""
        ...

    def acquire(self, most: int) -> int:
        """Hold up to `most` slots; returns how many."""
        ...

    def release_slots(self, count: int = 1) -> None:
        """Free slots that were taken."""
        ...

    def note_claim(self, seconds: float) -> None:
        """Take note of how long a claim took."""
        ...


class AttemptStarter(Protocol):
    """Takes over what is claimed; `AttemptExecutor` is one."""

    def start(self, emitted: EmittedAgenda, *, claimed_s: float) -> None:
        """Take over an attempt whose claim is committed, with the slot acquired for it."""
        ...


class Backpressure(Protocol):
    """Where the events of attempts wait for Kafka; `Reporter` is one."""

    @property
    def is_full(self) -> bool:
        """Whether no new work should be taken."""
        ...


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """What the consumers of a puller share.

    Attributes:
        insights: How many insights share the puller's runners.
    """

    claimer: Claimer
    starter: AttemptStarter
    reporter: Backpressure
    capacity: SlotPool
    insights: int = 1

    @property
    def idle_runners(self) -> int:
        """Runners without a slot, as many as one insight may count on: its equal part."""
        return self.capacity.idle_runners // self.insights


@dataclass(frozen=True, slots=True, eq=False)
class _ClaimBatch:
    """Slots acquired for records, and their claim.

    Attributes:
        taken_s: When the slots were acquired, on the monotonic clock.
        generation: Of the partitions' assignment; once it is over, whoever has the partitions
            then claims the records.
    """

    slots: int
    taken_s: float
    generation: int
    claimed: ClaimedBatch


class ClaimPipeline:
    """Two stages behind one consumer, each of which works on all that has gathered for it.

    One publishes claims; the other commits what is claimed, and then starts it. So lag means
    unclaimed, an agenda runs only once no other puller will read it, and neither wait
    keeps runners idle. Works while entered; leaving waits for the claims in progress.

    Args:
        claim_context: Shared with the puller's other consumers.
        commit: Commits offsets; returns whether they are known to count. If not, nothing of
            the batch is started here: whoever owns the partitions reads it again, or the
            leases of its claims end.
        end_within_s: How long leaving waits for claims in progress.
    """

    def __init__(
        self, claim_context: ClaimContext, commit: Commit, *, end_within_s: float
    ) -> None:
        self._claim_context = claim_context
        self._commit = commit
        self._end_within_s = end_within_s
        self._buffer: deque[ConsumedRecord] = deque()
        self._buffer_bytes = 0
        self._has_buffered = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._claimed: list[_ClaimBatch] = []
        self._committing: list[_ClaimBatch] = []
        self._to_commit = asyncio.Event()
        self._slots = 0
        self._generation = 0
        self._is_drained = asyncio.Event()
        self._is_drained.set()
        self._stage_tasks: tuple[asyncio.Task[None], ...] = ()

    async def __aenter__(self) -> Self:
        self._stage_tasks = tuple(
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
                await self.drain(self._end_within_s)
        finally:
            for stage in self._stage_tasks:
                stage.cancel()
            ends = await asyncio.gather(*self._stage_tasks, return_exceptions=True)
            for batch in (*self._committing, *self._claimed):
                self._claim_context.claimer.abandon(batch.claimed.attempts)
            self._claim_context.capacity.release_slots(self._slots)
            self._slots = 0
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def wait_failed(self) -> None:
        """Wait until a stage ends by itself; leaving raises why."""
        await asyncio.wait(self._stage_tasks, return_when=asyncio.FIRST_COMPLETED)

    async def wait_for_room(self, within_s: float) -> bool:
        """Wait for at most `within_s` until more may be read; whether it may."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._has_room.wait()
        return self._has_room.is_set()

    def add(self, records: Iterable[ConsumedRecord]) -> None:
        """Take records in hand, in order within a partition."""
        for record in records:
            self._buffer.append(record)
            self._buffer_bytes += len(record.value or b"")
        self._update_room()

    async def drain(self, within_s: float) -> None:
        """Drop the records in hand, and wait for at most `within_s` for claims in progress.

        Claims that are still in progress then are abandoned when they end.
        """
        self._drop_buffer()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._is_drained.wait()
        self._drop_buffer()
        self._generation += 1

    async def _claim(self) -> None:
        capacity = self._claim_context.capacity
        while True:
            had_none = not self._buffer
            await self._has_buffered.wait()
            await capacity.wait_free()
            if self._claim_context.reporter.is_full:
                await asyncio.sleep(_BACKPRESSURE_PAUSE_S)
                continue
            sync_matched = capacity.idle_runners if had_none else 0
            await self._wait_for_older_generation()
            if slots := capacity.acquire(len(self._buffer)):
                self._slots += slots
                self._is_drained.clear()
                records = [self._buffer.popleft() for _ in range(slots)]
                self._buffer_bytes -= sum(len(record.value or b"") for record in records)
                self._update_room()
                taken_s, generation = monotonic(), self._generation
                claimed = await self._claim_context.claimer.claim(
                    records,
                    sync_matched=sync_matched,
                    idle=self._claim_context.idle_runners,
                    insights=self._claim_context.insights,
                )
                self._claimed.append(_ClaimBatch(slots, taken_s, generation, claimed))
                self._to_commit.set()

    async def _wait_for_older_generation(self) -> None:
        """Wait for the end of claims from before partitions moved.

        They may yet be abandoned. A record of theirs that is read again before that would pass
        for a repeat, and nobody would start its attempt.
        """
        if any(
            one.generation != self._generation for one in (*self._committing, *self._claimed)
        ):
            await self._is_drained.wait()

    async def _commit_and_start(self) -> None:
        while True:
            await self._to_commit.wait()
            self._to_commit.clear()
            batches, self._claimed = self._claimed, []
            self._committing = batches
            current = [batch for batch in batches if batch.generation == self._generation]
            offsets = {tp: at for batch in current for tp, at in batch.claimed.offsets.items()}
            is_committed = bool(current) and await self._commit(offsets)
            self._committing = []
            for batch in batches:
                self._end(batch, is_committed=is_committed and batch in current)

    def _end(self, batch: _ClaimBatch, *, is_committed: bool) -> None:
        capacity, claimer = self._claim_context.capacity, self._claim_context.claimer
        ours = batch.claimed.attempts if is_committed else ()
        if ours:
            capacity.note_claim(monotonic() - batch.taken_s)
            for emitted in ours:
                self._claim_context.starter.start(emitted, claimed_s=batch.taken_s)
            claimer.release(ours)
        if not is_committed:
            claimer.abandon(batch.claimed.attempts)
        capacity.release_slots(batch.slots - len(ours))
        self._slots -= batch.slots
        if not self._slots:
            self._is_drained.set()

    def _drop_buffer(self) -> None:
        self._buffer.clear()
        self._buffer_bytes = 0
        self._update_room()

    def _update_room(self) -> None:
        is_full = len(self._buffer) >= BUFFER_RECORDS or self._buffer_bytes >= BUFFER_BYTES
        (self._has_room.clear if is_full else self._has_room.set)()
        (self._has_buffered.set if self._buffer else self._has_buffered.clear)()
