"""Records for `pop.ready`, addressed to the partition whose owner decides for the insight."""

from pop_stream.bus.topics import Topics
from pop_stream.core.definitions.definitions import Definitions
from pop_stream.core.events import ReadyEvent, encode
from pop_stream.core.values.partitioning import partition_of
from pop_stream.ports.wire import Record


def ready_record(
    topics: Topics, definitions: Definitions, event: ReadyEvent, *, partitions: int
) -> Record:
    """The record of one event about an insight.

    Args:
        topics: Names of topics.
        definitions: Tell which insights share a pool.
        event: About one insight.
        partitions: Of `pop.ready`.
    """
    partition = partition_of(definitions.home(event.insight_id), partitions)
    return Record(topics.ready, event.insight_id.encode(), encode(event), partition)
