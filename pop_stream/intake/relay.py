"""Carries to the scheduler what it must hear of the lifecycle, past Postgres."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog
from aiokafka import ConsumerRecord
from msgspec.structs import replace

from pop_stream import faults
from pop_stream.bus import clients
from pop_stream.bus.batches import Beat, handle_batches
from pop_stream.bus.publisher import FRAME_BYTES, publish_until_acknowledged
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.page import PAGE_SLOTS
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import (
    MESSAGE_LENGTH,
    AgendaClaimed,
    AgendaCommanded,
    AgendaFailed,
    AgendaProgressed,
    AgendaRenewed,
    AgendaRestarted,
    AgendaStopped,
    AgendaSucceeded,
    AttemptEvent,
    Claim,
    Command,
    InsightNoted,
    InsightPlaced,
    LifecycleEvent,
    Origin,
    Outcome,
    ReadyEvent,
    Settlement,
    decode_lifecycle,
    decode_placed,
    encode,
    parts_of,
)
from pop_stream.core.values.ids import ID_LENGTH, INSIGHT_ID_LENGTH, OWN_ID_LENGTH
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.wire import Publisher
from pop_stream.settings import Settings

PART: Final = "relay"

BATCH_RECORDS: Final = 2_000

_LEAST_S: Final = 0.008
_MOST_S: Final = 0.02
_FULL_BYTES: Final = 32 * 1024
"""Between batches: the scheduler makes a round for each, and runners have work meanwhile."""

NOT_SUBMITTED: Final = -2
"""Less a partition of `pop.agenda-events`: the partition of a restart's origin."""

WANTED: Final = -1_000_000
"""The same of a command: where a batch holds both, they go out in an order of their own."""

_log = structlog.get_logger()


class Relay:
    """Reads `pop.agenda-events`, and writes by insight what pullers say and people want.

    Stateless: a repeated batch repeats notes that the scheduler has taken already. Commands
    and restarts carry where they were told, so that it knows them again.
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
                consumer,
                self.handle,
                max_records=BATCH_RECORDS,
                stop=stop,
                beat=Beat(_LEAST_S, _MOST_S, _FULL_BYTES),
            )

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Relay one batch; an unreadable record is the rollup's to report, and skipped."""
        aside = Aside()
        notes = notes_of(_heard(records, aside), aside.commanded)
        told = [part for event in in_order(notes, aside.restarted) for part in _fitting(event)]
        if not told:
            return
        partitions = await self._publisher.partitions(self._topics.ready)
        current = self._definitions.current
        # Restarts first: a command may follow one in the same batch.
        ready = [
            ready_record(self._topics, current, event, partitions=partitions) for event in told
        ]
        await publish_until_acknowledged(self._publisher, ready)
        faults.reach("relay.published")


@dataclass(slots=True)
class Aside:
    """Events of a batch whose place in the topic matters, with that place."""

    restarted: list[tuple[AgendaRestarted, Origin]] = field(default_factory=list)
    commanded: list[tuple[AgendaCommanded, Origin]] = field(default_factory=list)


@dataclass(slots=True)
class _Notes:
    """What was heard about one insight."""

    claims: list[Claim] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    renewals: dict[tuple[str, int], None] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)


def notes_of(
    lifecycle: Iterable[LifecycleEvent],
    commanded: Iterable[tuple[AgendaCommanded, Origin]] = (),
) -> list[InsightNoted]:
    """One note per insight with what the scheduler must hear of the events, in order.

    Of many signs of life of an attempt one is enough, and none if the note has its claim
    or its end.

    Args:
        lifecycle: Events without commands; looked at before `commanded` is.
        commanded: Commands, with where they were told.
    """
    found: dict[str, _Notes] = {}
    for event in lifecycle:
        match event:
            case AgendaClaimed():
                claim = Claim(event.agenda_id, event.attempt, awaited=event.awaited)
                _about(found, event).claims.append(claim)
            case AgendaSucceeded() | AgendaFailed() | AgendaStopped():
                _about(found, event).settlements.append(_settlement(event))
            case AgendaRenewed() | AgendaProgressed():
                _about(found, event).renewals[event.agenda_id, event.attempt] = None
            case _:
                pass
    for wanted, origin in commanded:
        _about(found, wanted).commands.append(_command(wanted, origin))
    return [_note(insight_id, notes) for insight_id, notes in found.items()]


def in_order(
    notes: Sequence[InsightNoted], restarted: Sequence[tuple[AgendaRestarted, Origin]]
) -> Sequence[ReadyEvent]:
    """An end comes before a restart that follows it, and commands come after."""
    if not restarted:
        return notes
    return [
        *(replace(note, commands=()) for note in notes),
        *placed_again(restarted),
        *(
            InsightNoted(insight_id=note.insight_id, commands=note.commands)
            for note in notes
            if note.commands
        ),
    ]


def placed_again(
    restarted: Iterable[tuple[AgendaRestarted, Origin]],
) -> Iterator[InsightPlaced]:
    """Agendas to be placed again, in pages that fit a frame; in order within an insight."""
    pages: dict[str, list[tuple[msgspec.Raw, Origin]]] = {}
    for event, origin in restarted:
        if _is_placeable(event):
            pages.setdefault(event.insight_id, []).append((event.placed, origin))
    for insight_id, placed in pages.items():
        for page in _pages(placed):
            agendas, origins = zip(*page, strict=True)
            yield InsightPlaced(insight_id=insight_id, agendas=agendas, origins=origins)


