"""Claims records: publishes `agenda.claimed` for each new attempt among them."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

import structlog

from pop_stream.kafka.dead_letters import dead_letter
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_emitted
from pop_stream.model.events.lifecycle import AgendaClaimed
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.puller.reporting.reporter import publish_lifecycle

WINDOW_SIZE: Final = 100_000
"""Agendas a puller remembers; a repeat after more of them is not recognised."""


class AttemptWindow:
    """Tells repeated and outdated attempts from new ones, among the agendas seen last.

    No IO, no clock. An agenda seen longest ago is forgotten first.

    Args:
        size: How many agendas are remembered, at least 1.
    """

    def __init__(self, size: int = WINDOW_SIZE) -> None:
        if size < 1:
            msg = f"size must be at least 1, got {size}"
            raise ValueError(msg)
        self._size = size
        self._newest: OrderedDict[str, tuple[int, datetime]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._newest)

    def admit(self, agenda_id: str, attempt: int, accepted_at: datetime) -> bool:
        """Whether this attempt is newer than any seen of its agenda; if so, remember it.

        An id whose agenda was removed may be used anew, with attempts from 1 on: what was
        accepted later is another agenda.
        """
        newest = self._newest
        seen, of = newest.get(agenda_id, (0, accepted_at))
        if seen >= attempt and of >= accepted_at:
            return False
        newest.pop(agenda_id, None)  # so that it moves to the end, and is forgotten last
        newest[agenda_id] = (attempt, max(of, accepted_at))
        if len(newest) > self._size:
            newest.popitem(last=False)
        return True

    def forget(self, agenda_id: str, attempt: int) -> None:
        """Admit this attempt again, but still no older one; for one that was not started."""
        seen, of = self._newest.get(agenda_id, (0, None))
        if of is not None and seen == attempt:
            self._newest[agenda_id] = (attempt - 1, of)


_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """A batch whose claims can be read by everyone.

    Attributes:
        attempts: To start once the offsets are committed, in the order of the records.
        offsets: To commit: what follows the batch, by partition.
    """

    attempts: Sequence[EmittedAgenda]
    offsets: Mapping[TopicPartition, int]


@dataclass(slots=True)
class ClaimedAttempt:
    """One attempt that is claimed, and whose offset is not committed yet.

    Attributes:
        renewed_s: When its lease was last renewed, on the monotonic clock; at first, its claim.
    """

    emitted: EmittedAgenda
    renewed_s: float


class Claimer:
    """One per puller; batches of several insights may be claimed concurrently.

    Iterating gives what is claimed and neither started nor abandoned: its lease runs already.

    Args:
        publisher: Where claims and dead letters go.
        topics: Names of topics.
        clock: For the instants in them.
        puller_id: Who claims.
        window: Knows repeated and outdated attempts.

    Attributes:
        claimed_event: Set with every claim, for whoever renews leases.
    """

    def __init__(
        self,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        *,
        puller_id: str,
        window: AttemptWindow,
    ) -> None:
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._puller_id = puller_id
        self._window = window
        self._claimed_attempts: dict[str, ClaimedAttempt] = {}
        self.claimed_event = asyncio.Event()

    def __iter__(self) -> Iterator[ClaimedAttempt]:
        return iter(self._claimed_attempts.values())

    async def claim(
        self,
        records: Sequence[ConsumedRecord],
        *,
        sync_matched: int = 0,
        idle: int = 0,
        insights: int = 0,
    ) -> ClaimedBatch:
        """Publish the claims of a batch; returns once they are acknowledged.

        Repeats, outdated attempts and records that are no emitted agenda are left out; the
        last go to the dead letters.

        Args:
            records: In order within a partition.
            sync_matched: For how many of them a runner was idle.
            idle: How many idle runners are left for agendas of the insight.
            insights: How many insights share the runners; 0 if `idle` is not reliable.

        Raises:
            BaseException: If they could not be published; the same attempts are admitted again.
        """
        attempts, refused = self._partition_records(records)
        if attempts or refused:
            claims = [
                self._claimed(
                    emitted,
                    sync_matched=number < sync_matched,
                    idle=idle,
                    insights=insights,
                )
                for number, emitted in enumerate(attempts)
            ]
            topic = self._topics.agenda_events
            try:
                await publish_lifecycle(self._publisher, topic, claims, *refused)
            except BaseException:
                self._forget(attempts)
                raise
            now = monotonic()
            self._claimed_attempts |= {
                one.agenda_id: ClaimedAttempt(one, now) for one in attempts
            }
            self.claimed_event.set()
        offsets = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
        return ClaimedBatch(attempts, offsets)

    def release(self, claimed: Sequence[EmittedAgenda]) -> None:
        """Renew these leases no more: the attempts were started, or are abandoned."""
        for emitted in claimed:
            known = self._claimed_attempts.get(emitted.agenda_id)
            if known is not None and known.emitted is emitted:
                del self._claimed_attempts[emitted.agenda_id]

    def abandon(self, claimed: Sequence[EmittedAgenda]) -> None:
        """Admit the same attempts again: none of these was started."""
        self.release(claimed)
        self._forget(claimed)

    def _forget(self, unstarted: Sequence[EmittedAgenda]) -> None:
        for emitted in unstarted:
            self._window.forget(emitted.agenda_id, emitted.attempt)

    def _partition_records(
        self, records: Sequence[ConsumedRecord]
    ) -> tuple[list[EmittedAgenda], list[Record]]:
        attempts: list[EmittedAgenda] = []
        refused: list[Record] = []
        for record in records:
            try:
                emitted = decode_emitted(checked_value(record))
            except UnreadableRecordError as error:
                refused.append(self._refuse(record, error))
                continue
            accepted_at = emitted.accepted_at
            if self._window.admit(emitted.agenda_id, emitted.attempt, accepted_at):
                attempts.append(emitted)
            else:
                _log.info(
                    "claim.duplicate", agenda_id=emitted.agenda_id, attempt=emitted.attempt
                )
        return attempts, refused

    def _claimed(
        self, emitted: EmittedAgenda, *, sync_matched: bool, idle: int, insights: int
    ) -> AgendaClaimed:
        _log.debug("agenda.claimed", agenda_id=emitted.agenda_id, attempt=emitted.attempt)
        return AgendaClaimed(
            agenda_id=emitted.agenda_id,
            at=self._clock.now(),
            insight_id=emitted.insight_id,
            attempt=emitted.attempt,
            puller_id=self._puller_id,
            lease_ms=emitted.lease_ms,
            sync_matched=sync_matched,
            idle=idle,
            deferrals=emitted.deferrals,
            insights=insights,
        )

    def _refuse(self, record: ConsumedRecord, error: UnreadableRecordError) -> Record:
        _log.warning(
            "record.dead_lettered",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            reason=str(error),
        )
        return dead_letter(
            self._topics,
            record,
            part="puller",
            at=self._clock.now(),
            error=(error.code, str(error)),
        )
