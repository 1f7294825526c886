"""Every state with every event, as one table."""

from datetime import UTC, datetime

import msgspec
import pytest

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
)
from pop_stream.core.lifecycle import TERMINAL, TRANSITIONS, State, step

AGENDA = {"agenda_id": "a1", "at": datetime(2026, 1, 1, tzinfo=UTC)}
ATTEMPT = {**AGENDA, "insight_id": "files", "attempt": 1}
LEASE = {**ATTEMPT, "puller_id": "p1", "lease_ms": 60_000}

EVENTS = {
    "accepted": AgendaAccepted(
        **AGENDA, insight_id="files", customer_id="acme", agenda=msgspec.Raw(b"{}")
    ),
    "emitted": AgendaEmitted(**ATTEMPT),
    "claimed": AgendaClaimed(**LEASE),
    "renewed": AgendaRenewed(**LEASE),
    "progressed": AgendaProgressed(**ATTEMPT, operations=()),
    "succeeded": AgendaSucceeded(**ATTEMPT),
    "failed": AgendaFailed(**ATTEMPT, message="disk full"),
    "refused": AgendaRefused(**AGENDA, issues=()),
}

TABLE = """
state      accepted   emitted    claimed    renewed    progressed succeeded  failed     refused
unknown    ready      emitted    running    running    running    succeeded  failed     refused
ready      ready      emitted    running    running    running    succeeded  failed     -
emitted    emitted    emitted    running    running    running    succeeded  failed     -
running    running    running    running    running    running    succeeded  failed     -
succeeded  succeeded  succeeded  succeeded  succeeded  succeeded  succeeded  -          -
failed     failed     failed     failed     failed     failed     -          failed     -
refused    ready      emitted    running    running    running    succeeded  failed     refused
"""


def cases():
    heading, *rows = [line.split() for line in TABLE.strip().splitlines()]
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
    allowed = sum(after != "-" for _, _, after in (case.values for case in cases()))
    assert len(TRANSITIONS) == allowed


def test_ends_are_terminal_and_nothing_else_is():
    assert {state for state in State if state.is_terminal} == TERMINAL
    assert {state.value for state in TERMINAL} == {"succeeded", "failed", "refused"}
