"""The backend: a task that is enqueued becomes an agenda, and its result is read from there."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
from django.db import transaction
from django.utils import timezone

from pop_stream.api_models.agendas import AgendaProgress, AgendaSummary, OperationView
from pop_stream.client import ApiNotFoundError, Client
from pop_stream.integrations.client_thread import ClientThread, client_thread
from pop_stream.integrations.django.framework import (
    BaseTaskBackend,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from pop_stream.integrations.django.options import BackendOptions
from pop_stream.integrations.django.task_payload import (
    TASK_TYPE,
    TaskPayload,
    agenda_of,
    django_priority,
    task_at,
)
from pop_stream.policy.lifecycle.states import State

ERROR_CODE: Final = "django-task.error"
"""Of the diagnostic that a worker leaves of a task that raised."""

_KNOWN_AFTER_S: Final = 2.0
"""A result that is not there is looked for again for so long: summaries follow their events."""

_LOOK_S: Final = 0.1

_STATUS: Final = {
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.EXPIRED: TaskResultStatus.FAILED,
    State.REFUSED: TaskResultStatus.FAILED,
}
"""All other states are READY: to be run, or to be run again."""

T = TypeVar("T")

_customer: ContextVar[str | None] = ContextVar("pop_stream_customer", default=None)


class AgendaEndedError(Exception):
    """A task ended without an exception of its own: cancelled, expired, refused, or lost."""


@contextmanager
def on_behalf_of(customer_id: str) -> Iterator[None]:
    """Let tasks that are enqueued in the block count against this customer's share.

    It wins over the options of the backend. Put a request's tenant there in a middleware; a
    worker puts the customer of the running task there, for tasks that it enqueues.
    """
    token = _customer.set(customer_id)
    try:
        yield
    finally:
        _customer.reset(token)


class PopStreamBackend(BaseTaskBackend):
    """Enqueues tasks as agendas. `BackendOptions` has its options.

    Raises:
        ImproperlyConfigured: If the options are of no use.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.settings = BackendOptions.read(alias, self.options)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Submit the task, by default once the transaction around it is committed.

        The result has `enqueued_at` from when it is submitted. A task that is not committed
        is never sent; one whose process dies between the commit and the sending is lost.

        Raises:
            ApiError: If the API does not take it. If that happens after a commit, it is raised
                from where the transaction is left, and the task is not enqueued.
        """
        result, agenda = self._prepared(task, args, kwargs)

        def send() -> None:
            self._client().call(lambda client: client.submit(agenda))
            self._sent(result)

        if self.settings.on_commit:
            transaction.on_commit(send, using=self.settings.database)
        else:
            send()
        return result

    async def aenqueue(
        self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult:
        """Submit the task as `enqueue` does; the event loop goes on meanwhile."""
        if self.settings.on_commit:
            # A transaction belongs to the thread in which Django's synchronous code runs.
            return await super().aenqueue(task, args, kwargs)
        result, agenda = self._prepared(task, args, kwargs)
        await self._client().acall(lambda client: client.submit(agenda))
        self._sent(result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """What is known of a task now; one that was just enqueued is waited for, two seconds.

        Raises:
            TaskResultDoesNotExist: If there is no task with this id.
            ApiError: If there is no answer.
        """
        return self._result(result_id, *self._client().call(partial(_read, result_id)))

    async def aget_result(self, result_id: str) -> TaskResult:
        """What `get_result` returns; the event loop goes on meanwhile."""
        return self._result(result_id, *await self._client().acall(partial(_read, result_id)))

    def _client(self) -> ClientThread:
        return client_thread(self.settings.url, self.settings.token)

    def _prepared(
        self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[TaskResult, dict[str, Any]]:
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id=uuid4().hex,
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        agenda = agenda_of(
            result,
            customer_id=self._customer_of(result),
            max_attempts=self.settings.max_attempts,
        )
        return result, agenda

    def _customer_of(self, result: TaskResult) -> str | None:
        chosen = _customer.get()
        if chosen is None and self.settings.customer_from is not None:
            chosen = self.settings.customer_from(result.task, result.args, result.kwargs)
        return chosen or self.settings.customer

    def _sent(self, result: TaskResult) -> None:
        _set(result, enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)

    def _result(
        self, result_id: str, summary: AgendaSummary, progress: AgendaProgress
    ) -> TaskResult:
        operation = progress.operations[0]
        if operation.type != TASK_TYPE:
            msg = f"{result_id!r} is an agenda, and no task of Django"
            raise TaskResultDoesNotExist(msg)
        payload = TaskPayload.of_agenda(bytes(summary.agenda))
        task = task_at(payload.task, self.settings.packages).using(
            priority=django_priority(summary.priority),
            queue_name=payload.queue,
            backend=self.alias,
        )
        begun = [one.started_at for one in summary.history] + [summary.started_at]
        started = [one for one in begun if one is not None]
        result = TaskResult(
            task=task,
            id=result_id,
            status=_STATUS.get(summary.state, TaskResultStatus.READY),
            enqueued_at=summary.accepted_at,
            started_at=min(started, default=None),
            finished_at=summary.ended_at if summary.state.is_terminal else None,
            last_attempted_at=max(started, default=None),
            args=payload.args,
            kwargs=payload.kwargs,
            backend=self.alias,
            errors=_errors(summary, operation),
            worker_ids=_workers(summary),
        )
        if summary.state is State.SUCCEEDED:
            _set(result, _return_value=msgspec.json.decode(operation.result))
        return result


async def _read(result_id: str, client: Client) -> tuple[AgendaSummary, AgendaProgress]:
    looks = int(_KNOWN_AFTER_S / _LOOK_S)
    for left in reversed(range(looks)):
        try:
            # In this order: a state that is an end comes with the end of the operation.
            return await client.agenda(result_id), await client.progress(result_id)
        except ApiNotFoundError:
            if not left:
                break
            await asyncio.sleep(_LOOK_S)
    msg = f"there is no task with the id {result_id!r}"
    raise TaskResultDoesNotExist(msg)


def _errors(summary: AgendaSummary, operation: OperationView) -> list[TaskError]:
    before = operation.prior.diagnostics if operation.prior is not None else ()
    raised = [
        TaskError(
            exception_class_path=one.detail["exception"], traceback=one.detail["traceback"]
        )
        for one in (*before, *operation.diagnostics)
        if one.code == ERROR_CODE and isinstance(one.detail, Mapping)
    ]
    if raised or _STATUS.get(summary.state) != TaskResultStatus.FAILED:
        return raised
    path = f"{AgendaEndedError.__module__}.{AgendaEndedError.__qualname__}"
    why = summary.message or "; ".join(one.message for one in summary.issues)
    ended = f"{summary.state.value}: {why}"
    return [TaskError(exception_class_path=path, traceback=ended)]


def _workers(summary: AgendaSummary) -> list[str]:
    named = [one.puller_id for one in summary.history] + [summary.puller_id]
    return [one for one in named if one]


def _set(result: TaskResult, **changes: Any) -> None:  # noqa: ANN401  # fields of any type
    # A result is a frozen dataclass, which Django's own backends change like this.
    for name, value in changes.items():
        object.__setattr__(result, name, value)
