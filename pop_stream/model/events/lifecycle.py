"""`pop.agenda-events`: the lifecycle of every agenda, keyed by agenda id.

Ingest writes what is accepted or refused; the scheduler what waits, is emitted and is given up;
pullers what is claimed, its progress and its end; the API the commands of people. Events of one
agenda are in one partition, in the order in which each part wrote them. Folding does not depend
on the order between parts: every event of an attempt carries its number.
"""

from typing import Final, Literal

from msgspec import UNSET, Raw, UnsetType, field

from pop_stream.model.events.base import (
    AppendedOperation,
    Count,
    Diagnostic,
    Event,
    Instant,
    LeaseMs,
    OperationProgress,
    Priority,
    Rank,
    RefusedIssue,
    WorkerSeconds,
)

Action = Literal["cancel", "hold", "release", "reprioritise"]

InternalAction = Literal["wake", "fail"]
"""What only parts of the service command: what an operation waited for has come; what an agenda
waited for has not come in time."""

WaitReason = Literal["not_before", "retry", "lost", "not_yet"]
"""A start in the future; a failure; a lease that ended without a heartbeat; an operation that
waits for something."""

StopReason = Literal["cancelled", "expired"]


class AgendaEvent(Event, frozen=True):
    """What all lifecycle events carry.

    Attributes:
        agenda_id: Also the record's key, unless it is in a frame.
        at: When it happened, by the clock of the part that wrote the event.
    """

    agenda_id: str
    at: Instant


class AgendaAccepted(AgendaEvent, frozen=True):
    """Ingest validated and routed the agenda; from here on it is never lost.

    Attributes:
        callback_url: Where its end is reported to: the agenda's own, or its customer's.
        callback_format: As what.
    """

    insight_id: str
    customer_id: str
    agenda: Raw
    title: str = ""
    link_id: str | None = None
    priority: Priority = 5
    operations: tuple[str, ...] = ()
    callback_url: str | None = None
    callback_format: Literal["json", "cloudevents"] = "json"


class AgendaRefused(AgendaEvent, frozen=True):
    """Ingest could not accept the agenda; `issues` say why.

    Attributes:
        agenda: The submission, if it can be resubmitted: what was missing was a definition, a
            quota or capacity.
    """

    issues: tuple[RefusedIssue, ...]
    customer_id: str | None = None
    agenda: Raw | UnsetType = UNSET


class AgendaCommanded(AgendaEvent, frozen=True):
    """A command about an agenda that has not ended.

    The scheduler carries it out, unless the agenda's state forbids it by then.

    Attributes:
        priority: With `reprioritise`; None leaves it as it is.
        rank: With `reprioritise`; None leaves it as it is.
        by: The principal that commanded it.
        reason: In the principal's words.
        attempt: The attempt that the command is about; the command is ignored if the agenda
            was run again since. 0 means any attempt.
    """

    insight_id: str
    action: Action | InternalAction
    priority: Priority | None = None
    rank: Rank | None = None
    by: str = ""
    reason: str = ""
    attempt: Count = 0


class AttemptEvent(AgendaEvent, frozen=True):
    """An event of one attempt; one of an older attempt is recorded but changes nothing."""

    insight_id: str
    attempt: Count


class AgendaRestarted(AttemptEvent, frozen=True):
    """An agenda that had ended is to run again, as attempt `attempt`.

    Attributes:
        routed: The `RoutedAgenda` for the scheduler, of this attempt.
        reset: Operations that begin anew, without what they appended; all others go on from
            what earlier attempts left, so that what has succeeded is not run again.
        by: The principal that commanded it.
        reason: In the principal's words.
    """

    routed: Raw
    reset: Literal["all"] | tuple[str, ...] = ()
    by: str = ""
    reason: str = ""


class AgendaWaiting(AttemptEvent, frozen=True):
    """The attempt is not to be emitted before `until`; all earlier attempts are over."""

    until: Instant
    reason: WaitReason
    message: str = ""


class AgendaReady(AttemptEvent, frozen=True):
    """The attempt waits only for its turn: its instant came, or it was released."""


class AgendaHeld(AttemptEvent, frozen=True):
    """The attempt waits until it is released."""

    by: str = ""
    reason: str = ""


class AgendaReprioritised(AttemptEvent, frozen=True):
    """The attempt waits with another priority or rank."""

    priority: Priority
    rank: Rank = 0
    by: str = ""
    reason: str = ""


class AgendaEmitted(AttemptEvent, frozen=True):
    """The scheduler put the agenda on its insight's topic.

    Attributes:
        expedite_reports: Others of the insight stayed behind, for which there was no room, or
            more than half of the room is taken; so claims and ends should be relayed soon.
    """

    expedite_reports: bool = False


