"""The states of an agenda, and the one table that says which event leads where.

Events of several producers may arrive in any order, so an event that tells of an earlier
phase of the same attempt leaves the state as it is, after the end too. A state that an
agenda ended in is never left.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from pop_stream.core.errors import TransitionError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaFailed,
    AgendaProgressed,
    AgendaRefused,
    AgendaRenewed,
    AgendaSucceeded,
    LifecycleEvent,
)


class State(Enum):
    """Where an agenda is; the values are what clients see.

    ACCEPTED is what a submitter is told before any event tells of the agenda.
    """

    ACCEPTED = "accepted"
    READY = "ready"
    EMITTED = "emitted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def is_terminal(self) -> bool:
        """Whether it is an end: left never, but by a refused id that is submitted again."""
        return self in TERMINAL


TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.REFUSED})

_PHASES: Final = (State.READY, State.EMITTED, State.RUNNING)


def _table() -> Mapping[tuple[State | None, type[LifecycleEvent]], State]:
    reached: dict[type[LifecycleEvent], State] = {
        AgendaAccepted: State.READY,
        AgendaEmitted: State.EMITTED,
        AgendaClaimed: State.RUNNING,
        AgendaRenewed: State.RUNNING,
        AgendaProgressed: State.RUNNING,
        AgendaSucceeded: State.SUCCEEDED,
        AgendaFailed: State.FAILED,
    }
    order = [*_PHASES, State.SUCCEEDED, State.FAILED]
    table: dict[tuple[State | None, type[LifecycleEvent]], State] = {}
    for event, state in reached.items():
        # A refusal speaks of one submission only: what is accepted under its id is new.
        table[None, event] = table[State.REFUSED, event] = state
        for current in _PHASES:
            table[current, event] = max(current, state, key=order.index)
        for end in (State.SUCCEEDED, State.FAILED):
            if state in {*_PHASES, end}:
                table[end, event] = end
    table[None, AgendaRefused] = table[State.REFUSED, AgendaRefused] = State.REFUSED
    return MappingProxyType(table)


TRANSITIONS: Final = _table()
"""(state, kind of event) to state; None is an agenda not heard of before."""


def step(state: State | None, event: LifecycleEvent) -> State:
    """The state after an event of the current attempt; an event told before changes none.

    Raises:
        TransitionError: If the event does not follow, as a second outcome.
    """
    try:
        return TRANSITIONS[state, type(event)]
    except KeyError:
        known = state.value if state else "unknown"
        msg = f"{type(event).__name__} does not follow from {known}"
        raise TransitionError(msg) from None
