"""Hears on `pop.controls` which attempts are to stop."""

from collections.abc import Callable

import structlog
from aiokafka import ConsumerRecord

from pop_stream.bus.tail import Tail
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import AttemptStop, decode_stop, value_of
from pop_stream.settings import Settings

_log = structlog.get_logger()


def controls(
    settings: Settings,
    *,
    client_id: str,
    hear: Callable[[AttemptStop], None],
    newest: int = 0,
) -> Tail:
    """What reads the topic; run it in a task.

    Args:
        settings: Where the cluster is.
        client_id: Shown in the broker's logs.
        hear: Called with every stop; must not raise.
        newest: Of those that were told before; see `Tail`.
    """

    def hear_record(record: ConsumerRecord) -> None:
        try:
            stop = decode_stop(value_of(record))
        except UnreadableRecordError as error:
            _log.warning("stop.unreadable", offset=record.offset, reason=str(error))
            return
        hear(stop)

    topic = Topics(settings.topic_prefix).controls
    return Tail(settings, topic, client_id=client_id, hear=hear_record, newest=newest)
