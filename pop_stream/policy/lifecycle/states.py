"""The states of an agenda, and the one table that says which event leads where.

Events of several producers may arrive in any order, so an event of an earlier phase of the
same attempt leaves the state as it is, after the end too. A state that an agenda ended in is
left only by running it again, as a new attempt; whether a worker's attempt is over is decided
here too.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from pop_stream.model.errors import LeaseLostError, TransitionError
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaCancelled,
    AgendaClaimed,
    AgendaCommanded,
    AgendaDeferred,
    AgendaEmitted,
    AgendaEvent,
    AgendaExhausted,
    AgendaExpired,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaHeld,
    AgendaProgressed,
    AgendaReady,
    AgendaRefused,
    AgendaReprioritised,
    AgendaResolved,
    AgendaRestarted,
    AgendaStopped,
    AgendaStopping,
    AgendaSucceeded,
    AgendaWaiting,
)


class State(Enum):
    """The state of an agenda; the values are what clients see.

    ACCEPTED is what a submitter is answered before there is any event of the agenda. RETRYING
    is an attempt that failed, or waits for something, while the scheduler decides how it goes
    on; WAITING, one with an instant to wait for: a retry's, one that the submitter named, or
    the one at which what it waits for is looked at again.
    """

    ACCEPTED = "accepted"
    READY = "ready"
    WAITING = "waiting"
    HELD = "held"
    EMITTED = "emitted"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REFUSED = "refused"

    # Enum's own is written in Python, and every event asks for it.
    __hash__ = object.__hash__

    @property
    def is_terminal(self) -> bool:
        """Whether it is an end: left only by running the agenda, or the refused id, again."""
        return self in TERMINAL


OccurrenceState = Literal[
    "accepted",
    "ready",
    "waiting",
    "held",
    "emitted",
    "running",
    "retrying",
    "succeeded",
    "failed",
    "cancelled",
    "expired",
    "refused",
    "submitted",
    "buffered",
    "skipped",
]
"""How an occurrence of a schedule stands: as its agenda does; `submitted` while nothing is
known of that, or no more; `buffered` while it waits for one before; or `skipped`."""

OUTCOMES: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED})
"""How an accepted agenda may end."""

TERMINAL: Final = OUTCOMES | {State.REFUSED}

BEFORE_EMISSION: Final = frozenset({State.READY, State.WAITING, State.HELD})
"""Between these the scheduler alone decides, in the order of its events."""

_PHASES: Final = (State.READY, State.EMITTED, State.RUNNING, State.RETRYING)

_PENDING_TO: Final[Mapping[type[AgendaEvent], State]] = {
    AgendaWaiting: State.WAITING,
    AgendaReady: State.READY,
    AgendaHeld: State.HELD,
}

_PROGRESS_TO: Final[Mapping[type[AgendaEvent], State]] = {
    AgendaEmitted: State.EMITTED,
    AgendaClaimed: State.RUNNING,
    AgendaHeartbeat: State.RUNNING,
    AgendaProgressed: State.RUNNING,
    AgendaStopped: State.RUNNING,
    AgendaFailed: State.RETRYING,
    AgendaDeferred: State.RETRYING,
}

_ENDED: Final[Mapping[type[AgendaEvent], State]] = {
    AgendaSucceeded: State.SUCCEEDED,
    AgendaExhausted: State.FAILED,
    AgendaCancelled: State.CANCELLED,
    AgendaExpired: State.EXPIRED,
}

_NO_TRANSITION: Final[tuple[type[AgendaEvent], ...]] = (
    AgendaAccepted,
    AgendaCommanded,
    AgendaReprioritised,
    AgendaResolved,
    AgendaRestarted,
    AgendaStopping,
)
"""Events that lead nowhere by themselves."""


_CONTRADICTIONS: Final = {
    (State.RETRYING, AgendaSucceeded),
    (State.SUCCEEDED, AgendaFailed),
    (State.SUCCEEDED, AgendaDeferred),
}
"""An attempt that failed has not succeeded, and the other way round."""


def _after(current: State, event: type[AgendaEvent]) -> State | None:
    """Where an event leads from a state that an accepted agenda may have."""
    if event in _NO_TRANSITION:
        return current
    if event in _PENDING_TO:
        return _PENDING_TO[event] if current in BEFORE_EMISSION else current
    if (current, event) in _CONTRADICTIONS:
        return None
    if current in OUTCOMES:
        return current if event in _PROGRESS_TO or _ENDED[event] is current else None
    return _ENDED.get(event) or max(current, _PROGRESS_TO[event], key=_phase)


def _phase(state: State) -> int:
    return 0 if state in BEFORE_EMISSION else _PHASES.index(state)


def _table() -> Mapping[tuple[State | None, type[AgendaEvent]], State]:
    events = (*_NO_TRANSITION, *_PENDING_TO, *_PROGRESS_TO, *_ENDED)
    states = (*BEFORE_EMISSION, *_PHASES, *OUTCOMES)
    known = {(state, event): _after(state, event) for state in states for event in events}
    table: dict[tuple[State | None, type[AgendaEvent]], State] = {
        key: after for key, after in known.items() if after is not None
    }
    # An agenda without an event yet is taken for ready; a refusal is of one submission only, so
    # what is accepted under its id is new.
    for event in events:
        if event is not AgendaCommanded:
            table[None, event] = table[State.REFUSED, event] = table[State.READY, event]
    table[None, AgendaRefused] = table[State.REFUSED, AgendaRefused] = State.REFUSED
    return MappingProxyType(table)


TRANSITIONS: Final = _table()
"""(state, kind of event) to state; None is an agenda without an event yet.

