"""Calls a handler: in the event loop if it is async, else in a thread."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from pop_stream.core import references
from pop_stream.core.agenda import Operation
from pop_stream.core.events import EmittedAgenda
from pop_stream.core.references import UnresolvedReferenceError
from pop_stream.ports import Clock
from pop_stream.pullers.errors import FinalError, RetryableError
from pop_stream.pullers.handlers import Handler, Handlers
from pop_stream.pullers.operation_call import OperationCall, SyncOperationCall
from pop_stream.pullers.operation_run import OperationRun


@dataclass(frozen=True, slots=True)
class Equipment:
    """What all runs of a puller share.

    Attributes:
        threads: Where handlers run that are not async.
    """

    handlers: Handlers
    threads: Executor
    clock: Clock


async def invoke(
    equipment: Equipment,
    emitted: EmittedAgenda,
    one: OperationRun,
    names: Mapping[str, object],
) -> object:
    """The value that the operation's handler returns.

    Args:
        equipment: Has the handler.
        emitted: The agenda's attempt.
        one: The operation.
        names: What its payload may refer to.

    Raises:
        FinalError: If its type has no handler or a reference leads nowhere.
        BaseException: Whatever the handler raises.
    """
    operation = one.operation
    handler = equipment.handlers.find(operation.type)
    if handler is None:
        raise unknown_type(operation, equipment.handlers)
    facts: dict[str, Any] = {
        "name": operation.name,
        "type": operation.type,
        "payload": _resolved(operation, names),
        "params": operation.params,
        "agenda_id": emitted.agenda_id,
        "customer_id": emitted.customer_id,
        "insight_id": emitted.insight_id,
        "attempt": emitted.attempt,
        "report_to": one.report,
    }
    if handler.is_async:
        return await handler.function(OperationCall(**facts))
    returned = await _in_thread(handler, SyncOperationCall(**facts), one, equipment.threads)
    # A function that is not async may still return a coroutine, as a lambda does.
    return await returned if isawaitable(returned) else returned


def unknown_type(operation: Operation, handlers: Handlers) -> FinalError:
    """The error for an operation that no handler of this puller can do."""
    known = ", ".join(handlers.types) or "none"
    return FinalError(
        f"operation type {operation.type!r} has no handler here (registered: {known}); "
        "register one, or correct the type or the insight's mappers"
    )


async def _in_thread(
    handler: Handler, call: SyncOperationCall, one: OperationRun, threads: Executor
) -> object:
    def work() -> object:
        one.begin()  # the wait for a free thread is no work
        try:
            return handler.function(call)
        except StopIteration as error:
            # A future refuses it, and whoever awaits would wait for ever.
            msg = "the handler raised StopIteration"
            raise RetryableError(msg) from error

    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, copy_context().run, work)


def _resolved(operation: Operation, names: Mapping[str, object]) -> object:
    try:
        return references.resolve(operation.payload, names)
    except UnresolvedReferenceError as error:
        msg = f"payload of operation {operation.name!r}: {error}"
        raise FinalError(msg) from None
