"""A task as an agenda: what of it is carried where, and how it is found again by its path."""

import json
from importlib import import_module
from typing import Any, Final, Self

import msgspec
from django.apps import apps
from django.utils import timezone

from pop_stream.integrations.django.framework import Task, TaskResult
from pop_stream.integrations.tasks import read_task
from pop_stream.model import references
from pop_stream.model.agenda import DEFAULT_PRIORITY
from pop_stream.puller import FinalError, escaped

TASK_TYPE: Final = "django-task"
"""The type of operations that are tasks."""

_PRIORITY_STEP: Final = 25
"""Django's 100, the most urgent, to -100 are nine steps here, of which 1 is the most urgent."""

_TITLE_LENGTH: Final = 500


class TaskPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a task's operation.

    Attributes:
        task: Dotted path of the task.
        backend: Alias of the backend that enqueued it.
        queue: Its queue, also the agenda's param `queue`.
    """

    task: str
    backend: str
    queue: str
    args: list[Any]
    kwargs: dict[str, Any]

    @classmethod
    def read(cls, payload: object) -> Self:
        """The payload as a handler is given it.

        Raises:
            FinalError: If it is none.
        """
        return read_task(
            payload, cls, task_type=TASK_TYPE, written_by="PopStreamBackend.enqueue"
        )

    @classmethod
    def of_agenda(cls, agenda: bytes) -> Self:
        """The payload in an agenda as it was accepted.

        Raises:
            FinalError: If it is none.
        """
        (operation, *_) = json.loads(agenda)["operations"]
        return cls.read(references.resolve(operation.get("payload"), {}))


def agenda_of(
    result: TaskResult, *, customer_id: str | None, max_attempts: int | None
) -> dict[str, Any]:
    """The agenda that stands for an enqueued task, as it is submitted.

    It has the id of the task's result, so it is accepted once however often it is sent.

    Args:
        result: Of the task, with what it is called with.
        customer_id: Whose share it counts against.
        max_attempts: None leaves it to the insight.
    """
    task = result.task
    payload = TaskPayload(
        task=task.module_path,
        backend=result.backend,
        queue=task.queue_name,
        args=result.args,
        kwargs=result.kwargs,
    )
    operation = {
        "name": "task",
        "type": TASK_TYPE,
        # What a caller passes is data: nothing in it is read as a reference.
        "payload": escaped(msgspec.to_builtins(payload)),
    }
    agenda = {
        "id": result.id,
        "customer_id": customer_id,
        "title": task.module_path[-_TITLE_LENGTH:],
        "params": {"queue": task.queue_name},
        "priority": DEFAULT_PRIORITY - round(task.priority / _PRIORITY_STEP),
        "operations": [operation],
    }
    if (at := task.run_after) is not None:
        aware = at if timezone.is_aware(at) else timezone.make_aware(at)
        agenda["not_before"] = aware.isoformat()
    if max_attempts is not None:
        agenda["max_attempts"] = max_attempts
    return agenda


def django_priority(priority: int) -> int:
    """The middle of the tasks' priorities that an agenda's stands for."""
    return (DEFAULT_PRIORITY - priority) * _PRIORITY_STEP


def task_at(path: str, packages: tuple[str, ...] = ()) -> Task:
    """The task with a dotted path.

    Whoever may submit names the path, so only what belongs to an installed app, or to one of
    the packages, is imported.

    Raises:
        FinalError: If there is none, or it may not be imported.
    """
    module, _, name = path.rpartition(".")
    if not _is_known(module, packages):
        msg = (
            f"task = {path!r}: {module!r} belongs to no installed app; add its app to "
            "INSTALLED_APPS, or its package to PACKAGES in the OPTIONS of the backend"
        )
        raise FinalError(msg)
    try:
        found = getattr(import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        msg = f"task = {path!r}: {error}; deploy the worker with the code that enqueues"
        raise FinalError(msg) from None
    if not isinstance(found, Task):
        msg = f"task = {path!r}: is a {type(found).__name__}; decorate it with @task()"
        raise FinalError(msg)
    return found


def _is_known(module: str, packages: tuple[str, ...]) -> bool:
    if apps.get_containing_app_config(module) is not None:
        return True
    return any(f"{module}.".startswith(f"{one}.") for one in packages)