A failure that is not retryable counts as `AgendaExhausted`: it is final at once.
"""


def step(state: State | None, event: AgendaEvent) -> State:
    """The state after an event of the current attempt; a repeated event changes none.

    Raises:
        TransitionError: If the event does not follow, as a second outcome.
    """
    kind = type(event)
    if isinstance(event, AgendaFailed) and not event.retryable:
        kind = AgendaExhausted
    try:
        return TRANSITIONS[state, kind]
    except KeyError:
        known = state.value if state else "unknown"
        msg = f"{type(event).__name__} does not follow from {known}"
        raise TransitionError(msg) from None


class AttemptStatus(NamedTuple):
    """The newest attempt that the summary of an agenda knows, and the agenda's state."""

    attempt: int
    state: State


def lease_lost_error(
    agenda_id: str, attempt: int, status: AttemptStatus
) -> LeaseLostError | None:
    """Why an attempt is over; None if the summary knows of no end of it.

    A refusal is of a submission, and never ends an attempt: what was refused may have been
    submitted anew under its id, and be delivered before the summary shows it.
    """
    if status.attempt > attempt:
        reason = f"attempt {status.attempt} follows it"
        return LeaseLostError(agenda_id, attempt, "followed", reason)
    is_over = status.state in OUTCOMES or status.state is State.RETRYING
    if status.attempt == attempt and is_over:
        return ended_error(agenda_id, attempt, status.state)
    return None


def ended_in_earlier_attempt(attempt: int, run_from: int, status: AttemptStatus) -> bool:
    """Whether the agenda had ended in an earlier attempt of the same run.

    Its end was reported in the moment in which the scheduler took that attempt for lost. The
    summary never comes to the attempts after it.

    Args:
        attempt: Of the agenda.
        run_from: The first one of its run; 0 where that is not known.
        status: What the summary knows.
    """
    in_this_run = 0 < run_from <= status.attempt < attempt
    return in_this_run and status.state in OUTCOMES


def ended_error(agenda_id: str, attempt: int, state: State) -> LeaseLostError:
    """The error for a worker whose attempt has ended, or whose agenda has."""
    is_retrying = state is State.RETRYING
    reason = "another follows it" if is_retrying else f"the agenda has ended, {state.value}"
    return LeaseLostError(agenda_id, attempt, "ended", reason, state=state.value)
