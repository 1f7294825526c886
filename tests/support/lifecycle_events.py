"""Lifecycle events of one made-up agenda, at seconds after one instant."""

from datetime import UTC, datetime, timedelta

import msgspec

from pop_stream.model.events.base import OperationProgress, OperationState, RefusedIssue
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaCancelled,
    AgendaClaimed,
    AgendaCommanded,
    AgendaEmitted,
    AgendaExhausted,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaHeld,
    AgendaProgressed,
    AgendaReady,
    AgendaRefused,
    AgendaReprioritised,
    AgendaRestarted,
    AgendaStopped,
    AgendaStopping,
    AgendaSucceeded,
    AgendaWaiting,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
BODY = b'{"id": "a1",  "title": "Nightly"}'


def at(seconds):
    return START + timedelta(seconds=seconds)


def accepted(seconds=0, agenda_id="a1", **changes):
    known = {
        "agenda_id": agenda_id,
        "at": at(seconds),
        "insight_id": "files",
        "customer_id": "acme",
        "title": "Nightly ☾",
        "link_id": "night",
        "priority": 3,
        "operations": ("store", "fetch"),
        "agenda": msgspec.Raw(BODY),
    }
    return AgendaAccepted(**(known | changes))


def refused(seconds=0, message="fits no insight"):
    issue = RefusedIssue(field="operations[0].type", value="ftp", message=message)
    return AgendaRefused(agenda_id="a1", at=at(seconds), issues=(issue,), customer_id="acme")


def emitted(seconds=0, attempt=1, agenda_id="a1"):
    return _of_attempt(AgendaEmitted, seconds, attempt, agenda_id)


def claimed(seconds=0, attempt=1, agenda_id="a1"):
    lease = {"puller_id": "p1", "lease_ms": 60_000}
    return _of_attempt(AgendaClaimed, seconds, attempt, agenda_id, **lease)


def renewed(seconds=0, attempt=1, agenda_id="a1"):
    lease = {"puller_id": "p1", "lease_ms": 60_000}
    return _of_attempt(AgendaHeartbeat, seconds, attempt, agenda_id, **lease)


def progressed(seconds, *operations, attempt=1, agenda_id="a1"):
    fields = {"operations": operations}
    return _of_attempt(AgendaProgressed, seconds, attempt, agenda_id, **fields)


def succeeded(seconds=0, *operations, attempt=1, agenda_id="a1"):
    fields = {"operations": operations}
    return _of_attempt(AgendaSucceeded, seconds, attempt, agenda_id, **fields)


def failed(seconds=0, *operations, attempt=1, agenda_id="a1", **changes):
    fields = {"operations": operations, "message": "disk full"} | changes
    return _of_attempt(AgendaFailed, seconds, attempt, agenda_id, **fields)


def waiting(seconds=0, attempt=1, reason="retry", until=None):
    fields = {"until": until or at(seconds + 30), "reason": reason}
    return _of_attempt(AgendaWaiting, seconds, attempt, "a1", **fields)


def readied(seconds=0, attempt=1):
    return _of_attempt(AgendaReady, seconds, attempt, "a1")


def held(seconds=0, attempt=1):
    return _of_attempt(AgendaHeld, seconds, attempt, "a1")


def reprioritised(seconds=0, attempt=1, priority=5):
    return _of_attempt(AgendaReprioritised, seconds, attempt, "a1", priority=priority)


def stopping(seconds=0, attempt=1):
    return _of_attempt(AgendaStopping, seconds, attempt, "a1", reason="cancelled")


def halted(seconds=0, *operations, attempt=1):
    return _of_attempt(AgendaStopped, seconds, attempt, "a1", operations=operations)


def given_up(seconds=0, attempt=1):
    return _of_attempt(AgendaExhausted, seconds, attempt, "a1")


def cancelled(seconds=0, attempt=1, message=""):
    return _of_attempt(AgendaCancelled, seconds, attempt, "a1", message=message)


def restarted(seconds=0, attempt=2, reset=()):
    fields = {"routed": msgspec.Raw(b"{}"), "reset": reset}
    return _of_attempt(AgendaRestarted, seconds, attempt, "a1", **fields)


def commanded(seconds=0, action="cancel"):
    return AgendaCommanded(agenda_id="a1", at=at(seconds), insight_id="files", action=action)


def operation(name, state: OperationState = "running", percent=0.0, **changes):
    return OperationProgress(name=name, state=state, percent=percent, **changes)


def _of_attempt(kind, seconds, attempt, agenda_id, **changes):
    event = {"agenda_id": agenda_id, "at": at(seconds), "insight_id": "files"}
    return kind(**event, attempt=attempt, **changes)
