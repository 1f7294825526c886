"""What of new operations of a running agenda is refused, and why."""

import msgspec
import pytest
from backlogs import START

from pop_stream.model.agenda import MAX_OPERATIONS, Operation
from pop_stream.model.appended_operations import all_operations, new_operations
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.base import AppendedOperation


def operations(count, name="one"):
    return [{"name": f"{name}{number}", "type": "noop"} for number in range(count)]


def test_an_agenda_grows_to_the_most_operations_and_not_beyond():
    known = [Operation(**one) for one in operations(MAX_OPERATIONS - 2)]
    assert len(new_operations(operations(2, "new"), to=known)) == 2
    with pytest.raises(SubmissionError) as refused:
        new_operations(operations(3, "new"), to=known)
    [issue] = refused.value.issues
    assert issue.value == "3 operations"
    assert f"would have {MAX_OPERATIONS + 1} operations" in issue.message
    assert f"at most {MAX_OPERATIONS} fit" in issue.message


def test_what_a_foreign_puller_appended_unsoundly_is_refused_by_field():
    got = AppendedOperation(by="a", at=START, operation=msgspec.Raw(b'{"name": "b"}'))
    with pytest.raises(SubmissionError) as refused:
        all_operations((), [got])
    assert [issue.field for issue in refused.value.issues] == ["type"]


def test_of_one_name_the_first_operation_counts():
    accepted = [Operation(name="a", type="noop")]
    more = [
        AppendedOperation(by="a", at=START, operation=msgspec.Raw(text))
        for text in (b'{"name": "A", "type": "x"}', b'{"name": "b", "type": "x"}')
    ]
    known = all_operations(accepted, [*more, more[1]])
    assert [(one.name, one.type) for one in known] == [("a", "noop"), ("b", "x")]
