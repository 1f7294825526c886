"""Handlers of operations that wait: `sleep`, `await-signal` and `approval`.

They hold no runner while they wait. What a signal or a person decides is written to the
agenda's summary as the operation's end, so the handler is not called again; it is called again
where nothing was decided by the end of the wait.
"""

import asyncio
from datetime import timedelta
from time import monotonic
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.clock import WallClock
from pop_stream.model.agenda import Id
from pop_stream.model.retry import MAX_DEFERRAL_S
from pop_stream.puller.handlers.errors import NotYet, read_payload
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.handlers.registry import Handlers

HELD_S: Final = 10.0
"""A sleep of up to so many seconds keeps its runner: giving it back costs more."""

_REPORT_EVERY_S: Final = 0.5
_CLOCK: Final = WallClock()


class SleepPayload(BaseModel):
    """Payload of a `sleep` operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: Annotated[float, Field(ge=0, le=MAX_DEFERRAL_S, allow_inf_nan=False)]


class SignalPayload(BaseModel):
    """Payload of an `await-signal` operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    signal: Id


class ApprovalPayload(BaseModel):
    """Payload of an `approval` operation.

    Attributes:
        question: What is to be approved, for whoever decides.
        context: Anything that helps to decide.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
    context: JsonValue = None


async def sleep(operation: OperationCall) -> None:
    """Wait as long as the payload says, without a runner if that is long."""
    seconds = read_payload(SleepPayload, operation.payload).seconds
    since, left = operation.waiting_since, seconds
    if since is not None:
        left -= (_CLOCK.now() - since).total_seconds()
    if left > HELD_S:
        until = (_CLOCK.now() + timedelta(seconds=left)).isoformat(timespec="seconds")
        raise NotYet(left, f"sleeps until {until}", kind="sleep")
    end = monotonic() + left
    while (left := end - monotonic()) > 0:
        await asyncio.sleep(min(left, _REPORT_EVERY_S))
        await operation.report(100 * min(1.0, 1 - (end - monotonic()) / seconds))


async def await_signal(operation: OperationCall) -> None:
    """Wait for a signal of the customer's; its payload becomes the result."""
    signal = read_payload(SignalPayload, operation.payload).signal
    reason = f"signal {signal!r} has not been given"
    raise NotYet(MAX_DEFERRAL_S, reason, kind="signal", signal=signal)


async def approval(operation: OperationCall) -> None:
    """Wait for a person, who approves or rejects; who did and why becomes the result."""
    question = read_payload(ApprovalPayload, operation.payload).question
    raise NotYet(MAX_DEFERRAL_S, f"nobody has decided yet: {question}", kind="approval")


def add_waiting(handlers: Handlers) -> None:
    """Register them for the types that have no handler yet."""
    for kind, function in (
        ("sleep", sleep),
        ("await-signal", await_signal),
        ("approval", approval),
    ):
        if handlers.find(kind) is None:
            handlers.handler(kind)(function)
