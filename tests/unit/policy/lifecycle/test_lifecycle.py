"""Every state with every event, as one table."""

from datetime import UTC, datetime

import msgspec
import pytest

from pop_stream.model.errors import TransitionError
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaCancelled,
    AgendaClaimed,
    AgendaCommanded,
    AgendaDeferred,
    AgendaEmitted,
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
from pop_stream.policy.lifecycle.states import TERMINAL, TRANSITIONS, State, step

AGENDA = {"agenda_id": "a1", "at": datetime(2026, 1, 1, tzinfo=UTC)}
ATTEMPT = {**AGENDA, "insight_id": "files", "attempt": 1}
LEASE = {**ATTEMPT, "puller_id": "p1", "lease_ms": 60_000}

EVENTS = {
    "accepted": AgendaAccepted(
        **AGENDA, insight_id="files", customer_id="acme", agenda=msgspec.Raw(b"{}")
    ),
    "wanted": AgendaCommanded(**AGENDA, insight_id="files", action="cancel"),
    "restarted": AgendaRestarted(**ATTEMPT, routed=msgspec.Raw(b"{}")),
    "moved": AgendaReprioritised(**ATTEMPT, priority=1),
    "stopping": AgendaStopping(**ATTEMPT, reason="cancelled"),
    "resolved": AgendaResolved(**ATTEMPT, operation="a"),
    "waiting": AgendaWaiting(**ATTEMPT, until=AGENDA["at"], reason="retry"),
    "readied": AgendaReady(**ATTEMPT),
    "held": AgendaHeld(**ATTEMPT),
    "emitted": AgendaEmitted(**ATTEMPT),
    "claimed": AgendaClaimed(**LEASE),
    "renewed": AgendaHeartbeat(**LEASE),
    "progressed": AgendaProgressed(**ATTEMPT, operations=()),
    "stopped": AgendaStopped(**ATTEMPT),
    "failed": AgendaFailed(**ATTEMPT, message="disk full"),
    "deferred": AgendaDeferred(**ATTEMPT, until=AGENDA["at"]),
    "broke": AgendaFailed(**ATTEMPT, message="no such file", retryable=False),
    "succeeded": AgendaSucceeded(**ATTEMPT),
    "given_up": AgendaExhausted(**ATTEMPT),
    "cancelled": AgendaCancelled(**ATTEMPT),
    "expired": AgendaExpired(**ATTEMPT),
    "refused": AgendaRefused(**AGENDA, issues=()),
}

REMARKS = """
state      accepted   wanted     restarted  moved      stopping   resolved
unknown    ready      -          ready      ready      ready      ready
ready      ready      ready      ready      ready      ready      ready
waiting    waiting    waiting    waiting    waiting    waiting    waiting
held       held       held       held       held       held       held
emitted    emitted    emitted    emitted    emitted    emitted    emitted
running    running    running    running    running    running    running
retrying   retrying   retrying   retrying   retrying   retrying   retrying
succeeded  succeeded  succeeded  succeeded  succeeded  succeeded  succeeded
failed     failed     failed     failed     failed     failed     failed
cancelled  cancelled  cancelled  cancelled  cancelled  cancelled  cancelled
expired    expired    expired    expired    expired    expired    expired
refused    ready      -          ready      ready      ready      ready
"""

WAITS = """
state      waiting    readied    held
unknown    waiting    ready      held
ready      waiting    ready      held
waiting    waiting    ready      held
held       waiting    ready      held
emitted    emitted    emitted    emitted
running    running    running    running
retrying   retrying   retrying   retrying
succeeded  succeeded  succeeded  succeeded
failed     failed     failed     failed
cancelled  cancelled  cancelled  cancelled
expired    expired    expired    expired
refused    waiting    ready      held
"""

AFTER_EMISSION = """
state      emitted    claimed    renewed    progressed stopped    failed     deferred
unknown    emitted    running    running    running    running    retrying   retrying
ready      emitted    running    running    running    running    retrying   retrying
waiting    emitted    running    running    running    running    retrying   retrying
held       emitted    running    running    running    running    retrying   retrying
emitted    emitted    running    running    running    running    retrying   retrying
running    running    running    running    running    running    retrying   retrying
retrying   retrying   retrying   retrying   retrying   retrying   retrying   retrying
succeeded  succeeded  succeeded  succeeded  succeeded  succeeded  -          -
failed     failed     failed     failed     failed     failed     failed     failed
cancelled  cancelled  cancelled  cancelled  cancelled  cancelled  cancelled  cancelled
expired    expired    expired    expired    expired    expired    expired    expired
refused    emitted    running    running    running    running    retrying   retrying
"""

OUTCOMES = """
state      succeeded  given_up   broke      cancelled  expired    refused
unknown    succeeded  failed     failed     cancelled  expired    refused
ready      succeeded  failed     failed     cancelled  expired    -
waiting    succeeded  failed     failed     cancelled  expired    -
held       succeeded  failed     failed     cancelled  expired    -
emitted    succeeded  failed     failed     cancelled  expired    -
running    succeeded  failed     failed     cancelled  expired    -
retrying   -          failed     failed     cancelled  expired    -
succeeded  succeeded  -          -          -          -          -
failed     -          failed     failed     -          -          -
cancelled  -          -          -          cancelled  -          -
expired    -          -          -          -          expired    -
refused    succeeded  failed     failed     cancelled  expired    refused
"""


def cases():
    for table in (REMARKS, WAITS, AFTER_EMISSION, OUTCOMES):
        heading, *rows = [line.split() for line in table.strip().splitlines()]
        for state, *cells in rows:
            for event, after in zip(heading[1:], cells, strict=True):
                yield pytest.param(state, event, after, id=f"{state}-{event}")


@pytest.mark.parametrize(("before", "event", "after"), list(cases()))
def test_each_event_leads_where_the_table_says(before, event, after):
    state = None if before == "unknown" else State(before)
    if after == "-":
        with pytest.raises(TransitionError, match=before):
            step(state, EVENTS[event])
    else:
        assert step(state, EVENTS[event]) is State(after)


def test_the_table_holds_nothing_else():
    known = [case.values for case in cases()]
    # A final failure is no key of its own: it counts as giving up.
    allowed = sum(after != "-" and event != "broke" for _, event, after in known)
    assert len(TRANSITIONS) == allowed


def test_ends_are_terminal_and_nothing_else_is():
    assert {state for state in State if state.is_terminal} == TERMINAL
    assert {state.value for state in TERMINAL} == {
        "succeeded",
        "failed",
        "cancelled",
        "expired",
        "refused",
    }
