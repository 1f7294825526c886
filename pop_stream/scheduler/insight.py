"""One insight of an owned partition: its scheduler, its rows, and the state of its topic."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.events.codec import encode
from pop_stream.model.ids import InsightId
from pop_stream.policy.backlog.agenda_index import ChosenAgenda
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.backlog.checkpoint import take_checkpoint
from pop_stream.policy.insight_scheduler import InsightScheduler
from pop_stream.ports.publisher import Record
from pop_stream.scheduler.state.backlog_store import BacklogStore

CHECKPOINT_EVERY_S: Final = 600.0
"""Between two checkpoints of an insight, at least."""

_RETRY_AFTER_S: Final = 10.0
"""After a checkpoint that no round followed, or that would have been too large."""


@dataclass(slots=True)
class Checkpoints:
    """When an insight's next checkpoint on `pop.decisions` is due.

    Between two checkpoints lie at least ten minutes, and decisions of as many bytes as the
    former has, so that checkpoints cost little beside the rounds.

    Attributes:
        decided: Bytes of decisions since the last one.
    """

    decided: int = 0
    _size: int = 0
    _not_before: float = 0.0
    _is_first: bool = True

    def records(self, backlog: Backlog, topics: Topics, now: float) -> Sequence[Record]:
        """The state that a round is about to be chosen from; empty if none is due.

        An insight's first round needs none. The first one after it was read from the table
        has one: leases and tokens began again with the restart.
        """
        if not backlog.rounds:
            self._is_first, self._not_before = False, now + CHECKPOINT_EVERY_S
        if now < self._not_before or self.decided < self._size:
            return ()
        self._not_before = now + _RETRY_AFTER_S
        key = backlog.insight.id.encode()
        parts = take_checkpoint(backlog, now, begins=self._is_first)
        return [Record(topics.decisions, key, encode(part)) for part in parts]

    def record_sent(self, records: Sequence[Record], now: float) -> None:
        """These are published with their round; without any, nothing changes."""
        if records:
            self._is_first, self.decided, self._not_before = False, 0, now + CHECKPOINT_EVERY_S
            self._size = sum(len(one.value or b"") for one in records)


@dataclass(slots=True)
class OwnedInsight:
    """One insight of a partition that this process owns.

    Attributes:
        partition: Of `pop.ready`.
        scheduler: Decides; pure.
        store: The rows of its backlog.
        topic_partitions: The insight's topic is known to have as many; 0 if it is not known.
        emitted_before: Agendas and attempts that are ready by the table, and were found on the
            topic before the first round; None until they were looked for.
        checkpoints: When the next one is due.
    """

    insight_id: InsightId
    partition: int
    scheduler: InsightScheduler
    store: BacklogStore
    topic_partitions: int = 0
    emitted_before: set[tuple[str, int]] | None = None
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    @property
    def backlog(self) -> Backlog:
        """Of its scheduler."""
        return self.scheduler.backlog

    @property
    def partitions_to_grow_from(self) -> int:
        """Of the topic: a definition that wants more adds to them; 0 if there may be none."""
        if self.topic_partitions or not self.backlog.emitted:
            return self.topic_partitions
        return self.backlog.insight.partitions

    def follow(self, insight: Insight) -> None:
        """Take up a definition; a topic that it adds partitions to is grown with a round."""
        if insight.partitions > self.backlog.insight.partitions:
            self.topic_partitions = self.partitions_to_grow_from
        self.scheduler.reconfigure(insight)

    def checkpoint(self, topics: Topics, now: datetime) -> Sequence[Record]:
        """What a replay can begin with at this round; empty if it is not time for it."""
        seconds = now.timestamp()
        if not self.backlog.queue.may_pick(seconds):
            return ()
        return self.checkpoints.records(self.backlog, topics, seconds)

    def take_emitted_before(
        self, chosen: Iterable[ChosenAgenda], now: datetime
    ) -> Set[tuple[str, int]]:
        """Those of a round that are on the topic already; each is returned once."""
        if not self.emitted_before:
            return frozenset()
        refs = {(one.agenda_id, one.attempt): one.ref for one in chosen}
        taken = refs.keys() & self.emitted_before
        for one in taken:
            self.backlog.emitted_offsets.recover(refs[one], now.timestamp())
        self.emitted_before -= taken
        return taken


def save_backlogs(insights: Sequence[OwnedInsight], offset: int) -> None:
    """Write what a record changed, so that the last row alone says that all of it is written.

    Rows are written in order, so one that a crash left in the changelog stands for all before
    it. The others get the offset before: after a crash the record is handled again.

    Args:
        insights: Those that the record changed.
        offset: Of the record.
    """
    for one in insights[:-1]:
        one.store.save(one.backlog, offset - 1)
    for one in insights[-1:]:
        one.store.save(one.backlog, offset)
