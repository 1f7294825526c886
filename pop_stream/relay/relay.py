"""The running part: reads lifecycle events, and publishes reports by insight."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import structlog

from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import BatchPacer, handle_batches
from pop_stream.kafka.event_records import ready_record
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_lifecycle, frame_parts
from pop_stream.model.events.lifecycle import (
    AgendaCommanded,
    AgendaEmitted,
    AgendaRestarted,
    LifecycleEvent,
)
from pop_stream.model.events.scheduling import Origin
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.ids import INSIGHT_ID_LENGTH, OWN_ID_LENGTH
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord
from pop_stream.relay.translation import ordered, split_to_fit, translate
from pop_stream.settings import Settings

PART: Final = "relay"

BATCH_RECORDS: Final = 2_000

_MIN_BATCH_INTERVAL_S: Final = 0.008
_MAX_BATCH_INTERVAL_S: Final = 0.02
_FULL_BATCH_BYTES: Final = 32 * 1024
"""Between batches: the scheduler makes a round for each, and runners have work meanwhile."""

_RELAXED_INTERVAL_S: Final = 0.05
_EXPEDITE_FOR_S: Final = 0.1
"""Where no agenda waits for room, no claim or end makes any, so more of them share a
record; while some wait, and for a moment after, they are relayed as above."""

RESTART_ORIGIN: Final = -2
"""Less a partition of `pop.agenda-events`: the partition of a restart's origin."""

COMMAND_ORIGIN: Final = -1_000_000
"""The same of a command: where a batch holds both, they go out in an order of their own."""

_log = structlog.get_logger()


class Relay:
    """Reads `pop.agenda-events`, and publishes what pullers report and people command.

    Stateless: a repeated batch repeats reports that the scheduler has applied already. Commands
    and restarts carry their position in the topic, so that it knows repeats.
    """

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        definitions: DefinitionSource,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._definitions = definitions
        self._pacer = BatchPacer(
            _MIN_BATCH_INTERVAL_S,
            _MAX_BATCH_INTERVAL_S,
            _FULL_BATCH_BYTES,
            relaxed_interval_s=_RELAXED_INTERVAL_S,
            now=now,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop`."""
        consumer = clients.consumer(
            self._settings,
            self._topics.agenda_events,
            client_id=PART,
            group_id=self._topics.group(PART),
        )
        async with consumer:
            self._pacer.pace_fetches(consumer)
            _log.info("relay.started", topic=self._topics.agenda_events)
            await handle_batches(
                consumer,
                self.handle,
                max_records=BATCH_RECORDS,
                stop=stop,
                pacer=self._pacer,
            )

    async def handle(self, records: Sequence[ConsumedRecord]) -> None:
        """Relay one batch; an unreadable record is the rollup's to report, and skipped."""
        ordered_events = OrderedEvents()
        reports = translate(_relayed(records, ordered_events), ordered_events.commanded)
        if ordered_events.expedites:
            self._pacer.expedite(_EXPEDITE_FOR_S)
        translated = [
            part
            for event in ordered(reports, ordered_events.restarted)
            for part in split_to_fit(event)
        ]
        if not translated:
            return
        partitions = await self._publisher.partitions(self._topics.ready)
        current = self._definitions.current
        # Restarts first: a command may follow one in the same batch.
        ready = [
            ready_record(self._topics, current, event, partitions=partitions)
            for event in translated
        ]
        await publish_until_acknowledged(self._publisher, ready)


@dataclass(slots=True)
class OrderedEvents:
    """Events of a batch whose place in the topic matters, with that place.

    Attributes:
        expedites: Whether agendas wait for room.
    """

    restarted: list[tuple[AgendaRestarted, Origin]] = field(default_factory=list)
    commanded: list[tuple[AgendaCommanded, Origin]] = field(default_factory=list)
    expedites: bool = False


def _events_of(record: ConsumedRecord) -> Iterator[LifecycleEvent]:
    """The events of a record; one that cannot be read takes none of its frame with it."""
    value = None
    try:
        value = checked_value(record)
        yield from decode_lifecycle(value)
    except UnreadableRecordError:
        _log.warning("record.skipped", partition=record.partition, offset=record.offset)
        for part in frame_parts(value):
            with suppress(UnreadableRecordError):
                yield from decode_lifecycle(part)


def _has_valid_ids(event: LifecycleEvent) -> bool:
    """Whether its ids could be ids: anyone may write to the topic."""
    insight_id = getattr(event, "insight_id", "")
    return len(event.agenda_id) <= OWN_ID_LENGTH and len(insight_id) <= INSIGHT_ID_LENGTH


def _relayed(
    records: Sequence[ConsumedRecord], ordered_events: OrderedEvents
) -> Iterator[LifecycleEvent]:
    """The events of a batch, without those that `ordered_events` collects."""
    for record in records:
        for index, event in enumerate(_events_of(record)):
            if not _has_valid_ids(event):
                continue
            if isinstance(event, AgendaRestarted):
                ordered_events.restarted.append((event, _origin(record, index, RESTART_ORIGIN)))
            elif isinstance(event, AgendaCommanded):
                ordered_events.commanded.append((event, _origin(record, index, COMMAND_ORIGIN)))
            else:
                if isinstance(event, AgendaEmitted) and event.expedite_reports:
                    ordered_events.expedites = True
                yield event


def _origin(record: ConsumedRecord, index: int, origin_base: int) -> Origin:
    return Origin(partition=origin_base - record.partition, offset=record.offset, index=index)
