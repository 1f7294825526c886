"""Hears on `pop.controls` which attempts are to stop."""

from collections.abc import Callable

from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import checked_value, decode_stop
from pop_stream.model.events.scheduling import AttemptStop
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings


def controls(
    settings: Settings,
    *,
    client_id: str,
    hear: Callable[[AttemptStop], None],
    replay_last: int = 0,
) -> TopicFollower:
    """What reads the topic; run it in a task.

    Args:
        settings: Where the cluster is.
        client_id: Shown in the broker's logs.
        hear: Called with every stop; must not raise.
        replay_last: Of those that were told before; see `TopicFollower`.
    """

    def hear_record(record: ConsumedRecord) -> None:
        try:
            stop = decode_stop(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
            return
        hear(stop)

    topic = Topics(settings.topic_prefix).controls
    return TopicFollower(
        settings, topic, client_id=client_id, hear=hear_record, replay_last=replay_last
    )
