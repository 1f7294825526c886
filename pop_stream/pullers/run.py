"""Runs one agenda: its operations in the order of their DAG, in parallel where it allows.

Knows no Kafka. What changed is asked for with `take_changes`; how it ended is the returned
`Failure`, or None.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from pop_stream.core import references
from pop_stream.core.agenda import Agenda, Operation, plan
from pop_stream.core.events import Diagnostic, EmittedAgenda, OperationProgress
from pop_stream.core.references import OUTPUT_SUFFIX
from pop_stream.pullers.errors import OperationError, RetryableError
from pop_stream.pullers.invocation import Equipment, invoke, unknown_type
from pop_stream.pullers.messages import message
from pop_stream.pullers.operation_run import OperationRun
from pop_stream.pullers.results import encode_result

PARALLEL_OPERATIONS: Final = 64
"""Most operations of one agenda that run at a time; the rest of a wide DAG waits."""

_MOST_DIAGNOSTICS: Final = 10

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed.

    Attributes:
        message: Of the operation that failed first, with its name.
        retryable: Whether another attempt may help: nothing failed finally.
        diagnostics: One for each operation that failed, the first ten.
    """

    message: str
    retryable: bool
    diagnostics: tuple[Diagnostic, ...] = ()

    def joined(self, later: "Failure") -> "Failure":
        """This failure, with one that came after it."""
        diagnostics = (*self.diagnostics, *later.diagnostics)[:_MOST_DIAGNOSTICS]
        return Failure(self.message, self.retryable and later.retryable, diagnostics)


class AgendaRun:
    """One attempt of an agenda.

    Args:
        emitted: What was taken from the insight's topic.
        agenda: Its agenda, parsed.
        equipment: Shared by all runs of a puller.
        succeeded: Results of operations that an earlier attempt ended well, JSON or empty
            for none; these are not run again, and not told again.
    """

    def __init__(
        self,
        emitted: EmittedAgenda,
        agenda: Agenda,
        equipment: Equipment,
        succeeded: Mapping[str, bytes] | None = None,
    ) -> None:
        self._emitted = emitted
        self._operations = agenda.operations
        self._equipment = equipment
        self._succeeded = succeeded or {}
        self._untold: deque[OperationRun] = deque()
        self._failure: Failure | None = None
        self._names: dict[str, object] = {
            "pop.agendaId": emitted.agenda_id,
            "pop.customerId": emitted.customer_id,
        }
        self._spent_s: dict[str, float] = {}

    @property
    def has_changes(self) -> bool:
        """Whether there is progress that was not taken yet."""
        return bool(self._untold)

    @property
    def spent_s(self) -> dict[str, float]:
        """Worker-seconds so far, by operation type, of operations that ended."""
        return self._spent_s

    def take_changes(self) -> list[OperationProgress]:
        """Progress of every operation that changed since this was last called."""
        # Threads may add more meanwhile: those are left for the next call.
        return [self._untold.popleft().tell() for _ in range(len(self._untold))]

    async def run(self) -> Failure | None:
        """Run all operations; once one failed start no more, but let those running end.

        To be called once. Cancelled, it cancels what runs and counts that as failed.
        """
        if self._all_known():
            if len(self._operations) == 1 and not self._succeeded:
                await self._operate(self._operations[0])
            else:
                await _Graph(self._operations, self).run(self._succeeded)
        return self._failure

    @property
    def has_failed(self) -> bool:
        """Whether an operation failed, so that no other may start."""
        return self._failure is not None

    async def operate(self, operation: Operation, *, is_referred_to: bool) -> None:
        """Run one operation and keep its result if others refer to it; for the graph."""
        encoded = await self._operate(operation)
        if is_referred_to and encoded is not None:
            self.keep(operation.name, encoded)

    def keep(self, name: str, encoded: bytes) -> None:
        """Let payloads refer to an operation's result."""
        value = msgspec.json.decode(encoded) if encoded else None
        self._names[f"{name}{OUTPUT_SUFFIX}"] = value

    def _all_known(self) -> bool:
        """Looks before anything starts, so that no work is done in vain."""
        find = self._equipment.handlers.find
        for operation in self._operations:
            if find(operation.type) is None:
                one = OperationRun(operation, self._untold)
                self._fail(one, unknown_type(operation, self._equipment.handlers))
                return False
        return True

    async def _operate(self, operation: Operation) -> bytes | None:
        """Run an operation, whatever its handler does; its result, None if it failed."""
        one = OperationRun(operation, self._untold)
        one.start(self._equipment.clock.now())
        try:
            self._names["pop.operationName"] = operation.name
            returned = await invoke(self._equipment, self._emitted, one, self._names)
            encoded = encode_result(returned)
            one.succeed(encoded, self._equipment.clock.now())
        except asyncio.CancelledError:
            if _is_cancelled():
                one.fail("stopped before it ended", self._equipment.clock.now())
                raise
            self._fail(one, RetryableError("its handler cancelled itself"))
        except (Exception, SystemExit) as error:  # a handler may raise anything at all
            self._fail(one, error)
        else:
            return encoded
        finally:
            spent = self._spent_s
            spent[operation.type] = spent.get(operation.type, 0.0) + one.worked_s()
        return None

    def _fail(self, one: OperationRun, error: BaseException) -> None:
        at = self._equipment.clock.now()
        operation = one.operation
        is_ours = isinstance(error, OperationError)
        reason = str(error) if is_ours else f"{type(error).__name__}: {error}"
        _log.info(
            "operation.failed",
            operation=operation.name,
            operation_type=operation.type,
            reason=reason,
            exc_info=None if is_ours else error,
        )
        one.fail(reason, at)
        diagnostic = Diagnostic(
            message=message(reason),
            at=at,
            code=error.code if isinstance(error, OperationError) else type(error).__name__,
            detail={"operation": operation.name},
        )
        failure = Failure(
            message(f"operation {operation.name!r} failed: {reason}"),
            retryable=error.retryable if isinstance(error, OperationError) else True,
            diagnostics=(diagnostic,),
        )
        self._failure = self._failure.joined(failure) if self._failure else failure


