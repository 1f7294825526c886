"""The scheduler's input, its output to pullers, and what it and all parts report.

- `pop.ready`, keyed by insight id: routed agendas, reports about attempts, ticks and queries.
- `pop.insight.<id>`, keyed by agenda id: emitted agendas, one a record, as lag counts them.
- `pop.controls`: attempts that are to stop; every puller reads all of it.
- `pop.decisions`: why a round chose what it chose.
- `pop.query-replies`: replies to queries.
- `pop.dead-letters`: records that no part could use, and agendas that failed for good.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from pop_stream.model.events.base import (
    AttemptOutcome,
    Count,
    DedupeRule,
    Duplicate,
    Event,
    HealthValue,
    Instant,
    LeaseMs,
    Overdeclared,
    Priority,
    Rank,
    RefusedIssue,
    SeriesPosition,
    Struct,
    WorkerSeconds,
)
from pop_stream.model.events.forecast import CustomerWeights, QueueForecast
from pop_stream.model.events.lifecycle import Action, InternalAction, StopReason, WaitReason
from pop_stream.model.retry import Backoff


class RoutedAgenda(Struct, frozen=True):
    """One agenda of a page, as ingest routes it to the scheduler.

    Attributes:
        operation_types: Type of every operation, for the learned cost.
        cost_s: Declared worker-seconds; None when the cost is to be learned.
        attempt: The first one; above 1 for an agenda that runs again.
        not_before: The earliest instant of emission.
        expires_at: The latest instant at which it may run.
        held: Whether it waits until it is released; with `held_reason`, why.
        max_attempts: From `attempt` on; None for its insight's.
        backoff: Between attempts; None for its insight's.
        run_from: What is wanted of an attempt before this one is wanted of an earlier run of
            the agenda; None for `attempt`.
        series: It is dropped if its series is at this position already, or past it.
        dedupe: Of what it is a duplicate, and what becomes of it then; None if of nothing.
    """

    agenda_id: str
    customer_id: str
    accepted_at: Instant
    agenda: msgspec.Raw
    priority: Priority = 5
    rank: Rank = 0
    fairness_key: str = ""
    batch_key: str = ""
    operation_types: tuple[str, ...] = ()
    cost_s: Annotated[float, msgspec.Meta(gt=0, le=1e7)] | None = None
    attempt: Count = 1
    not_before: Instant | None = None
    expires_at: Instant | None = None
    held: bool = False
    held_reason: str = ""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    backoff: Backoff | None = None
    run_from: Count | None = None
    series: SeriesPosition | None = None
    dedupe: DedupeRule | None = None


class Origin(Struct, frozen=True, array_like=True):
    """Where an agenda or command of a page was read, by which a repeated page is recognised.

    Ingest reads a partition of `pop.submissions` in order and writes each insight's pages in
    order, so a place at or before the last one seen for the same partition is a repeat. The
    relay does the same with restarts and commands that it reads from `pop.agenda-events`.

    Attributes:
        partition: Of `pop.submissions`; -1, `NO_ORIGIN`, where there is no origin to compare;
            for partition p of `pop.agenda-events`, -2 - p of a restart and -1,000,000 - p of
            a command.
        index: Within a record that holds a list of agendas or events.
    """

    partition: int
    offset: int
    index: int = 0


NO_ORIGIN: Final = -1
"""The partition of an origin that cannot be compared: its page is never a repeat."""


class InsightAgendasRouted(Event, frozen=True):
    """Agendas of one insight, at most a page; `origins[i]` is where `agendas[i]` came from."""

    insight_id: str
    agendas: tuple[msgspec.Raw, ...]
    origins: tuple[Origin, ...]


class Claim(Struct, frozen=True, array_like=True):
    """An attempt that a puller holds now; `sync_matched` as in `agenda.claimed`.

    Attributes:
        by_http: Whether its worker reports through the API alone.
        deferrals: As in what was emitted.
    """

    agenda_id: str
    attempt: Count
    sync_matched: bool = False
    by_http: bool = False
    deferrals: Count = 0


class IdleRunners(Struct, frozen=True, array_like=True):
    """How many runners of a puller were idle when it last claimed; `insights` as claimed."""

    puller_id: str
    runners: Count
    insights: Count = 0


class Settlement(Struct, frozen=True, array_like=True):
    """An attempt that ended; `spent_s` is worker-seconds by operation type.

    Attributes:
        message: Why it failed or waits, shortened to `MAX_MESSAGE_LENGTH` characters.
        until: Of a deferral: when the next attempt may start.
    """

    agenda_id: str
    attempt: Count
    outcome: AttemptOutcome
    spent_s: dict[str, WorkerSeconds] = field(default_factory=dict)
    retryable: bool = False
    message: str = ""
    until: Instant | None = None


MAX_MESSAGE_LENGTH: Final = 500
"""Most characters of a message that the scheduler keeps."""


class Command(Struct, frozen=True, array_like=True):
    """A command about an agenda; as in `agenda.commanded`.

    Attributes:
        origin: Its position in the topic, if known.
        operation: With `wake`: the operation that waits no more.
    """

    agenda_id: str
    action: Action | InternalAction
    priority: Priority | None = None
    rank: Rank | None = None
    by: str = ""
    reason: str = ""
    attempt: Count = 0
    origin: Origin | None = None
    operation: str = ""


class InsightAttemptsReported(Event, frozen=True):
    """What the relay read about agendas of one insight, in order of arrival.

    Attributes:
        heartbeats: Attempts with any event that renews the lease, other than a claim.
        idle: Of each puller that claimed, as in its last claim.
        relayed_at: When the relay wrote it, on its clock: what attempts take is counted between
            such instants. None from a relay that does not tell.
    """

    insight_id: str
    claims: tuple[Claim, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    heartbeats: tuple[Claim, ...] = ()
    commands: tuple[Command, ...] = ()
    idle: tuple[IdleRunners, ...] = ()
    relayed_at: Instant | None = None


class InsightTick(Event, frozen=True):
    """Has the scheduler plan a round: the lag fell, or time passed.

    Attributes:
        lag: Consumer lag of the insight's topic in records; None when unknown.
        emitted: How many records had ever been emitted when the lag was asked for.
        lags: Likewise by partition of the topic, when `emitted` had been emitted; or empty.
        relayed_until: Everything written before this instant has been relayed; None if unknown.
        is_api_down: Whether workers that report through the API alone cannot report.
        divisions: Of customers where it has changed: by what their weights are divided.
        has_joined: Whether a puller has joined the group.
    """

    insight_id: str
    lag: int | None = None
    emitted: int | None = None
    lags: tuple[int, ...] = ()
    relayed_until: Instant | None = None
    is_api_down: bool = False
    divisions: dict[str, Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]] = field(
        default_factory=dict
    )
    has_joined: bool = False


class QueueQueried(Event, frozen=True):
    """A query about an insight, or about an agenda in it.

    Attributes:
        query_id: Returned with the reply.
        agenda_id: The agenda whose position is wanted; empty for the insight alone.
        agenda_ids: At most `MAX_QUERIED_AGENDAS`, of which the reply says whether it has them.
        tracked_after: After which place what it holds is wanted; -1 from the first.
        dedupe: At most as many, of which the reply says what would be a duplicate now.
        weights: By customer, other weights than it has: the reply says who would start when.
    """

    insight_id: str
    query_id: str
    agenda_id: str = ""
    agenda_ids: tuple[str, ...] = ()
    tracked_after: int | None = None
    weights: CustomerWeights = field(default_factory=dict)
    dedupe: tuple[DedupeRule, ...] = ()


MAX_QUERIED_AGENDAS: Final = 1_000
"""How many agendas one query may name."""


class InsightHealth(Event, frozen=True):
    """A value of an insight's health that is put from outside, in place of the last one.

    Attributes:
        source: Its name; values of several names are in force side by side.
    """

    insight_id: str
    source: str
    value: HealthValue


ReadyEvent = (
    InsightAgendasRouted | InsightAttemptsReported | InsightTick | InsightHealth | QueueQueried
)


class EmittedAgenda(Struct, frozen=True):
    """An agenda to run now. One record each, never a frame, so that lag counts agendas.

    Attributes:
        attempt: From 1; every event of the puller names it, which fences older attempts. Above
            1, what earlier ones left is read over HTTP, `GET /v1/agendas/{id}/progress`.
        lease_ms: Claim and renew within this time, or the agenda is emitted again.
        agenda: The submission as accepted, id included.
        run_from: The first of a later attempt's run: what has ended since is not to be done.
        deferrals: Attempts of this run that ended because operations waited.
        resolved: Operations ended from outside since; the summary has that, or soon will.
        waiting_since: When the first of these ended; this one needs what earlier ones left.
    """

    agenda_id: str
    insight_id: str
    customer_id: str
    attempt: Count
    accepted_at: Instant
    emitted_at: Instant
    lease_ms: LeaseMs
    agenda: msgspec.Raw
    run_from: Count = 0
    deferrals: Count = 0
    resolved: tuple[str, ...] = ()
    waiting_since: Instant | None = None


class AttemptStop(Event, frozen=True, tag="attempt.stop"):
    """The runner of the attempt, or of an older one, is to stop and report `agenda.stopped`.

    Attributes:
        accepted_at: As in what was emitted, if known: a later one is another agenda's.
    """

    agenda_id: str
    insight_id: str
    attempt: Count
    reason: StopReason | Literal["outdated"]
    accepted_at: Instant | None = None


class CustomerShare(Struct, frozen=True):
    """One customer's part of an insight.

    Attributes:
        chosen: Agendas chosen in this round; 0 in a reply to a query.
        share: Recent service per weight, as a multiple of the mean of eligible customers.
        wait_s: Recent mean of the wait from acceptance to emission.
        held_by: Why none of its agendas can be chosen: `paused`, `max_in_flight`, `rate`, or
            empty.
        delivered_s: Worker-seconds of its agendas that ended; in memory, 0 in a decision.
    """

    customer_id: str
    chosen: int
    ready: int
    in_flight: int
    weight: float
    share: float = 1.0
    wait_s: float = 0.0
    held_by: str = ""
    delivered_s: float = 0.0


class RoundDecided(Event, frozen=True):
    """A round of an insight: which agendas were chosen, and why the others wait.

    Attributes:
        lag: Records on the insight's topic that no puller has claimed, before the round.
        slots: How many agendas the round could emit.
        virtual_time: The position from which the most urgent agenda was emitted last, in
            worker-seconds per weight, delivered and reserved.
        customers: Those chosen first, then those that are next, at most 50; and at most 10 of
            those that may not go, with why (`held_by`).
        waiting: Why agendas stay: `depth`, the topic is as full as is wanted; `paused`, the
            insight is; `health`, its cap as lowered by its health; `max_in_flight`, its cap;
            `pool`; `customer_caps`, whoever has any may not go; or empty if none wait.
        delayed: Agendas with an instant to wait for, which are not among `ready`.
        held: Agendas that wait for their release, likewise.
        gap: Widest difference of what backlogged customers were given per weight, delivered
            and out.
        bound: What the gap cannot exceed: twice the largest agenda per weight, for each of
            those that are out and one more.
        partition: Of `pop.ready`, with `offset` the record that led to the round.
        definitions: Version of the definitions that were in force.
        health: By what the cap on agendas in flight was multiplied; None for 1.
        health_by: What that came from: `failures`, `losses`, or the name under which it was
            reported; empty at 1.
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
    health: float | None = None
    health_by: str = ""


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
        overdeclared: Of one that declares far more than is usual; None of others.
    """

    agenda_id: str
    state: QueueState
    position: int = 0
    own_ahead: int = 0
    urgent_ahead: int = 0
    rises_at: Instant | None = None
    eta_s: float | None = None
    customer: CustomerShare | None = None
    attempt: Count = 0
    until: Instant | None = None
    why: WaitReason | None = None
    stopping: StopReason | Literal[""] = ""
    overdeclared: Overdeclared | None = None


class TrackedAgenda(Struct, frozen=True, array_like=True):
    """That the scheduler holds an agenda, and with which attempt."""

    agenda_id: str
    state: QueueState
    attempt: Count


EmissionLimit = Literal["paused", "health", "max_in_flight", "pool", ""]


class QueueDescribed(Event, frozen=True):
    """The scheduler's reply to `queue.queried`.

    Attributes:
        lag: Records on the insight's topic that no puller has claimed.
        slots: How many agendas could be emitted now.
        limited_by: Which limit of the insight's own keeps agendas, as `waiting` in
            `round.decided`; empty if none does.
        target: Unclaimed agendas that a refill aims at.
        rate_per_s: Agendas claimed per second, lately.
        customers: Those with most at stake, at most 50.
        others: Backlogged customers not listed.
        delayed: As in `round.decided`, with `held`, `gap` and `bound`.
        holds: Those of `agenda_ids` that the scheduler holds; it has none of the others. Then
            those after `tracked_after`.
        tracked_up_to: The place of the last of these; None if there are no more.
        duplicates: Of those of `dedupe` that would be duplicates.
        health: As in `round.decided`, with `health_by`.
        health_reason: In the words of who reported it; empty of what the scheduler sees.
        health_until: When a reported value becomes void; None for the scheduler's own.
        eligible: Agendas that could go if the topic had room, with `eligible_s`, the
            worker-seconds that these are estimated to take.
        oldest_wait_s: For how long the oldest ready agenda has been accepted.
        replicas_wanted: Pullers that what waits and runs asks for.
        forecast: If the query names weights.
    """

    insight_id: str
    query_id: str
    at: Instant
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
    duplicates: tuple[Duplicate, ...] = ()
    health: float | None = None
    health_by: str = ""
    health_reason: str = ""
    health_until: Instant | None = None
    eligible: int = 0
    eligible_s: float = 0.0
    oldest_wait_s: float = 0.0
    replicas_wanted: int = 0
    forecast: QueueForecast | None = None


class RecordRefused(Event, frozen=True):
    """A dead letter: a record no part could use, with its coordinates and the reason.

    Also an agenda that failed for good: then `topic` is its insight's, `code` is
    `attempts_exhausted` or `final_failure`, and the value is the agenda as accepted.

    Attributes:
        partition: -1 of an agenda, with `offset`; the value is whole unless `truncated`.
        sender_customer_id: Of a submission, the customer whose key or token its record carried.
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
    sender_customer_id: str | UnsetType = UNSET
    rule_id: str | UnsetType = UNSET
