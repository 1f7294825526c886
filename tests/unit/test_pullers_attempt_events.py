import msgspec
import pytest
from pullers_fakes import AT, emitted

from pop_stream.core.events import (
    AgendaFailed,
    AgendaProgressed,
    AgendaSucceeded,
    Diagnostic,
    OperationProgress,
    encode,
)
from pop_stream.pullers.attempt_events import bytes_of, ending, progress
from pop_stream.pullers.messages import MESSAGE_LENGTH
from pop_stream.pullers.results import RESULT_BYTES
from pop_stream.pullers.run import Failure

RECORD_BYTES = 512 * 1024


def told(name, size=0, message=""):
    return OperationProgress(
        name=name,
        state="succeeded",
        percent=100 / 3,
        message=message,
        started_at=AT,
        ended_at=AT,
        result=msgspec.Raw(b'"' + b"x" * size + b'"'),
    )


def test_small_agenda_ends_in_one_event_with_all_its_operations():
    operations = [told("a"), told("b")]
    (end,) = ending(emitted(), operations, None, at=AT, spent_s={"work": 0.1234567})
    assert isinstance(end, AgendaSucceeded)
    assert end.operations == tuple(operations)
    assert end.spent_s == {"work": 0.123457}
    assert (end.agenda_id, end.attempt, end.insight_id, end.at) == ("a1", 1, "media", AT)


def test_failure_says_why_and_whether_to_retry():
    diagnostics = (Diagnostic(message="m", at=AT),)
    failure = Failure("no", retryable=False, diagnostics=diagnostics)
    (end,) = ending(emitted(), [], failure, at=AT, spent_s={})
    assert isinstance(end, AgendaFailed)
    assert (end.message, end.retryable, end.diagnostics) == ("no", False, diagnostics)


def test_large_results_go_ahead_of_the_end_each_record_bounded_and_each_operation_once():
    operations = [told(f"o{i}", size=RESULT_BYTES // 4) for i in range(40)]
    lifecycle = ending(emitted(), operations, None, at=AT, spent_s={})
    *earlier, end = lifecycle
    assert earlier
    assert all(isinstance(event, AgendaProgressed) for event in earlier)
    assert [one.name for event in lifecycle for one in event.operations] == [
        one.name for one in operations
    ]
    assert max(len(encode(event)) for event in lifecycle) < RECORD_BYTES
    assert isinstance(end, AgendaSucceeded)


def test_worst_operation_with_the_worst_failure_fits_a_record():
    worst = "\x01" * MESSAGE_LENGTH
    diagnostic = Diagnostic(message=worst, at=AT, code="c", detail={"operation": "\x01" * 200})
    failure = Failure(worst, retryable=True, diagnostics=(diagnostic,) * 10)
    operation = told("\x01" * 200, size=RESULT_BYTES - 2, message=worst)
    lifecycle = ending(emitted(), [operation] * 3, failure, at=AT, spent_s={})
    assert max(len(encode(event)) for event in lifecycle) < RECORD_BYTES


def test_thousands_of_operation_types_do_not_share_a_record_with_operations():
    spent_s = {f"type {i} {'x' * 80}": 0.5 for i in range(4000)}
    lifecycle = ending(emitted(), [told("a", RESULT_BYTES - 2)], None, at=AT, spent_s=spent_s)
    assert [len(event.operations) for event in lifecycle] == [1, 0]
    assert max(len(encode(event)) for event in lifecycle) < RECORD_BYTES


def test_progress_without_operations_is_no_event():
    assert progress(emitted(), [], at=AT) == []


@pytest.mark.parametrize("operation", [told("a"), told("\x01é", 1000, "\x01" * 100)])
def test_size_is_never_guessed_too_low(operation):
    assert len(encode(operation)) <= bytes_of([operation])
