"""The state of one operation during an attempt, and what of it is not published yet."""

from collections import deque
from datetime import datetime
from time import monotonic
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from pop_stream.model.agenda import Operation
from pop_stream.model.events.base import (
    Diagnostic,
    OperationProgress,
    OperationState,
    OperationWait,
)
from pop_stream.puller.execution.failure import newest_diagnostics
from pop_stream.puller.reporting.messages import message

MAX_CHARGE_S: Final = 1e8
"""Most worker-seconds that a try can be charged."""


class OperationRun:
    """One operation of a running agenda.

    Called in the event loop only, except for `report`, `note` and `charge`, which any thread
    may call.

    Args:
        operation: What is run.
        changed: Where it puts itself when it has a change; the agenda's operations share it.
    """

    __slots__ = (
        "_began",
        "_changed",
        "_charged_s",
        "_diagnostics",
        "_ended_at",
        "_is_reported",
        "_message",
        "_percent_message",
        "_result",
        "_started_at",
        "_state",
        "_tries",
        "_wait",
        "_worked_s",
        "is_abandoned",
        "operation",
    )  # fmt: skip

    def __init__(self, operation: Operation, changed: "deque[OperationRun]") -> None:
        self.operation = operation
        self.is_abandoned = False
        self._changed = changed
        self._is_reported = True
        self._state: OperationState = "waiting"
        self._percent_message = (0.0, "")
        self._diagnostics: tuple[Diagnostic, ...] = ()
        self._result: msgspec.Raw | UnsetType = UNSET
        self._started_at: datetime | None = None
        self._ended_at: datetime | None = None
        self._began = 0.0
        self._worked_s = 0.0
        self._charged_s: float | None = None
        self._tries = 1
        self._wait: OperationWait | None = None

    def start(self, at: datetime) -> None:
        """It runs from now on."""
        self._state = "running"
        self._started_at = at
        self._mark_changed()

    def begin(self) -> None:
        """Count worker-seconds from here; called again by a thread that got to it later."""
        self._began = monotonic()
        self._charged_s = None

    def pause(self) -> None:
        """Count no worker-seconds from here until it begins again."""
        charged_s = self._charged_s
        self._worked_s += monotonic() - self._began if charged_s is None else charged_s

    def charge(self, worker_s: float) -> None:
        """Count so many worker-seconds for this try, in place of the time until its pause."""
        self._charged_s = min(max(0.0, worker_s), MAX_CHARGE_S)

    @property
    def worked_s(self) -> float:
        """Worker-seconds until its last pause."""
        return self._worked_s

    def try_again(self) -> None:
        """Another try begins; its progress counts from nothing."""
        self._tries += 1
        self._percent_message = (0.0, "")
        self._mark_changed()

    @property
    def tries(self) -> int:
        """Tries begun so far, the present one included."""
        return self._tries

    def report(self, percent: float, text: str) -> None:
        """Take a report; after its end it is ignored."""
        if self._state == "running":
            # One assignment, so that no reader sees half of it.
            self._percent_message = (min(100.0, max(0.0, float(percent))), message(text))
            self._mark_changed()

    def note(self, diagnostic: Diagnostic) -> None:
        """Add a diagnostic; the newest ten are kept."""
        self._diagnostics = newest_diagnostics((*self._diagnostics, diagnostic))
        self._mark_changed()

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

    def defer(self, wait: OperationWait, reason: str, at: datetime) -> None:
        """It waits for something, and does not run on in this attempt."""
        self._state = "waiting"
        self._wait = wait
        self._percent_message = (self._percent_message[0], message(reason))
        self._end(at)

    def take_progress(self) -> OperationProgress:
        """Its progress as it is now, which then counts as reported.

        The result is in the first progress after its end only, and is freed then.
        """
        # Before reading: what a thread reports in between is published twice rather than never.
        self._is_reported = True
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
            diagnostics=self._diagnostics,
            tries=self._tries,
            wait=self._wait,
        )

    def _end(self, at: datetime) -> None:
        self._ended_at = at
        self._mark_changed()

    def _mark_changed(self) -> None:
        if self._is_reported:
            self._is_reported = False
            self._changed.append(self)
