"""Records of events: frames of the lifecycle, and events for the owner of an insight."""

from collections.abc import Iterable, Sequence
from typing import Final

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.events.codec import encode, frame
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.events.scheduling import ReadyEvent
from pop_stream.model.partitioning import partition_of
from pop_stream.ports.publisher import Publisher, Record

FRAME_BYTES: Final = 256 * 1024
"""Largest frame of several events; a single event may be larger."""


async def lifecycle_records(
    publisher: Publisher, topic: str, lifecycle: Iterable[LifecycleEvent]
) -> list[Record]:
    """Records for `pop.agenda-events`: by partition, frames of at most `FRAME_BYTES`.

    Events of one agenda keep their order. The key of a frame is its first agenda's.
    """
    partitions = await publisher.partitions(topic)
    by_partition: dict[int, list[tuple[str, bytes]]] = {}
    for event in lifecycle:
        partition = partition_of(event.agenda_id.encode(), partitions)
        encoded = (event.agenda_id, encode(event))
        by_partition.setdefault(partition, []).append(encoded)
    return [
        Record(topic, key.encode(), value, partition)
        for partition, encoded in by_partition.items()
        for key, value in _frames(encoded)
    ]


def _frames(encoded: Sequence[tuple[str, bytes]]) -> Iterable[tuple[str, bytes]]:
    if len(encoded) == 1:
        yield encoded[0]
        return
    held: list[bytes] = []
    key, size = encoded[0][0], 0
    for agenda_id, value in encoded:
        if held and size + len(value) > FRAME_BYTES:
            yield key, frame(held)
            held, key, size = [], agenda_id, 0
        held.append(value)
        size += len(value)
    yield key, frame(held)


def ready_record(
    topics: Topics, definitions: Definitions, event: ReadyEvent, *, partitions: int
) -> Record:
    """The record of one event, for the partition whose owner schedules the insight.

    Args:
        topics: Names of topics.
        definitions: Those in force; insights that share a pool share a partition.
        event: About one insight.
        partitions: The number of partitions of `pop.ready`.
    """
    partition = partition_of(definitions.routing_key(event.insight_id), partitions)
    return Record(topics.ready, event.insight_id.encode(), encode(event), partition)
