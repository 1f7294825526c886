"""What the scheduler and all parts give account of: decisions, answers and dead letters."""

from datetime import datetime
from typing import Literal

from pop_stream.core.events.base import Event, Instant, RefusedIssue, Struct
from pop_stream.core.events.lifecycle import StopReason, WaitReason


class CustomerShare(Struct, frozen=True):
    """One customer's part of an insight.

    Attributes:
        chosen: In this round; 0 where no round is meant.
        share: Recent service per weight, as a multiple of the mean of customers that may go.
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
        customers: Those chosen first, then those that are next, at most 50; and at most 10 of
            those that may not go, with why (`held_by`).
        waiting: Why agendas stay: `depth`, the topic is as full as is wanted; `max_in_flight`,
            the insight's cap; `pool`; `customer_caps`, whoever has any is paused, at its cap or
            without a token; or empty if none wait.
        delayed: Agendas with an instant to wait for, which are not among `ready`.
        held: Agendas that wait for their release, likewise.
        gap: Widest difference of backlogged customers' places on the virtual clock.
        bound: What the gap cannot exceed: twice the largest charge, for each of those that were
            out at once and one more.
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
    delayed: int = 0
    held: int = 0
    gap: float = 0.0
    bound: float = 0.0
    partition: int = 0
    offset: int = 0
    definitions: int = 0


QueueState = Literal["ready", "waiting", "held", "emitted", "claimed", "unknown"]


class QueuedAgendaStatus(Struct, frozen=True):
    """Where an agenda stands with the scheduler.

    Attributes:
        state: `unknown` if the scheduler has none of it.
        position: About how many are emitted up to and with it; 0 unless ready.
        own_ahead: How many of these are the customer's own; exact, but that with strict
            priorities those of one priority are taken to be as urgent as the next of them.
        urgent_ahead: How many of these go first for their priority, not for their turn.
        rises_at: When it counts as one priority more urgent; None if it never does.
        eta_s: Until it is claimed, at the present rate; None while nothing moves.
        attempt: The one that is out, or next; 0 if unknown.
        until: When it goes on, of one that waits, or would without being held.
        why: What it waits for.
        stopping: Why the attempt that is out is to stop; empty if it is not.
    """

    agenda_id: str
    state: QueueState
    position: int = 0
    own_ahead: int = 0
    urgent_ahead: int = 0
    rises_at: Instant | None = None
    eta_s: float | None = None
    customer: CustomerShare | None = None
    attempt: int = 0
    until: Instant | None = None
    why: WaitReason | None = None
    stopping: StopReason | Literal[""] = ""


class TrackedAgenda(Struct, frozen=True, array_like=True):
    """That the scheduler holds an agenda, and with which attempt."""

    agenda_id: str
    state: QueueState
    attempt: int


EmissionLimit = Literal["max_in_flight", "pool", ""]


class QueueDescribed(Event, frozen=True):
    """The scheduler's answer to `insight.asked`.

    Attributes:
        lag: Records on the insight's topic that no puller has claimed.
        slots: How many agendas could be emitted now.
        limited_by: What keeps the insight from emitting though its topic is short and agendas
            are ready: `max_in_flight`, `pool`, or empty.
        target: Unclaimed agendas that a refill aims at.
        rate_per_s: Agendas claimed per second, lately.
        customers: Those with most at stake, at most 50.
        others: Backlogged customers not listed.
        delayed: As in `round.decided`, with `held`.
        holds: Those of `agenda_ids` that the scheduler holds; it has none of the others. Then
            those after `tracked_after`.
        tracked_up_to: The place of the last of these; None if there are no more.
        gap: As in `round.decided`, with `bound`.
    """

    insight_id: str
    query_id: str
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
    delayed: int = 0
    held: int = 0
    gap: float = 0.0
    bound: float = 0.0
    agenda: QueuedAgendaStatus | None = None
    limited_by: EmissionLimit = ""
    holds: tuple[TrackedAgenda, ...] = ()
    tracked_up_to: int | None = None


class RecordRefused(Event, frozen=True):
    """A dead letter: a record no part could use, with its coordinates and the reason.

    Also an agenda that failed for good: then `topic` is its insight's, `code` is
    `attempts_exhausted` or `final_failure`, and the value is the agenda as accepted.

    Attributes:
        partition: -1 of an agenda, with `offset`.
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