class _Graph:
    """The DAG of a run and the tasks that work on it.

    A worker takes one ready operation after the other, so that a chain needs one task only;
    it brings in more workers while more operations are ready.
    """

    def __init__(self, operations: tuple[Operation, ...], run: AgendaRun) -> None:
        self._run = run
        self._by_name = {operation.name: operation for operation in operations}
        self._referred = set(_referred(operations))
        self._sorter = plan(operations)
        self._ready: deque[str] = deque()
        self._workers = 1

    async def run(self, succeeded: Mapping[str, bytes]) -> None:
        self._advance()
        self._skip(succeeded)
        if self._ready:
            async with asyncio.TaskGroup() as group:
                await self._work(group, self._ready.popleft())

    def _skip(self, succeeded: Mapping[str, bytes]) -> None:
        """Count operations as done that need not run, from the roots on."""
        waiting: list[str] = []
        while self._ready:
            name = self._ready.popleft()
            if name not in succeeded:
                waiting.append(name)
                continue
            if name in self._referred:
                self._run.keep(name, succeeded[name])
            self._advance(name)
        self._ready.extend(waiting)

    async def _work(self, group: asyncio.TaskGroup, name: str | None) -> None:
        while name is not None and not self._run.has_failed:
            self._bring_in_workers(group)
            await self._run.operate(self._by_name[name], is_referred_to=name in self._referred)
            if not self._run.has_failed:
                self._advance(name)
            name = self._ready.popleft() if self._ready else None
        self._workers -= 1

    def _advance(self, *done: str) -> None:
        self._sorter.done(*done)
        self._ready.extend(self._sorter.get_ready())

    def _bring_in_workers(self, group: asyncio.TaskGroup) -> None:
        while self._ready and self._workers < PARALLEL_OPERATIONS:
            self._workers += 1
            group.create_task(self._work(group, self._ready.popleft()))


def _referred(operations: Iterable[Operation]) -> Iterable[str]:
    for operation in operations:
        for reference in references.find(operation.payload):
            if reference.operation is not None:
                yield reference.operation


def _is_cancelled() -> bool:
    """Whether the current task was told to end, rather than its handler ending itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
