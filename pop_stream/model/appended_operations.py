"""Operations that a handler appends to its agenda while it runs."""

from collections.abc import Iterator, Sequence
from graphlib import CycleError
from itertools import islice
from typing import Final

import msgspec
from pydantic import TypeAdapter, ValidationError

from pop_stream.model import references
from pop_stream.model.agenda import MAX_OPERATIONS, Operation, dependencies, plan
from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.events.base import AppendedOperation
from pop_stream.model.validation import issues_of, shorten, without_nul

MAX_APPENDED_BYTES: Final = 256 * 1024
"""Most bytes of one appended operation, as JSON: events carry them."""

MAX_OPERATIONS_BYTES: Final = 900_000
"""Most bytes of all operations of an agenda, those it came with and those that were appended,
as JSON: they are read, placed and run as one."""

_OPERATIONS: Final = TypeAdapter(tuple[Operation, ...])
_OPERATION: Final = TypeAdapter(Operation)
_DOCUMENT: Final = "operations"


def new_operations(given: object, *, to: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations that are new to the agenda, in the order given.

    One that the agenda has already, with the same content, is left out; so a handler that
    runs again appends nothing twice.

    Args:
        given: A list of operations, as JSON can say them.
        to: All operations that the agenda has.

    Raises:
        SubmissionError: With one issue per fault, naming field, value and remedy.
    """
    operations = _parsed(given)
    new = _without_repeats(operations, to)
    if len(to) + len(new) > MAX_OPERATIONS:
        remedy = f"the agenda would have {len(to) + len(new)} operations, at most "
        raise SubmissionError(
            [Issue(_DOCUMENT, f"{len(new)} operations", f"{remedy}{MAX_OPERATIONS} fit")]
        )
    if new and (size := sum(len(encode_operation(one)) for one in (*to, *new))) > (
        MAX_OPERATIONS_BYTES
    ):
        remedy = (
            f"the agenda's operations would have so many, at most {MAX_OPERATIONS_BYTES:,} "
            "fit; store their inputs elsewhere"
        )
        raise SubmissionError([Issue(_DOCUMENT, f"{size} bytes", remedy)])
    known = {one.name for one in to} | {one.name for one in new}
    if faults := [*islice(_issues(operations, known), SubmissionError.MAX_ISSUES)]:
        raise SubmissionError(faults)
    _expect_no_cycle(new)
    return tuple(new)


def encode_operation(operation: Operation) -> bytes:
    """The operation as JSON, without fields left at their defaults."""
    return _OPERATION.dump_json(operation, exclude_defaults=True)


def all_operations(
    accepted: Sequence[Operation], appended: Sequence[AppendedOperation]
) -> tuple[Operation, ...]:
    """All operations of an agenda: those it was accepted with, then those that were appended.

    Whatever is said of an agenda's operations is said of these: which may be reported on, which
    run again, and which must have succeeded before it has. Of one name, ignoring case, the
    first counts.

    Args:
        accepted: In the agenda's order.
        appended: In the order in which they were appended.

    Raises:
        SubmissionError: If one of those appended is no operation.
    """
    try:
        added = [_OPERATION.validate_json(bytes(one.operation)) for one in appended]
    except ValidationError as error:
        raise SubmissionError(issues_of(error, document=_DOCUMENT)) from None
    by_name: dict[str, Operation] = {}
    for one in (*accepted, *added):
        by_name.setdefault(one.name.casefold(), one)
    return tuple(by_name.values())


def _parsed(given: object) -> tuple[Operation, ...]:
    try:
        text = without_nul(msgspec.json.encode(given), document=_DOCUMENT)
        return _OPERATIONS.validate_json(text, strict=True)
    except ValidationError as error:
        faults = issues_of(error, document="")
        raise SubmissionError(
            [Issue(f"{_DOCUMENT}{one.field}", one.value, one.message) for one in faults]
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        fault = Issue(_DOCUMENT, type(given).__name__, f"is not JSON: {error}")
        raise SubmissionError([fault]) from None


def _without_repeats(
    operations: Sequence[Operation], to: Sequence[Operation]
) -> list[Operation]:
    taken = {one.name.casefold(): one for one in to}
    new: list[Operation] = []
    for index, operation in enumerate(operations):
        known = taken.setdefault(operation.name.casefold(), operation)
        if known is operation:
            new.append(operation)
        elif known != operation:
            raise SubmissionError([_name_taken(index, operation)])
    return new


def _name_taken(index: int, operation: Operation) -> Issue:
    return Issue(
        f"{_DOCUMENT}[{index}].name",
        operation.name,
        "taken by another operation of the agenda, with other content; names are unique, "
        "ignoring case",
    )


def _issues(operations: Sequence[Operation], known: set[str]) -> Iterator[Issue]:
    for index, operation in enumerate(operations):
        size = len(encode_operation(operation))
        if size > MAX_APPENDED_BYTES:
            yield Issue(
                f"{_DOCUMENT}[{index}]",
                operation.name,
                f"has {size} bytes, at most {MAX_APPENDED_BYTES} are allowed; "
                "store its input elsewhere",
            )
        for position, name in enumerate(operation.depends_on):
            if name not in known:
                yield Issue(
                    f"{_DOCUMENT}[{index}].depends_on[{position}]",
                    name,
                    "no operation of this agenda, nor of those appended with this one",
                )
        for reference in references.find(operation.payload):
            if reference.name in references.BUILT_IN_NAMES or reference.operation in known:
                continue
            yield Issue(
                f"{_DOCUMENT}[{index}].payload",
                shorten(f"@<{reference.name}>"),
                "refers neither to the output (<operation>.out) of an operation of this "
                f"agenda nor to one of {', '.join(sorted(references.BUILT_IN_NAMES))}",
            )


def _expect_no_cycle(new: Sequence[Operation]) -> None:
    """Only new operations can wait for each other: those there were wait for none of them."""
    names = {one.name for one in new}
    try:
        plan(tuple(one for one in new if dependencies(one) & names))
    except CycleError as error:
        path = " -> ".join(reversed(error.args[1]))
        remedy = "these operations wait for each other; remove one dependency"
        raise SubmissionError([Issue(_DOCUMENT, shorten(path), remedy)]) from None