def _about(found: dict[str, _Notes], event: AttemptEvent | AgendaCommanded) -> _Notes:
    notes = found.get(event.insight_id)
    if notes is None:
        notes = found[event.insight_id] = _Notes()
    return notes


def _note(insight_id: str, notes: _Notes) -> InsightNoted:
    renewals = notes.renewals
    if renewals:
        for claim in notes.claims:
            renewals.pop((claim.agenda_id, claim.attempt), None)
        for end in notes.settlements:
            renewals.pop((end.agenda_id, end.attempt), None)
    return InsightNoted(
        insight_id=insight_id,
        claims=tuple(notes.claims),
        settlements=tuple(notes.settlements),
        renewals=tuple(Claim(agenda_id=one, attempt=attempt) for one, attempt in renewals),
        commands=tuple(notes.commands),
    )


def _fitting(note: ReadyEvent) -> Iterator[ReadyEvent]:
    """A note in parts that each fit a frame: claims, then renewals, ends, commands."""
    if not isinstance(note, InsightNoted) or len(encode(note)) <= FRAME_BYTES:
        yield note
        return
    for name in ("claims", "renewals", "settlements", "commands"):
        whole = getattr(note, name)
        if whole:
            alone = InsightNoted(insight_id=note.insight_id)
            yield from _halves(replace(alone, **{name: whole}), name)


def _halves(note: InsightNoted, name: str) -> Iterator[InsightNoted]:
    """A note of one kind of news, halved until each part fits."""
    some = getattr(note, name)
    if len(encode(note)) <= FRAME_BYTES:
        yield note
    elif len(some) > 1:
        middle = len(some) // 2
        yield from _halves(replace(note, **{name: some[:middle]}), name)
        yield from _halves(replace(note, **{name: some[middle:]}), name)
    else:
        # Its costs alone outgrow a frame: the slot must be freed all the same.
        yield replace(note, settlements=(replace(some[0], spent_s={}),))


def _pages(
    placed: Sequence[tuple[msgspec.Raw, Origin]],
) -> Iterator[list[tuple[msgspec.Raw, Origin]]]:
    page: list[tuple[msgspec.Raw, Origin]] = []
    size = 0
    for one in placed:
        body = len(bytes(one[0]))
        if page and (len(page) == PAGE_SLOTS or size + body > FRAME_BYTES):
            yield page
            page, size = [], 0
        page.append(one)
        size += body
    if page:
        yield page


def _is_placeable(event: AgendaRestarted) -> bool:
    """Whether the scheduler could use it: anyone may write to the topic."""
    try:
        placed = decode_placed(event.placed)
    except UnreadableRecordError:
        placed = None
    if placed is not None and (placed.agenda_id, placed.attempt) == (
        event.agenda_id,
        event.attempt,
    ):
        return True
    _log.warning("restart.skipped", agenda_id=event.agenda_id, attempt=event.attempt)
    return False


def _told(record: ConsumerRecord) -> Iterator[LifecycleEvent]:
    """The events of a record; one that cannot be read takes none of its frame with it."""
    try:
        yield from decode_lifecycle(record.value)
    except UnreadableRecordError:
        _log.warning("record.skipped", partition=record.partition, offset=record.offset)
        for part in parts_of(record.value):
            with suppress(UnreadableRecordError):
                yield from decode_lifecycle(part)


def _is_sane(event: LifecycleEvent) -> bool:
    """Whether its ids could be ids: anyone may write to the topic."""
    insight_id = getattr(event, "insight_id", "")
    return len(event.agenda_id) <= OWN_ID_LENGTH and len(insight_id) <= INSIGHT_ID_LENGTH


def _settlement(event: AgendaSucceeded | AgendaFailed | AgendaStopped) -> Settlement:
    match event:
        case AgendaSucceeded():
            return _ended(event, "succeeded")
        case AgendaStopped():
            return _ended(event, "stopped")
        case AgendaFailed():
            return replace(
                _ended(event, "failed"),
                retryable=event.retryable,
                message=event.message[:MESSAGE_LENGTH],
            )


def _ended(
    event: AgendaSucceeded | AgendaFailed | AgendaStopped, outcome: Outcome
) -> Settlement:
    return Settlement(
        agenda_id=event.agenda_id,
        attempt=event.attempt,
        outcome=outcome,
        spent_s=event.spent_s,
    )


def _command(event: AgendaCommanded, origin: Origin) -> Command:
    return Command(
        agenda_id=event.agenda_id,
        action=event.action,
        priority=event.priority,
        rank=event.rank,
        by=event.by[:ID_LENGTH],
        reason=event.reason[:MESSAGE_LENGTH],
        attempt=event.attempt,
        origin=origin,
    )


def _heard(records: Sequence[ConsumerRecord], aside: Aside) -> Iterator[LifecycleEvent]:
    """The events of a batch, without those that are put aside."""
    for record in records:
        for index, event in enumerate(_told(record)):
            if not _is_sane(event):
                continue
            if isinstance(event, AgendaRestarted):
                aside.restarted.append((event, _origin(record, index, NOT_SUBMITTED)))
            elif isinstance(event, AgendaCommanded):
                aside.commanded.append((event, _origin(record, index, WANTED)))
            else:
                yield event


def _origin(record: ConsumerRecord, index: int, base: int) -> Origin:
    return Origin(partition=base - record.partition, offset=record.offset, index=index)
