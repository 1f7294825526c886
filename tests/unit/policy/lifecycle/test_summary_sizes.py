"""A summary stays bounded, whatever is reported of an agenda, however often."""

import json
from datetime import timedelta

import msgspec
import pytest
from backlogs import START

from pop_stream.model.agenda import Operation
from pop_stream.model.appended_operations import MAX_OPERATIONS_BYTES, new_operations
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.base import AppendedOperation, Diagnostic, OperationProgress
from pop_stream.model.events.lifecycle import (
    AgendaFailed,
    AgendaProgressed,
    AgendaSucceeded,
    AgendaWaiting,
)
from pop_stream.policy.lifecycle.fold import (
    MAX_RESULTS_BYTES,
    RESULT_NOT_KEPT,
    fold_all,
)
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import MAX_HISTORY, MAX_HISTORY_BYTES

KIB_256 = 256 * 1024


def fields(at=0, attempt=1):
    at = START + timedelta(seconds=at)
    return {"agenda_id": "a", "at": at, "insight_id": "media", "attempt": attempt}


def succeeded(name, size):
    result = msgspec.Raw(json.dumps("r" * size).encode())
    return OperationProgress(name=name, state="succeeded", percent=100, result=result)


def appended(name, size):
    operation = {"name": name, "type": "noop", "payload": "p" * size}
    return AppendedOperation(
        by="n", at=START, operation=msgspec.Raw(json.dumps(operation).encode())
    )


def size_of(one):
    return 0 if one.result is msgspec.UNSET else len(one.result)


def test_results_that_grow_together_past_the_limit_are_left_out_with_the_reason():
    events = [
        AgendaProgressed(**fields(n), operations=(succeeded(f"o{n}", KIB_256),))
        for n in range(100)
    ]
    events.append(AgendaSucceeded(**fields(100)))
    summary, skipped = fold_all(None, events)
    assert skipped == 0
    assert summary.state is State.SUCCEEDED
    assert sum(map(size_of, summary.operations.values())) <= MAX_RESULTS_BYTES
    assert summary.operations["o0"].result is not msgspec.UNSET
    last = summary.operations["o99"]
    assert (last.state, last.result, last.message) == (
        "succeeded",
        msgspec.UNSET,
        RESULT_NOT_KEPT,
    )
    again, _ = fold_all(summary, events)
    assert sum(map(size_of, again.operations.values())) <= MAX_RESULTS_BYTES


def test_operations_appended_past_the_limit_by_a_foreign_puller_are_not_taken():
    events = [
        AgendaProgressed(**fields(n), appended=(appended(f"o{n}", KIB_256),)) for n in range(40)
    ]
    summary, skipped = fold_all(None, events)
    assert len(summary.appended) == 3
    assert skipped == 37
    assert sum(len(one.operation) for one in summary.appended) <= MAX_OPERATIONS_BYTES
    ended, _ = fold_all(summary, [AgendaSucceeded(**fields(99))])
    assert ended.state is State.SUCCEEDED


def test_operations_that_would_grow_past_the_limit_cannot_be_appended():
    have = [Operation(name=f"o{n}", type="noop", payload="p" * 200_000) for n in range(4)]
    more = [{"name": "next", "type": "noop", "payload": "p" * 200_000}]
    with pytest.raises(SubmissionError) as refused:
        new_operations(more, to=have)
    (issue,) = refused.value.issues
    assert issue.field == "operations"
    assert "900,000" in issue.message
    assert new_operations(more, to=have[:3])


@pytest.mark.parametrize("size", [10, 5_000, 800_000])
def test_the_history_of_attempts_is_bounded_by_its_bytes(size):
    events = []
    for attempt in range(1, 120):
        diagnostics = (Diagnostic(message="d" * size, at=START),)
        failed = AgendaFailed(
            **fields(attempt, attempt), message="m" * size, diagnostics=diagnostics
        )
        until = START + timedelta(seconds=attempt)
        waiting = fields(attempt, attempt + 1)
        events += [failed, AgendaWaiting(**waiting, until=until, reason="retry")]
    summary, _ = fold_all(None, events)
    assert 0 < len(summary.history) <= MAX_HISTORY
    assert len(msgspec.json.encode(summary.history)) <= MAX_HISTORY_BYTES
    assert summary.history[-1].attempt == 119
    assert summary.history[-1].message.startswith("m" * 10)
