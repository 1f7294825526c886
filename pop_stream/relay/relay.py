"""Reads lifecycle events, and publishes to the scheduler what it must know of them.

It makes one report per insight of a batch, in parts that fit a record, without Postgres.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import BatchPacer, handle_batches
from pop_stream.kafka.lifecycle_reader import (
    FRAME_BYTES,
    decode_record,
    may_command,
    ready_record,
)
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.base import AttemptOutcome
from pop_stream.model.events.codec import decode_routed, encode
from pop_stream.model.events.lifecycle import (
    SIGNED_EVENTS,
    AgendaCancelled,
    AgendaClaimed,
    AgendaCommanded,
    AgendaDeferred,
    AgendaEmitted,
    AgendaExhausted,
    AgendaExpired,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaRefused,
    AgendaResolved,
    AgendaRestarted,
    AgendaStopped,
    AgendaSucceeded,
    AttemptEvent,
    LifecycleEvent,
)
from pop_stream.model.events.occasions import OccurrenceEnded, OccurrenceOutcome
from pop_stream.model.events.scheduling import (
    MAX_MESSAGE_LENGTH,
    Claim,
    Command,
    IdleRunners,
    InsightAgendasRouted,
    InsightAttemptsReported,
    Origin,
    ReadyEvent,
    Settlement,
)
from pop_stream.model.ids import HTTP_PULLER, ID_LENGTH, INSIGHT_ID_LENGTH, OWN_ID_LENGTH
from pop_stream.model.schedule import schedule_of
from pop_stream.policy.backlog.agenda_index import PAGE_SLOTS
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings

_log = structlog.get_logger()

_AttemptEnded = AgendaSucceeded | AgendaFailed | AgendaStopped | AgendaDeferred


@dataclass(slots=True)
class _InsightAttempts:
    """What a batch of events reports of one insight."""

    claims: list[Claim] = field(default_factory=list)
    idle: dict[str, IdleRunners] = field(default_factory=dict)
    settlements: list[Settlement] = field(default_factory=list)
    heartbeats: dict[tuple[str, int], None] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)


def translate(
    lifecycle: Iterable[LifecycleEvent],
    commanded: Iterable[tuple[AgendaCommanded | AgendaResolved, Origin]] = (),
    at: datetime | None = None,
) -> list[InsightAttemptsReported]:
    """One report per insight with what the scheduler needs of the events, in order.

    Of many heartbeats of an attempt one is enough, and none if the report has its claim or
    its end.

    Args:
        lifecycle: Events without commands; translated before `commanded`.
        commanded: Commands, with their positions in the topic.
        at: The present instant, from which the scheduler counts what attempts take.
    """
    found: dict[str, _InsightAttempts] = {}
    for event in lifecycle:
        match event:
            case AgendaClaimed():
                claim = Claim(
                    event.agenda_id,
                    event.attempt,
                    sync_matched=event.sync_matched,
                    by_http=event.puller_id == HTTP_PULLER,
                    deferrals=event.deferrals,
                )
                reports = _entry_for(found, event)
                reports.claims.append(claim)
                if len(event.puller_id) <= ID_LENGTH:
                    reports.idle[event.puller_id] = IdleRunners(
                        event.puller_id, event.idle, event.insights
                    )
            case AgendaSucceeded() | AgendaFailed() | AgendaStopped() | AgendaDeferred():
                _entry_for(found, event).settlements.append(_settlement(event))
            case AgendaHeartbeat() | AgendaProgressed():
                _entry_for(found, event).heartbeats[event.agenda_id, event.attempt] = None
            case _:
                pass
    for wanted, origin in commanded:
        _entry_for(found, wanted).commands.append(_command(wanted, origin))
    return [_attempts_event(one, reports, at) for one, reports in found.items()]


def ordered(
    reports: Sequence[InsightAttemptsReported],
    restarted: Sequence[tuple[AgendaRestarted, Origin]],
) -> Sequence[ReadyEvent]:
    """Reports and pages in the order of their effects: ends, then restarts, then commands."""
    if not restarted:
        return reports
    return [
        *(replace(report, commands=()) for report in reports),
        *restart_pages(restarted),
        *(
            InsightAttemptsReported(insight_id=report.insight_id, commands=report.commands)
            for report in reports
            if report.commands
        ),
    ]


def restart_pages(
    restarted: Iterable[tuple[AgendaRestarted, Origin]],
) -> Iterator[InsightAgendasRouted]:
    """Agendas to be placed again, in pages that fit a frame; in order within an insight."""
    pages: dict[str, list[tuple[msgspec.Raw, Origin]]] = {}
    for event, origin in restarted:
        if _is_valid_restart(event):
            pages.setdefault(event.insight_id, []).append((event.routed, origin))
    for insight_id, routed in pages.items():
        for page in _pages(routed):
            agendas, origins = zip(*page, strict=True)
            yield InsightAgendasRouted(insight_id=insight_id, agendas=agendas, origins=origins)


def _entry_for(
    found: dict[str, _InsightAttempts], event: AttemptEvent | AgendaCommanded
) -> _InsightAttempts:
    reports = found.get(event.insight_id)
    if reports is None:
        reports = found[event.insight_id] = _InsightAttempts()
    return reports


def _attempts_event(
    insight_id: str, reports: _InsightAttempts, at: datetime | None
) -> InsightAttemptsReported:
    heartbeats = reports.heartbeats
    if heartbeats:
        for claim in reports.claims:
            heartbeats.pop((claim.agenda_id, claim.attempt), None)
        for end in reports.settlements:
            heartbeats.pop((end.agenda_id, end.attempt), None)
    return InsightAttemptsReported(
        insight_id=insight_id,
        claims=tuple(reports.claims),
        settlements=tuple(reports.settlements),
        heartbeats=tuple(Claim(agenda_id=one, attempt=attempt) for one, attempt in heartbeats),
        commands=tuple(reports.commands),
        idle=tuple(reports.idle.values()),
        relayed_at=at,
    )


def split_to_fit(report: ReadyEvent) -> Iterator[ReadyEvent]:
    """A report in parts that each fit a frame: claims, then heartbeats, ends, commands.

    Which runners are idle is left out then: where so much is claimed, the next claims say it.
    """
    if not isinstance(report, InsightAttemptsReported) or len(encode(report)) <= FRAME_BYTES:
        yield report
        return
    for name in ("claims", "heartbeats", "settlements", "commands"):
        whole = getattr(report, name)
        if whole:
            alone = InsightAttemptsReported(
                insight_id=report.insight_id, relayed_at=report.relayed_at
            )
            yield from _halves(replace(alone, **{name: whole}), name)


def _halves(report: InsightAttemptsReported, name: str) -> Iterator[InsightAttemptsReported]:
    """A report of one kind of entry, halved until each part fits."""
    some = getattr(report, name)
    if len(encode(report)) <= FRAME_BYTES:
        yield report
    elif len(some) > 1:
        middle = len(some) // 2
        yield from _halves(replace(report, **{name: some[:middle]}), name)
        yield from _halves(replace(report, **{name: some[middle:]}), name)
    else:
        # Its costs alone outgrow a frame: the slot must be freed all the same.
        yield replace(report, settlements=(replace(some[0], spent_s={}),))


def _pages(
    routed: Sequence[tuple[msgspec.Raw, Origin]],
) -> Iterator[list[tuple[msgspec.Raw, Origin]]]:
    page: list[tuple[msgspec.Raw, Origin]] = []
    size = 0
    for one in routed:
        body = len(bytes(one[0]))
        if page and (len(page) == PAGE_SLOTS or size + body > FRAME_BYTES):
            yield page
            page, size = [], 0
        page.append(one)
        size += body
    if page:
        yield page


def _is_valid_restart(event: AgendaRestarted) -> bool:
    """Whether the scheduler could use it: anyone may write to the topic."""
    try:
        routed = decode_routed(event.routed)
    except UnreadableRecordError:
        routed = None
    if routed is not None and (routed.agenda_id, routed.attempt) == (
        event.agenda_id,
        event.attempt,
    ):
        return True
    _log.warning("restart.rejected", agenda_id=event.agenda_id, attempt=event.attempt)
    return False


def _settlement(event: _AttemptEnded) -> Settlement:
    match event:
        case AgendaSucceeded():
            return _ended(event, "succeeded")
        case AgendaStopped():
            return _ended(event, "stopped")
        case AgendaFailed():
            return replace(
                _ended(event, "failed"),
                retryable=event.retryable,
                message=event.message[:MAX_MESSAGE_LENGTH],
            )
        case AgendaDeferred():
            return replace(
                _ended(event, "deferred"),
                until=event.until,
                message=event.message[:MAX_MESSAGE_LENGTH],
            )


def _ended(event: _AttemptEnded, outcome: AttemptOutcome) -> Settlement:
    return Settlement(
        agenda_id=event.agenda_id,
        attempt=event.attempt,
        outcome=outcome,
        spent_s=event.spent_s,
    )


def _command(event: AgendaCommanded | AgendaResolved, origin: Origin) -> Command:
    if isinstance(event, AgendaResolved):
        return Command(
            agenda_id=event.agenda_id,
            action="wake",
            attempt=event.attempt,
            origin=origin,
            operation=event.operation,
        )
    return Command(
        agenda_id=event.agenda_id,
        action=event.action,
        priority=event.priority,
        rank=event.rank,
        by=event.by[:ID_LENGTH],
        reason=event.reason[:MAX_MESSAGE_LENGTH],
        attempt=event.attempt,
        origin=origin,
    )


_OUTCOMES: Final[Mapping[type[LifecycleEvent], OccurrenceOutcome]] = {
    AgendaSucceeded: "succeeded",
    AgendaExhausted: "failed",
    AgendaRefused: "failed",
    AgendaCancelled: "cancelled",
    AgendaExpired: "expired",
}


def occurrence_ends(
    lifecycle: Iterable[LifecycleEvent], schedules: Container[str]
) -> Iterator[OccurrenceEnded]:
    """What the timekeeper must know: ends of agendas that are occurrences, by their ids."""
    for event in lifecycle:
        outcome = _OUTCOMES.get(type(event))
        if outcome is None:
            continue
        schedule_id = schedule_of(event.agenda_id)
        if schedule_id is not None and schedule_id in schedules:
            yield OccurrenceEnded(
                schedule_id=schedule_id, agenda_id=event.agenda_id, outcome=outcome
            )


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
        clock: Clock,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = Topics(settings.topic_prefix)
        self._signer = RecordSigner(settings.signing_keys)
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
                group=self._topics.group(PART),
                pacer=self._pacer,
            )

    async def handle(self, records: Sequence[ConsumedRecord]) -> None:
        """Relay one batch; an unreadable record is the rollup's to report, and skipped."""
        ordered_events = OrderedEvents()
        lifecycle = [*_relayed(records, ordered_events, self._signer)]
        reports = translate(lifecycle, ordered_events.commanded, self._clock.now())
        if ordered_events.expedites:
            self._pacer.expedite(_EXPEDITE_FOR_S)
        translated = [
            part
            for event in ordered(reports, ordered_events.restarted)
            for part in split_to_fit(event)
        ]
        current = self._definitions.current
        ends = [
            Record(self._topics.occasions, one.schedule_id.encode(), encode(one))
            for one in (
                occurrence_ends(lifecycle, current.schedules) if current.schedules else ()
            )
        ]
        if not translated and not ends:
            return
        partitions = await self._publisher.partitions(self._topics.ready)
        # Restarts first: a command may follow one in the same batch.
        ready = [
            ready_record(self._topics, current, event, partitions=partitions)
            for event in translated
        ]
        await publish_until_acknowledged(self._publisher, [*ready, *ends])


