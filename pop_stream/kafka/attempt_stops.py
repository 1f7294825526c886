"""Follows `pop.controls`, which names attempts that are to stop."""

from collections.abc import Callable

from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_stop
from pop_stream.model.events.scheduling import AttemptStop
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings


def follow_controls(
    settings: Settings,
    *,
    client_id: str,
    on_stop: Callable[[AttemptStop], None],
    replay_last: int = 0,
) -> TopicFollower:
    """A follower of the topic; run it in a task. Unreadable records are skipped and counted.

    Args:
        settings: Where the cluster is.
        client_id: Shown in the broker's logs.
        on_stop: Called with every stop, in order; must not raise.
        replay_last: How many earlier stops to begin with; see `TopicFollower`.
    """

    def on_record(record: ConsumedRecord) -> None:
        try:
            stop = decode_stop(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
            return
        on_stop(stop)

    topic = Topics(settings.topic_prefix).controls
    return TopicFollower(
        settings, topic, client_id=client_id, on_record=on_record, replay_last=replay_last
    )
