"""The events on the topics, their JSON, and frames: lists of events in one record.

Every event is a JSON object whose `type` names it. A record's value is one event or a list
of events (a frame); both decode the same way. Unknown fields are ignored, so that a reader
accepts what the next version writes. Instants are RFC 3339 in UTC.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from pop_stream.core.errors import UnreadableRecordError

Outcome = Literal["succeeded", "failed", "cancelled", "expired"]
OperationState = Literal["waiting", "running", "succeeded", "failed"]

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""With an offset on the wire: instants without one could not be compared with the rest."""


def _tag(class_name: str) -> str:
    words = "".join(f".{c.lower()}" if c.isupper() else c for c in class_name)
    return words.removeprefix(".")


class Struct(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of all wire shapes: immutable, absent fields take their defaults."""


class Event(Struct, frozen=True, tag_field="type", tag=_tag):
    """Base of all events; the tag of `AgendaEmitted` is `agenda.emitted`."""


class Diagnostic(Struct, frozen=True):
    """Something a handler or a part wants a person to know."""

    message: str
    at: Instant
    code: str = ""
    detail: Any = None


class OperationProgress(Struct, frozen=True):
    """The newest knowledge about one operation in one attempt; replaces what was known.

    Attributes:
        reported_at: Of two reports equally far, the later counts; absent, the event's `at`.
    """

    name: str
    state: OperationState
    percent: float = 0.0
    message: str = ""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    diagnostics: tuple[Diagnostic, ...] = ()
    reported_at: Instant | None = None


class RefusedIssue(Struct, frozen=True):
    """One reason for a refusal, as `core.errors.Issue`."""

    field: str
    value: str
    message: str


# ---- pop.agenda-events: the lifecycle, keyed by agenda id ----


class AgendaEvent(Event, frozen=True):
    """What all lifecycle events carry.

    Attributes:
        agenda_id: Also the record's key, unless it is in a frame.
        at: When it happened, by the clock of the part that says so.
    """

    agenda_id: str
    at: Instant


class AgendaAccepted(AgendaEvent, frozen=True):
    """Intake validated and placed the agenda; from here on it is never lost."""

    insight_id: str
    customer_id: str
    agenda: msgspec.Raw
    title: str = ""
    link_id: str | None = None
    priority: int = 5
    operations: tuple[str, ...] = ()


class AgendaRefused(AgendaEvent, frozen=True):
    """Intake could not accept the agenda; `issues` say why."""

    issues: tuple[RefusedIssue, ...]
    customer_id: str | None = None


class AttemptEvent(AgendaEvent, frozen=True):
    """An event of one attempt; those of an older attempt are recorded, not applied."""

    insight_id: str
    attempt: int


class AgendaEmitted(AttemptEvent, frozen=True):
    """The scheduler put the agenda on its insight's topic."""


class AgendaClaimed(AttemptEvent, frozen=True):
    """A puller took the agenda; its lease runs from `at` for `lease_ms`."""

    puller_id: str
    lease_ms: int


class AgendaRenewed(AttemptEvent, frozen=True):
    """A heartbeat: the lease runs anew from `at` for `lease_ms`."""

    puller_id: str
    lease_ms: int


class AgendaProgressed(AttemptEvent, frozen=True):
    """Operations whose progress changed since the last report; also renews the lease."""

    operations: tuple[OperationProgress, ...]


class AgendaSucceeded(AttemptEvent, frozen=True):
    """All operations succeeded. `spent_s` is worker-seconds by operation type."""

    operations: tuple[OperationProgress, ...] = ()
    spent_s: dict[str, float] = {}


class AgendaFailed(AttemptEvent, frozen=True):
    """The attempt failed; `message` says why, `retryable` whether another try may help."""

    message: str
    retryable: bool = True
    operations: tuple[OperationProgress, ...] = ()
    spent_s: dict[str, float] = {}
    diagnostics: tuple[Diagnostic, ...] = ()


LifecycleEvent = (
    AgendaAccepted
    | AgendaRefused
    | AgendaEmitted
    | AgendaClaimed
    | AgendaRenewed
    | AgendaProgressed
    | AgendaSucceeded
    | AgendaFailed
)


# ---- pop.ready: what the scheduler hears, keyed by insight id ----


class PlacedAgenda(Struct, frozen=True):
    """One agenda of a page, as intake hands it to the scheduler.

    Attributes:
        operation_types: Type of every operation, for the learned cost.
        cost_s: Declared worker-seconds; None when the cost is to be learned.
    """

    agenda_id: str
    customer_id: str
    accepted_at: Instant
    agenda: msgspec.Raw
    priority: int = 5
    rank: int = 0
    fairness_key: str = ""
    operation_types: tuple[str, ...] = ()
    cost_s: float | None = None


class Origin(Struct, frozen=True, array_like=True):
    """Where a page came from: what makes a replayed page recognisable.

    Intake reads a partition of `pop.submissions` in order and writes each insight's pages in
    order, so a place at or before the last one seen for the same partition is a repeat.

    Attributes:
        partition: Of `pop.submissions`; -1 where there is no origin to compare.
        index: Within a record that holds a list of agendas.
    """

    partition: int
    offset: int
    index: int = 0


class InsightPlaced(Event, frozen=True):
    """Agendas of one insight, at most a page; `origins[i]` is where `agendas[i]` came from."""

    insight_id: str
    agendas: tuple[msgspec.Raw, ...]
    origins: tuple[Origin, ...]


class Claim(Struct, frozen=True, array_like=True):
    """An attempt that a puller holds now."""

    agenda_id: str
    attempt: int


class Settlement(Struct, frozen=True, array_like=True):
    """An attempt that ended; `spent_s` is worker-seconds by operation type."""

    agenda_id: str
    attempt: int
    outcome: Outcome
    spent_s: dict[str, float] = {}


class InsightNoted(Event, frozen=True):
    """What the relay heard about agendas of one insight, in order of arrival."""

    insight_id: str
    claims: tuple[Claim, ...] = ()
    settlements: tuple[Settlement, ...] = ()


class InsightTick(Event, frozen=True):
    """Look again: the lag fell, or time passed.

    Attributes:
        lag: Consumer lag of the insight's topic in records; None when unknown.
        emitted: How many records had ever been emitted when the lag was asked for.
    """

    insight_id: str
    lag: int | None = None
    emitted: int | None = None


class InsightAsked(Event, frozen=True):
    """Someone wants to know about an insight, or about an agenda in it.

    Attributes:
        question_id: Comes back with the answer.
        agenda_id: Whose place is wanted; empty for the insight alone.
    """

    insight_id: str
    question_id: str
    agenda_id: str = ""


ReadyEvent = InsightPlaced | InsightNoted | InsightTick | InsightAsked


# ---- pop.insight.<id>: what pullers read, keyed by agenda id ----


class EmittedAgenda(Struct, frozen=True):
    """An agenda to run now. One record each, never a frame, so that lag counts agendas.

    Attributes:
        attempt: From 1; also the fence: report it with every event.
        lease_ms: Claim and renew within this time, or the agenda goes to someone else.
        agenda: The submission as accepted, id included.
    """

    agenda_id: str
    insight_id: str
    customer_id: str
    attempt: int
    accepted_at: Instant
    emitted_at: Instant
    lease_ms: int
    agenda: msgspec.Raw


# ---- pop.decisions, pop.answers and pop.dead-letters ----


class CustomerShare(Struct, frozen=True):
    """One customer's part of an insight.

    Attributes:
        chosen: In this round; 0 where no round is meant.
        share: Recent service per weight, as a multiple of the mean of backlogged customers.
        wait_s: Recent mean of the wait from acceptance to emission.
        held_by: Why nothing of it can be chosen: `paused`, `max_in_flight`, `rate`, or empty.
    """

    customer_id: str
    chosen: int
    ready: int
    in_flight: int
    weight: float
    share: float = 1.0
    wait_s: float = 0.0
    held_by: str = ""


class RoundDecided(Event, frozen=True):
    """Why an insight's round chose what it chose, and why the rest waits.

    Attributes:
        lag: Records on the insight's topic that no puller has claimed, before the round.
        slots: How many agendas the round could emit.
        virtual_time: Of the fair queue after the round, in worker-seconds per weight.
        customers: Those chosen first, then those that wait the most; at most 50.
        waiting: Why agendas stay: `depth`, `customer_caps`, or empty if none wait.
        gap: Widest difference of backlogged customers' places on the virtual clock.
        bound: What the gap cannot exceed: the largest charge among them.
        partition: Of `pop.ready`, with `offset` the record that led to the round.
        definitions: Version of the definitions that were in force.
    """

    insight_id: str
    at: Instant
    round: int
    algorithm: str
    lag: int
    in_flight: int
    slots: int
    chosen: tuple[str, ...]
    ready: int
    virtual_time: float
    customers: tuple[CustomerShare, ...]
    waiting: str = ""
    gap: float = 0.0
    bound: float = 0.0
    partition: int = 0
    offset: int = 0
    definitions: int = 0


class AgendaPlace(Struct, frozen=True):
    """Where an agenda stands with the scheduler.

    Attributes:
        state: `ready`, `emitted`, `claimed`, or `unknown` if the scheduler has none of it.
        position: About how many are emitted up to and with it; 0 unless ready.
        own_ahead: How many of these are the customer's own; exact.
        eta_s: Until it is claimed, at the present rate; None while nothing moves.
    """

    agenda_id: str
    state: Literal["ready", "emitted", "claimed", "unknown"]
    position: int = 0
    own_ahead: int = 0
    eta_s: float | None = None
    customer: CustomerShare | None = None


class InsightAnswered(Event, frozen=True):
    """The scheduler's answer to `insight.asked`.

    Attributes:
        lag: Records on the insight's topic that no puller has claimed.
        slots: How many agendas could be emitted now.
        target: Unclaimed agendas that a refill aims at.
        rate_per_s: Agendas claimed per second, lately.
        customers: Those with most at stake, at most 50.
        others: Backlogged customers not listed.
        gap: As in `round.decided`, with `bound`.
    """

    insight_id: str
    question_id: str
    at: datetime
    algorithm: str
    ready: int
    lag: int
    in_flight: int
    slots: int
    target: int
    rate_per_s: float
    customers: tuple[CustomerShare, ...]
    others: int = 0
    gap: float = 0.0
    bound: float = 0.0
    agenda: AgendaPlace | None = None


class RecordRefused(Event, frozen=True):
    """A dead letter: a record no part could use, with its coordinates and the reason.

    Attributes:
        value_base64: The record's value, whole unless `truncated`.
    """

    topic: str
    partition: int
    offset: int
    at: Instant
    part: str
    code: str
    reason: str
    value_base64: str
    truncated: bool = False
    issues: tuple[RefusedIssue, ...] = ()


_ENCODER: Final = msgspec.json.Encoder()
_LIFECYCLE: Final = msgspec.json.Decoder(LifecycleEvent | list[LifecycleEvent])
_READY: Final = msgspec.json.Decoder(ReadyEvent | list[ReadyEvent])
_EMITTED: Final = msgspec.json.Decoder(EmittedAgenda)
_ANSWER: Final = msgspec.json.Decoder(InsightAnswered)
_PLACED: Final = msgspec.json.Decoder(PlacedAgenda)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(value: Struct | Sequence[Struct]) -> bytes:
    """JSON of an event, of a frame of events, or of any other wire shape."""
    return _ENCODER.encode(value)


def frame(encoded: Iterable[bytes]) -> bytes:
    """A frame made of events that are encoded already."""
    return b"[" + b",".join(encoded) + b"]"


def decode_lifecycle(value: bytes | None) -> Sequence[LifecycleEvent]:
    """The events of one record of `pop.agenda-events`.

    Raises:
        UnreadableRecordError: If the value is not one event or a list of events.
    """
    return _events(_LIFECYCLE, value)


def decode_ready(value: bytes | None) -> Sequence[ReadyEvent]:
    """The events of one record of `pop.ready`.

    Raises:
        UnreadableRecordError: If the value is not one event or a list of events.
    """
    return _events(_READY, value)


def decode_emitted(value: bytes | None) -> EmittedAgenda:
    """The agenda in one record of `pop.insight.<id>`.

    Raises:
        UnreadableRecordError: If the value is not an emitted agenda.
    """
    try:
        return _EMITTED.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_answer(value: bytes | None) -> InsightAnswered:
    """The answer in one record of `pop.answers`.

    Raises:
        UnreadableRecordError: If the value is no answer.
    """
    try:
        return _ANSWER.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRecordError(str(error)) from None


def decode_placed(value: bytes | msgspec.Raw) -> PlacedAgenda:
    """One agenda of a page.

    Raises:
        UnreadableRecordError: If the value is not a placed agenda.
    """
    try:
        return _PLACED.decode(value)
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


T = TypeVar("T")


def _events(decoder: msgspec.json.Decoder[T | list[T]], value: bytes | None) -> Sequence[T]:
    try:
        decoded = decoder.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None
    return decoded if isinstance(decoded, list) else (decoded,)