@dataclass(slots=True)
class OrderedEvents:
    """Events of a batch whose place in the topic matters, with that place.

    Attributes:
        expedites: Whether agendas wait for room.
    """

    restarted: list[tuple[AgendaRestarted, Origin]] = field(default_factory=list)
    commanded: list[tuple[AgendaCommanded | AgendaResolved, Origin]] = field(
        default_factory=list
    )
    expedites: bool = False


def _events_of(record: ConsumedRecord) -> Sequence[LifecycleEvent]:
    """The events of a record; one that cannot be used takes none of its frame with it."""
    events, refusals = decode_record(record)
    if refusals:
        _log.warning("record.skipped", partition=record.partition, offset=record.offset)
    return events


def _has_valid_ids(event: LifecycleEvent) -> bool:
    """Whether its ids could be ids: anyone may write to the topic."""
    insight_id = getattr(event, "insight_id", "")
    return len(event.agenda_id) <= OWN_ID_LENGTH and len(insight_id) <= INSIGHT_ID_LENGTH


def _relayed(
    records: Sequence[ConsumedRecord], ordered_events: OrderedEvents, signer: RecordSigner
) -> Iterator[LifecycleEvent]:
    """The events of a batch, without those that `ordered_events` collects."""
    for record in records:
        events = _events_of(record)
        is_believed = may_command(record, events, signer)
        for index, event in enumerate(events):
            if not _has_valid_ids(event) or (
                isinstance(event, SIGNED_EVENTS) and not is_believed
            ):
                continue  # the rollup makes a dead letter of it
            if isinstance(event, AgendaRestarted):
                ordered_events.restarted.append((event, _origin(record, index, RESTART_ORIGIN)))
            elif isinstance(event, AgendaCommanded | AgendaResolved):
                ordered_events.commanded.append((event, _origin(record, index, COMMAND_ORIGIN)))
            else:
                if isinstance(event, AgendaEmitted) and event.expedite_reports:
                    ordered_events.expedites = True
                yield event


def _origin(record: ConsumedRecord, index: int, origin_base: int) -> Origin:
    return Origin(partition=origin_base - record.partition, offset=record.offset, index=index)
