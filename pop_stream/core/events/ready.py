"""`pop.ready`: what the scheduler hears, keyed by insight id."""

from typing import Final

import msgspec
from msgspec import field

from pop_stream.core.events.base import Event, Instant, AttemptOutcome, Struct
from pop_stream.core.events.lifecycle import Action
from pop_stream.core.values.retry import Backoff


class RoutedAgenda(Struct, frozen=True):
    """One agenda of a page, as intake hands it to the scheduler.

    Attributes:
        operation_types: Type of every operation, for the learned cost.
        cost_s: Declared worker-seconds; None when the cost is to be learned.
        attempt: The one to begin with; above 1 for an agenda that runs again.
        not_before: Not to be emitted earlier.
        expires_at: Not to run later.
        held: Waits until it is released.
        max_attempts: From `attempt` on; None for what its insight allows.
        backoff: None for its insight's.
        run_from: What is wanted of an attempt before this one is wanted of an earlier run of
            the agenda; None for `attempt`.
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
    attempt: int = 1
    not_before: Instant | None = None
    expires_at: Instant | None = None
    held: bool = False
    max_attempts: int | None = None
    backoff: Backoff | None = None
    run_from: int | None = None


class Origin(Struct, frozen=True, array_like=True):
    """Where a page came from: what makes a replayed page recognisable.

    Intake reads a partition of `pop.submissions` in order and writes each insight's pages in
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
"""The partition of an origin that cannot be compared: what it says is never a repeat."""


class InsightAgendasRouted(Event, frozen=True):
    """Agendas of one insight, at most a page; `origins[i]` is where `agendas[i]` came from."""

    insight_id: str
    agendas: tuple[msgspec.Raw, ...]
    origins: tuple[Origin, ...]


class Claim(Struct, frozen=True, array_like=True):
    """An attempt that a puller holds now; `awaited` as in `agenda.claimed`.

    Attributes:
        by_http: A worker holds it that speaks through the API alone.
    """

    agenda_id: str
    attempt: int
    awaited: bool = False
    by_http: bool = False


class IdleRunners(Struct, frozen=True, array_like=True):
    """Runners that a puller had left when it last claimed."""

    puller_id: str
    runners: int


class Settlement(Struct, frozen=True, array_like=True):
    """An attempt that ended; `spent_s` is worker-seconds by operation type.

    Attributes:
        retryable: Of a failure: whether another try may help.
        message: Of a failure: why, shortened to `MAX_MESSAGE_LENGTH` characters.
    """

    agenda_id: str
    attempt: int
    outcome: AttemptOutcome
    spent_s: dict[str, float] = field(default_factory=dict)
    retryable: bool = False
    message: str = ""


MAX_MESSAGE_LENGTH: Final = 500
"""Most characters of a message that the scheduler keeps."""


class Command(Struct, frozen=True, array_like=True):
    """What someone wants of an agenda; as in `agenda.commanded`.

    Attributes:
        origin: Where it was told; None where that is unknown.
    """

    agenda_id: str
    action: Action
    priority: int | None = None
    rank: int | None = None
    by: str = ""
    reason: str = ""
    attempt: int = 0
    origin: Origin | None = None


class InsightAttemptsReported(Event, frozen=True):
    """What the relay heard about agendas of one insight, in order of arrival.

    Attributes:
        heartbeats: Attempts that gave a sign of life other than a claim.
        unverified: Attempts of which somebody who may pull from the insight gave one, while it
            could not be looked up whose they are: renews only a lease that runs.
        idle: Of each puller that claimed, as in its last claim.
    """

    insight_id: str
    claims: tuple[Claim, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    heartbeats: tuple[Claim, ...] = ()
    commands: tuple[Command, ...] = ()
    idle: tuple[IdleRunners, ...] = ()
    unverified: tuple[Claim, ...] = ()


class InsightTick(Event, frozen=True):
    """Look again: the lag fell, or time passed.

    Attributes:
        lag: Consumer lag of the insight's topic in records; None when unknown.
        emitted: How many records had ever been emitted when the lag was asked for.
        lags: The lag by partition of the insight's topic; empty when unknown. Asked for
            when `emitted` had been emitted.
        relayed_until: Everything told before this instant has been relayed; None if unknown.
        is_api_down: Nobody could be heard who speaks through the API alone.
    """

    insight_id: str
    lag: int | None = None
    emitted: int | None = None
    lags: tuple[int, ...] = ()
    relayed_until: Instant | None = None
    is_api_down: bool = False


class QueueQueried(Event, frozen=True):
    """Someone wants to know about an insight, or about an agenda in it.

    Attributes:
        query_id: Comes back with the answer.
        agenda_id: Whose place is wanted; empty for the insight alone.
        agenda_ids: Of which it is wanted whether the scheduler holds them; at most
            `MAX_QUERIED_AGENDAS`, those after are passed over.
        tracked_after: After which place what the scheduler holds is wanted, as many in one
            answer; -1 from the first, None for nothing.
    """

    insight_id: str
    query_id: str
    agenda_id: str = ""
    agenda_ids: tuple[str, ...] = ()
    tracked_after: int | None = None


MAX_QUERIED_AGENDAS: Final = 1_000
"""Agendas that one question may name."""


ReadyEvent = InsightAgendasRouted | InsightAttemptsReported | InsightTick | QueueQueried
