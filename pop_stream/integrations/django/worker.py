"""The worker's side: the handler that runs a task, with Django's connections kept in order."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from traceback import format_exception
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, reset_queries
from django.utils import timezone

from pop_stream.integrations.django.backend import (
    ERROR_CODE,
    PopStreamBackend,
    on_behalf_of,
)
from pop_stream.integrations.django.framework import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)
from pop_stream.integrations.django.task_payload import TASK_TYPE, TaskPayload, task_at
from pop_stream.integrations.tasks import error_detail
from pop_stream.puller import FinalError, Handlers, SyncOperationCall

_operation: ContextVar[SyncOperationCall | None] = ContextVar("pop_stream_op", default=None)


def current_operation() -> SyncOperationCall:
    """The operation that the running task is: to report progress, or see that it should stop.

    Raises:
        LookupError: If no worker runs this code.
    """
    found = _operation.get()
    if found is None:
        msg = "no worker of pop_stream runs this code; call it in a task that a worker runs"
        raise LookupError(msg)
    return found


def task_handlers() -> Handlers:
    """The handlers of a puller that runs tasks; Django must have been set up."""
    handlers = Handlers()
    handlers.handler(TASK_TYPE)(run_task)
    return handlers


def run_task(call: SyncOperationCall) -> object:
    """Run a task in a thread of the puller; its return value is the operation's result.

    An asynchronous task runs in an event loop of its own, in that thread. Connections are
    looked at before and after, as around a request: those that are broken or older than
    `CONN_MAX_AGE` are closed. What the task raises fails the operation, and is tried again as
    the agenda says; `FinalError` is not.

    Raises:
        BaseException: What the task raises.
        FinalError: If the task is not found.
    """
    payload = TaskPayload.read(call.payload)
    backend = _backend(payload.backend)
    with _connections(), _running(call):
        task = task_at(payload.task, backend.settings.packages).using(
            queue_name=payload.queue, backend=payload.backend
        )
        now, names = timezone.now(), [""] * (call.attempt - 1)
        result = TaskResult(
            task=task,
            id=call.agenda_id.partition("@")[0],
            status=TaskResultStatus.RUNNING,
            enqueued_at=None,
            started_at=now,
            finished_at=None,
            last_attempted_at=now,
            args=payload.args,
            kwargs=payload.kwargs,
            backend=payload.backend,
            errors=[],
            worker_ids=[*names, f"{socket.gethostname()}.{os.getpid()}"],
        )
        task_started.send(sender=type(backend), task_result=result)
        return _ended(call, result, type(backend))


def _ended(call: SyncOperationCall, result: TaskResult, sender: type[PopStreamBackend]) -> Any:  # noqa: ANN401
    task = result.task
    context = [TaskContext(task_result=result)] if task.takes_context else []
    try:
        returned = task.call(*context, *result.args, **result.kwargs)
    except BaseException as error:
        detail = error_detail(error, "".join(format_exception(error)))
        call.note(str(error) or type(error).__name__, code=ERROR_CODE, detail={**detail})
        result.errors.append(
            TaskError(exception_class_path=detail["exception"], traceback=detail["traceback"])
        )
        _finish(result, TaskResultStatus.FAILED, sender)
        raise
    object.__setattr__(result, "_return_value", returned)
    _finish(result, TaskResultStatus.SUCCESSFUL, sender)
    return returned


def _finish(
    result: TaskResult, status: TaskResultStatus, sender: type[PopStreamBackend]
) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    task_finished.send(sender=sender, task_result=result)


def _backend(alias: str) -> PopStreamBackend:
    try:
        found = task_backends[alias]
    except ImproperlyConfigured as error:
        raise FinalError(str(error)) from None
    if not isinstance(found, PopStreamBackend):
        msg = f"TASKS[{alias!r}] is no PopStreamBackend here; give the worker the same setting"
        raise FinalError(msg)
    return found


@contextmanager
def _connections() -> Iterator[None]:
    reset_queries()
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@contextmanager
def _running(call: SyncOperationCall) -> Iterator[None]:
    token = _operation.set(call)
    try:
        with on_behalf_of(call.customer_id):
            yield
    finally:
        _operation.reset(token)
