"""Django's tasks on pop_stream: a backend that enqueues, and a worker that runs.

    TASKS = {
        "default": {
            "BACKEND": "pop_stream.integrations.django.PopStreamBackend",
            "OPTIONS": {"URL": "http://127.0.0.1:8080", "CUSTOMER": "shop"},
        }
    }
    INSTALLED_APPS = [..., "pop_stream.integrations.django"]

An enqueued task is an agenda of one operation of the type `django-task`, with the id of the
task's result. `manage.py pop_stream_worker` is a puller that runs such operations. Tasks are
those of Django 6.0 (`django.tasks`), or of the package `django-tasks` where Django is older.

An enqueued task is in one of these states. *Registered*: the transaction it was enqueued in
is not committed; a rollback drops it, and a crash between commit and sending loses it.
*Accepted*: Kafka has it, and it runs at least once. A task may run twice after a crash of its
worker, as any operation.

Start with `backend.PopStreamBackend.enqueue`, then `worker.run_task`.
"""

from pop_stream.integrations.django.backend import (
    AgendaEndedError,
    PopStreamBackend,
    on_behalf_of,
)
from pop_stream.integrations.django.worker import current_operation, task_handlers

__all__ = [
    "AgendaEndedError",
    "PopStreamBackend",
    "current_operation",
    "on_behalf_of",
    "task_handlers",
]
