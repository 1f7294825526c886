"""What the scheduler must hear of lifecycle events: a note per insight, in frames."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog
from msgspec.structs import replace

from pop_stream.bus.publisher import FRAME_BYTES
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
    Idle,
    InsightNoted,
    InsightPlaced,
    LifecycleEvent,
    Origin,
    Outcome,
    ReadyEvent,
    Settlement,
    decode_placed,
    encode,
)
from pop_stream.core.values.ids import HTTP_PULLER, ID_LENGTH

_log = structlog.get_logger()


@dataclass(slots=True)
class _Notes:
    """What was heard about one insight."""

    claims: list[Claim] = field(default_factory=list)
    idle: dict[str, int] = field(default_factory=dict)
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
                claim = Claim(
                    event.agenda_id,
                    event.attempt,
                    awaited=event.awaited,
                    by_http=event.puller_id == HTTP_PULLER,
                )
                notes = _about(found, event)
                notes.claims.append(claim)
                if len(event.puller_id) <= ID_LENGTH:
                    notes.idle[event.puller_id] = event.idle
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
        idle=tuple(Idle(*one) for one in notes.idle.items()),
    )


def fitting(note: ReadyEvent) -> Iterator[ReadyEvent]:
    """A note in parts that each fit a frame: claims, then renewals, ends, commands.

    Which runners are idle is left out then: where so much is claimed, that is soon told anew.
    """
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
