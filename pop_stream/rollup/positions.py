"""Where each assigned partition is read on: where the database says, asked when in doubt."""

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

from pop_stream.ports.summaries import SummaryStore
from pop_stream.rollup.entry import LifecycleEntry


class FoldedOffsets(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Next offsets by partition, of one topic.

    They are unknown after every rebalance and after every doubt, and what is read from a
    partition whose position is unknown is not to be folded.

    Attributes:
        known: What the database holds. Replaced, never cleared, so that a fold under way
            when a rebalance comes does not bring an outdated position back.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.known: dict[int, int] = {}

    def reset(self) -> None:
        """Doubt everything."""
        self.known = {}

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Forget; called by the consumer."""
        self.reset()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Forget; called by the consumer, which resumes at its own committed offsets."""
        self.reset()

    async def seek_unknown(self, consumer: AIOKafkaConsumer, store: SummaryStore) -> None:
        """Ask the database for the positions that are unknown, and seek there."""
        if all(tp.partition in self.known for tp in consumer.assignment()):
            return
        offsets = await store.next_offsets(self._topic)
        for tp in consumer.assignment():
            if tp.partition not in self.known:
                # An offset that retention has removed makes the consumer go to the earliest.
                consumer.seek(tp, offsets.get(tp.partition, 0))
                self.known[tp.partition] = offsets.get(tp.partition, 0)


def spans(
    entries: Iterable[LifecycleEntry], known: dict[int, int]
) -> dict[int, tuple[int, int]]:
    """What folding the entries consumes: by partition, from where to where.

    A record that the entries do not end is left to be read again.
    """
    ends = {one.record.partition: one.record.offset + one.ends_record for one in entries}
    return {partition: (known[partition], end) for partition, end in ends.items()}
