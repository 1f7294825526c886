import msgspec
import pytest
from puller_fakes import AT, emitted

from pop_stream.model.events.base import AppendedOperation, Diagnostic, OperationProgress
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import (
    AgendaFailed,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
)
from pop_stream.puller.execution.failure import Failure
from pop_stream.puller.execution.operation_retrier import RESULT_BYTES
from pop_stream.puller.handlers.invocation import DETAIL_BYTES
from pop_stream.puller.reporting.messages import BRIEF_LENGTH, MAX_MESSAGE_LENGTH
from pop_stream.puller.reporting.reporter import (
    NO_CHANGES,
    PROGRESS_BYTES,
    AttemptChanges,
    AttemptOutcome,
    encoded_size,
    outcome_events,
    progress_events,
)

RECORD_BYTES = 512 * 1024


def reported(name, size=0, message="", diagnostics=()):
    return OperationProgress(
        name=name,
        state="succeeded",
        percent=100 / 3,
        message=message,
        started_at=AT,
        ended_at=AT,
        result=msgspec.Raw(b'"' + b"x" * size + b'"'),
        diagnostics=diagnostics,
    )


def test_small_agenda_ends_in_one_event_with_all_its_operations():
    operations = [reported("a"), reported("b")]
    (end,) = outcome_events(
        emitted(), AttemptChanges(operations), AttemptOutcome(AT, {"work": 0.1234567})
    )
    assert isinstance(end, AgendaSucceeded)
    assert end.operations == tuple(operations)
    assert end.spent_s == {"work": 0.123457}
    assert (end.agenda_id, end.attempt, end.insight_id, end.at) == ("a1", 1, "media", AT)


def test_failure_says_why_and_whether_to_retry():
    diagnostics = (Diagnostic(message="m", at=AT),)
    failure = Failure("no", retryable=False, diagnostics=diagnostics)
    (end,) = outcome_events(emitted(), NO_CHANGES, AttemptOutcome(AT, {}, failure))
    assert isinstance(end, AgendaFailed)
    assert (end.message, end.retryable, end.diagnostics) == ("no", False, diagnostics)


def test_large_results_go_ahead_of_the_end_each_record_bounded_and_each_operation_once():
    operations = [reported(f"o{i}", size=RESULT_BYTES // 4) for i in range(40)]
    lifecycle = outcome_events(emitted(), AttemptChanges(operations), AttemptOutcome(AT))
    *earlier, end = lifecycle
    assert earlier
    assert all(isinstance(event, AgendaProgressed) for event in earlier)
    assert [one.name for event in lifecycle for one in event.operations] == [
        one.name for one in operations
    ]
    assert max(len(encode(event)) for event in lifecycle) < RECORD_BYTES
    assert isinstance(end, AgendaSucceeded)


def test_worst_operation_with_the_worst_failure_fits_a_record():
    worst = "\x01" * MAX_MESSAGE_LENGTH
    diagnostic = Diagnostic(message=worst, at=AT, code="c", detail={"operation": "\x01" * 200})
    failure = Failure(worst, retryable=True, diagnostics=(diagnostic,) * 10)
    noted = Diagnostic(
        message="\x01" * BRIEF_LENGTH, at=AT, code="c" * 100, detail="x" * (DETAIL_BYTES - 2)
    )
    operation = reported(
        "\x01" * 200, size=RESULT_BYTES - 2, message=worst, diagnostics=(noted,) * 10
    )
    assert encoded_size([operation]) < PROGRESS_BYTES
    lifecycle = outcome_events(
        emitted(), AttemptChanges([operation] * 3), AttemptOutcome(AT, {}, failure)
    )
    assert max(len(encode(event)) for event in lifecycle) < RECORD_BYTES


def test_thousands_of_operation_types_do_not_share_a_record_with_operations():
    spent_s = {f"type {i} {'x' * 80}": 0.5 for i in range(4000)}
    lifecycle = outcome_events(
        emitted(),
        AttemptChanges([reported("a", RESULT_BYTES - 2)]),
        AttemptOutcome(AT, spent_s),
    )
    assert [len(event.operations) for event in lifecycle] == [1, 0]
    assert max(len(encode(event)) for event in lifecycle) < RECORD_BYTES


def test_progress_without_operations_is_no_event():
    assert progress_events(emitted(), NO_CHANGES, at=AT) == []


@pytest.mark.parametrize("operation", [reported("a"), reported("\x01é", 1000, "\x01" * 100)])
def test_size_is_never_guessed_too_low(operation):
    assert len(encode(operation)) <= encoded_size([operation])


def test_stopped_attempt_says_what_it_got_done_and_spent():
    stopped = AttemptOutcome(AT, {"work": 1.5}, Failure("puller stopped", retryable=True), True)
    (end,) = outcome_events(emitted(), AttemptChanges([reported("a")]), stopped)
    assert isinstance(end, AgendaStopped)
    assert ([one.name for one in end.operations], end.spent_s) == (["a"], {"work": 1.5})


def test_appended_operations_are_reported_before_their_progress_in_bounded_records():
    appended = [
        AppendedOperation(by="a", at=AT, operation=msgspec.Raw(b'"' + b"x" * 100_000 + b'"'))
        for _ in range(10)
    ]
    *earlier, end = outcome_events(
        emitted(), AttemptChanges([reported("a")], appended), AttemptOutcome(AT)
    )
    assert sum(len(event.appended) for event in earlier) == 10
    assert not any(event.operations for event in earlier)
    assert [one.name for one in end.operations] == ["a"]
    assert max(len(encode(event)) for event in earlier) < RECORD_BYTES
