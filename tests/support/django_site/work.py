"""The site's tasks."""

import asyncio
import threading

from django.contrib.contenttypes.models import ContentType
from django.db import connection

from pop_stream.integrations.django import current_operation
from pop_stream.integrations.django.framework import Task
from pop_stream.puller import FinalError

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

RUNS = []
"""What ran, in order."""


@task()
def repeat(*args, **kwargs):
    RUNS.append((args, kwargs))
    return {"args": args, "kwargs": kwargs}


@task()
async def repeat_later(text):
    await asyncio.sleep(0)
    return text.upper()


@task()
def fail(final):
    if final:
        msg = "no letter"
        raise FinalError(msg)
    return 1 / 0


@task(takes_context=True)
def fail_first(context):
    if context.attempt == 1:
        raise LookupError("x" * 5_000)
    return context.task_result.attempts


@task()
def count_rows():
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from django_content_type")
        cursor.fetchone()
    return connection.connection is not None


@task()
def has_open_connection():
    return connection.connection is not None


@task()
def enqueue_another():
    call = current_operation()
    call.report(50, "half way")
    return [call.customer_id, repeat.enqueue("inner").id, threading.current_thread().name]


def no_task():
    """A function like any other."""


assert isinstance(repeat, Task)
assert ContentType
