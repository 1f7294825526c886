"""What a handler is given: the operation to do, and the way to report on it."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from pop_stream.core.events import PriorProgress
from pop_stream.core.values.trace import Trace

ReportTo = Callable[[float, str], None]
NoteTo = Callable[[str, str, Any], None]
AppendTo = Callable[[Sequence[Mapping[str, Any]]], tuple[str, ...]]


def _ignore(*_: object) -> None:
    """Notes of a call that no puller made, as in a test of a handler."""


def _append_nothing(_: object) -> tuple[str, ...]:
    """Nothing is appended by a call that no puller made."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OperationCallBase:
    """An operation to do now.

    Attributes:
        payload: Input with all references replaced. Operations that refer to one and the
            same result share it, so read it, do not change it.
        params: Settings for the handler, as submitted.
        link_id: Of the agenda, if it has one.
        attempt: From 1; above it, an earlier attempt of the agenda failed or went silent.
        tries: From 1; above it, an earlier try in this attempt failed.
        trace: Trace context and correlation id of the request the agenda came from, to hand
            on with calls of the handler's own: `trace.headers`.
        prior: How far the operation was when an earlier attempt ended, if it had begun.
        deadline: When this try must have ended: the agenda expires then, or the try's
            `timeout_s` is over. None if neither is set.
    """

    name: str
    type: str
    payload: JsonValue
    params: Mapping[str, JsonValue]
    agenda_id: str
    customer_id: str
    insight_id: str
    link_id: str | None = None
    attempt: int
    tries: int = 1
    trace: Trace | None = None
    prior: PriorProgress | None = None
    deadline: datetime | None = None
    report_to: ReportTo = field(repr=False, compare=False)
    note_to: NoteTo = field(default=_ignore, repr=False, compare=False)
    append_to: AppendTo = field(default=_append_nothing, repr=False, compare=False)

    def note(self, message: str, *, code: str = "", detail: JsonValue = None) -> None:
        """Leave a diagnostic on the operation, from any thread; the newest ten are kept.

        Args:
            message: For a person; the first 500 characters are kept.
            code: For a program.
            detail: Anything JSON can say, up to 2,000 bytes.

        Raises:
            ValueError: If `detail` is no JSON or too large.
        """
        self.note_to(message, code, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall(_OperationCallBase):
    """What an `async def` handler is given. It is cancelled if the agenda is to stop."""

    async def report(self, percent: float, message: str = "") -> None:
        """Tell how far the operation is; call it as often as you like, most are not sent.

        Args:
            percent: Of this operation; held within 0 and 100.
            message: Replaces the previous one.
        """
        self.report_to(percent, message)
        # Lets others run, and a cancellation arrive, in a handler that never waits otherwise.
        await asyncio.sleep(0)

    async def append(self, operations: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add operations to the running agenda, as a submission would have them.

        They run in this attempt, and in any later one: the agenda remembers them, and which
        operation they come from. Appending the same once more changes nothing.

        Args:
            operations: Each as in an agenda; they may depend on any operation there is.

        Returns:
            Names of those that were new.

        Raises:
            SubmissionError: If one of them is not sound, or bears the name of another
                operation; then none is added.
        """
        appended = self.append_to(operations)
        await asyncio.sleep(0)
        return appended


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOperationCall(_OperationCallBase):
    """What a plain `def` handler is given; it runs in a thread.

    Attributes:
        stopping: Set if the agenda is to stop or the try takes too long. Nothing can end a
            thread from outside: look at it, or wait on it, in whatever takes long.
    """

    stopping: threading.Event = field(
        default_factory=threading.Event, repr=False, compare=False
    )

    def report(self, percent: float, message: str = "") -> None:
        """Tell how far the operation is, from any thread; most reports are not sent.

        Args:
            percent: Of this operation; held within 0 and 100.
            message: Replaces the previous one.
        """
        self.report_to(percent, message)

    def append(self, operations: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add operations to the running agenda; see `OperationCall.append`."""
        return self.append_to(operations)
