"""Carries to the scheduler what it must hear of the lifecycle, past Postgres."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import structlog
from aiokafka import ConsumerRecord
from msgspec.structs import replace

from pop_stream import faults
from pop_stream.bus import clients
from pop_stream.bus.batches import handle_batches
from pop_stream.bus.publisher import FRAME_BYTES, publish_until_acknowledged
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import (
    AgendaClaimed,
    AgendaFailed,
    AgendaSucceeded,
    AttemptEvent,
    Claim,
    InsightNoted,
    LifecycleEvent,
    Settlement,
    decode_lifecycle,
    encode,
)
from pop_stream.core.ids import ID_LENGTH, INSIGHT_ID_LENGTH
from pop_stream.ports import DefinitionSource, Publisher
from pop_stream.settings import Settings

PART: Final = "relay"

BATCH_RECORDS: Final = 2_000

_LEAST_S: Final = 0.008
"""Between batches: the scheduler makes a round for each, and runners have work meanwhile."""

_log = structlog.get_logger()


class Relay:
    """Reads `pop.agenda-events`, keeps claims and settlements, writes them by insight.

    Stateless: a repeated batch repeats notes that the scheduler has taken already.
    """

    def __init__(
        self, settings: Settings, publisher: Publisher, definitions: DefinitionSource
    ) -> None:
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._definitions = definitions

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop`."""
        consumer = clients.consumer(
            self._settings,
            self._topics.agenda_events,
            client_id=PART,
            group_id=self._topics.group(PART),
        )
        async with consumer:
            _log.info("relay.started", topic=self._topics.agenda_events)
            await handle_batches(
                consumer, self.handle, max_records=BATCH_RECORDS, stop=stop, least_s=_LEAST_S
            )

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Relay one batch; an unreadable record is the rollup's to report, and skipped."""
        notes = [part for note in notes_of(_events(records)) for part in _fitting(note)]
        if not notes:
            return
        partitions = await self._publisher.partitions(self._topics.ready)
        current = self._definitions.current
        ready = [
            ready_record(self._topics, current, note, partitions=partitions) for note in notes
        ]
        await publish_until_acknowledged(self._publisher, ready)
        faults.reach("relay.published")


def notes_of(lifecycle: Iterable[LifecycleEvent]) -> list[InsightNoted]:
    """One note per insight with the claims and settlements among the events, in order."""
    claims: dict[str, list[Claim]] = {}
    settlements: dict[str, list[Settlement]] = {}
    for event in lifecycle:
        match event:
            case AgendaClaimed():
                claim = Claim(agenda_id=event.agenda_id, attempt=event.attempt)
                claims.setdefault(event.insight_id, []).append(claim)
            case AgendaSucceeded() | AgendaFailed():
                settlements.setdefault(event.insight_id, []).append(_settlement(event))
            case _:
                pass
    return [
        InsightNoted(
            insight_id=insight_id,
            claims=tuple(claims.get(insight_id, ())),
            settlements=tuple(settlements.get(insight_id, ())),
        )
        for insight_id in {**claims, **settlements}
    ]


def _fitting(note: InsightNoted) -> Iterator[InsightNoted]:
    """The note in parts that each fit a frame, claims before settlements."""
    claims, settlements = note.claims, note.settlements
    if len(encode(note)) <= FRAME_BYTES:
        yield note
    elif claims and settlements:
        yield from _fitting(replace(note, settlements=()))
        yield from _fitting(replace(note, claims=()))
    elif len(claims) + len(settlements) > 1:
        middle = (len(claims) + len(settlements)) // 2
        yield from _fitting(
            replace(note, claims=claims[:middle], settlements=settlements[:middle])
        )
        yield from _fitting(
            replace(note, claims=claims[middle:], settlements=settlements[middle:])
        )
    else:
        # Its costs alone outgrow a frame: the slot must be freed all the same.
        yield replace(note, settlements=(replace(settlements[0], spent_s={}),))


def _is_sane(event: LifecycleEvent) -> bool:
    """Whether its ids could be ids: anyone may write to the topic."""
    insight_id = event.insight_id if isinstance(event, AttemptEvent) else ""
    return len(event.agenda_id) <= ID_LENGTH and len(insight_id) <= INSIGHT_ID_LENGTH


def _settlement(event: AgendaSucceeded | AgendaFailed) -> Settlement:
    return Settlement(
        agenda_id=event.agenda_id,
        attempt=event.attempt,
        outcome="succeeded" if isinstance(event, AgendaSucceeded) else "failed",
        spent_s=event.spent_s,
    )


def _events(records: Sequence[ConsumerRecord]) -> Iterable[LifecycleEvent]:
    for record in records:
        try:
            yield from filter(_is_sane, decode_lifecycle(record.value))
        except UnreadableRecordError:
            _log.warning("record.skipped", partition=record.partition, offset=record.offset)