class AgendaClaimed(AttemptEvent, frozen=True):
    """A puller took the agenda; its lease runs from `at` for `lease_ms`.

    Attributes:
        sync_matched: A runner was idle until the agenda came.
        idle: Runners of the puller without an agenda, or the part of them for this insight.
        deferrals: As in what was emitted: so many attempts before it do not count.
        insights: How many insights share the puller's runners; 0 if it does not tell, or `idle`
            is not to be relied on.
    """

    puller_id: str
    lease_ms: LeaseMs
    sync_matched: bool = False
    idle: Count = 0
    deferrals: Count = 0
    insights: Count = 0


class AgendaHeartbeat(AttemptEvent, frozen=True):
    """A heartbeat: the lease runs anew from `at` for `lease_ms`."""

    puller_id: str
    lease_ms: LeaseMs


class AgendaProgressed(AttemptEvent, frozen=True):
    """Operations whose progress changed since the last report; also renews the lease.

    Attributes:
        appended: Operations that the agenda has from now on, besides those it came with.
    """

    operations: tuple[OperationProgress, ...] = ()
    appended: tuple[AppendedOperation, ...] = ()


class AgendaStopping(AttemptEvent, frozen=True):
    """The attempt is to stop: its puller was notified, and has until its lease ends."""

    reason: StopReason
    message: str = ""


class AgendaStopped(AttemptEvent, frozen=True):
    """A puller stopped the attempt because it was asked to; `spent_s` as in success."""

    operations: tuple[OperationProgress, ...] = ()
    spent_s: dict[str, WorkerSeconds] = field(default_factory=dict)


class AgendaSucceeded(AttemptEvent, frozen=True):
    """All operations succeeded. `spent_s` is worker-seconds by operation type."""

    operations: tuple[OperationProgress, ...] = ()
    spent_s: dict[str, WorkerSeconds] = field(default_factory=dict)


class AgendaFailed(AttemptEvent, frozen=True):
    """The attempt failed; `message` says why, `retryable` whether another try may help.

    A failure that is not retryable ends the agenda. After any other the scheduler writes
    `agenda.waiting` of the next attempt, or `agenda.exhausted` of this one.
    """

    message: str
    retryable: bool = True
    operations: tuple[OperationProgress, ...] = ()
    spent_s: dict[str, WorkerSeconds] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()


class AgendaDeferred(AttemptEvent, frozen=True):
    """The attempt ended because operations wait for something; nothing failed.

    The scheduler writes `agenda.waiting` of the next attempt, which does not count against the
    agenda's attempts; operations that succeeded are not run again.

    Attributes:
        until: When the next attempt may start; the scheduler makes it a second from now at
            the earliest, and `MAX_DEFERRAL_S` at the latest.
        message: What is waited for.
    """

    until: Instant
    message: str = ""
    operations: tuple[OperationProgress, ...] = ()
    spent_s: dict[str, WorkerSeconds] = field(default_factory=dict)


class AgendaResolved(AttemptEvent, frozen=True):
    """What an operation waits for was decided outside: by a signal, a person or a completion.

    The operation has ended with that, and the attempt, which waits, may start at once. Of two
    decisions that are made at the same moment, an approval counts.

    Attributes:
        operation: Its name.
        outcome: `failed` if a person rejected it, or whoever completes it says so, or does
            not complete it in time.
        result: Of one that succeeded.
        by: Who gave the signal, or decided.
        reason: In that one's words.
        code: Of a failure that no person has decided: what it is called, and thereby whether
            another attempt may help.
    """

    operation: str
    outcome: Literal["succeeded", "failed"] = "succeeded"
    result: Raw | UnsetType = UNSET
    by: str = ""
    reason: str = ""
    code: str = ""


class AgendaExhausted(AttemptEvent, frozen=True):
    """The last allowed attempt failed or was lost; the agenda has failed."""

    message: str = ""


class AgendaCancelled(AttemptEvent, frozen=True):
    """The agenda ended by a command, or as a duplicate.

    Attributes:
        duplicate_of: The agenda that stands in its place; empty if it is no duplicate.
    """

    message: str = ""
    duplicate_of: str = ""


class AgendaExpired(AttemptEvent, frozen=True):
    """The agenda ended because its deadline passed."""

    message: str = ""


LifecycleEvent = (
    AgendaAccepted
    | AgendaRefused
    | AgendaCommanded
    | AgendaRestarted
    | AgendaWaiting
    | AgendaReady
    | AgendaHeld
    | AgendaReprioritised
    | AgendaEmitted
    | AgendaClaimed
    | AgendaHeartbeat
    | AgendaProgressed
    | AgendaStopping
    | AgendaStopped
    | AgendaSucceeded
    | AgendaFailed
    | AgendaDeferred
    | AgendaResolved
    | AgendaExhausted
    | AgendaCancelled
    | AgendaExpired
)

SIGNED_EVENTS: Final = (
    AgendaAccepted,
    AgendaRefused,
    AgendaCommanded,
    AgendaRestarted,
    AgendaResolved,
)
"""What only parts of the service may say, and sign: others act on it in a customer's name. All
else is about an agenda that these two have brought in."""
