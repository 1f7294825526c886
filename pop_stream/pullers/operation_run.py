"""One operation while its agenda runs: its state, what it reported, what is untold of it."""

from collections import deque
from datetime import datetime
from time import monotonic

import msgspec
from msgspec import UNSET, UnsetType

from pop_stream.core.agenda import Operation
from pop_stream.core.events import OperationProgress, OperationState
from pop_stream.pullers.messages import message


class OperationRun:
    """Changes are made by the event loop, except for `report`, which any thread may call.

    Args:
        operation: What is run.
        untold: Shared with the agenda's other operations: those with news.
    """

    __slots__ = (
        "_began", "_ended_at", "_message", "_percent_message", "_result", "_started_at",
        "_state", "_told", "_untold", "operation",
    )  # fmt: skip

    def __init__(self, operation: Operation, untold: "deque[OperationRun]") -> None:
        self.operation = operation
        self._untold = untold
        self._told = True
        self._state: OperationState = "waiting"
        self._percent_message = (0.0, "")
        self._result: msgspec.Raw | UnsetType = UNSET
        self._started_at: datetime | None = None
        self._ended_at: datetime | None = None
        self._began = 0.0

    def start(self, at: datetime) -> None:
        """It runs from now on."""
        self._state = "running"
        self._started_at = at
        self.begin()
        self._has_news()

    def begin(self) -> None:
        """Count worker-seconds from here; called again by a thread that got to it later."""
        self._began = monotonic()

    def worked_s(self) -> float:
        """Worker-seconds since it began."""
        return monotonic() - self._began

    def report(self, percent: float, text: str) -> None:
        """Take a report; after its end it is ignored."""
        if self._state == "running":
            # One assignment, so that no reader sees half of it.
            self._percent_message = (min(100.0, max(0.0, float(percent))), message(text))
            self._has_news()

    def succeed(self, result: bytes, at: datetime) -> None:
        """It ended well.

        Args:
            result: JSON, or empty for none.
            at: When.
        """
        self._state = "succeeded"
        self._result = msgspec.Raw(result) if result else UNSET
        self._end(at)

    def fail(self, reason: str, at: datetime) -> None:
        """It ended badly; `reason` replaces its message."""
        self._state = "failed"
        self._percent_message = (self._percent_message[0], message(reason))
        self._end(at)

    def tell(self) -> OperationProgress:
        """Its progress as it is now, which counts as told; the result is let go."""
        # Before reading: a report that comes in between is told twice rather than never.
        self._told = True
        percent, text = self._percent_message
        result, self._result = self._result, UNSET
        return OperationProgress(
            name=self.operation.name,
            state=self._state,
            percent=100.0 if self._state == "succeeded" else percent,
            message=text,
            started_at=self._started_at,
            ended_at=self._ended_at,
            result=result,
        )

    def _end(self, at: datetime) -> None:
        self._ended_at = at
        self._has_news()

    def _has_news(self) -> None:
        if self._told:
            self._told = False
            self._untold.append(self)
