"""Celery's tasks on pop_stream: `apply_async` submits an agenda, and a puller runs the task.

    app = Celery("shop", task_cls="pop_stream.integrations.celery:PopStreamTask")
    app.conf.pop_stream_customer = "shop"
    handlers = celery_handlers(app)

`delay`, `apply_async`, chains, links, retries and beat go on working: what would have been a
message for the broker is the payload of an agenda's only operation, of the type `celery-task`,
under the task's id. `pop-stream pull --handlers shop:handlers` runs such operations by Celery's
own tracer, so signals, `on_failure`, the result backend and callbacks are as before. No broker
is needed but by what is not routed here: `app.send_task` by name, `app.control`, events.

A retry ends the attempt without failing, and the scheduler starts the next when it is due. A
failure is final, as in Celery; a worker that dies is followed by the next attempt.

Start with `PopStreamTask.apply_async`, then `run_message`.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

import msgspec
from celery import Celery, Task, states
from celery.app.trace import build_tracer
from celery.utils import uuid
from kombu.exceptions import EncodeError
from kombu.serialization import dumps, loads
from kombu.utils.functional import maybe_list

from pop_stream.clock import WallClock
from pop_stream.integrations.client_thread import ClientThread, client_thread
from pop_stream.integrations.tasks import error_detail, read_task
from pop_stream.model.agenda import DEFAULT_PRIORITY, MOST_URGENT
from pop_stream.puller import (
    FinalError,
    Handlers,
    NotYet,
    RetryableError,
    SyncOperationCall,
    escaped,
)
from pop_stream.settings import Settings

TASK_TYPE: Final = "celery-task"
"""The type of operations that are tasks."""

ERROR_CODE: Final = "celery-task.error"
"""Of the diagnostic that a task leaves that raised."""

MOST_URGENT_OF_CELERY: Final = 9
LEAST_RETRY_S: Final = 1.0
"""A retry that is due sooner is so by then."""

_JSON: Final = "application/json"
_MESSAGE_OPTIONS: Final = frozenset(
    {
        *("countdown", "eta", "expires", "retries", "time_limit", "soft_time_limit"),
        *("root_id", "parent_id", "group_id", "group_index", "chord", "chain", "shadow"),
        *("ignore_result", "replaced_task_nesting"),
    }
)
"""Options of `apply_async` that a message carries."""

_customer: ContextVar[str | None] = ContextVar("pop_stream_celery_customer", default=None)


class CeleryMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a task's operation: the message that Celery would have sent.

    Attributes:
        task: The task's name.
        queue: To which it was routed; also the agenda's param `queue`.
        headers: Of the message, version 2 of Celery's protocol.
        body: Args, kwargs, and what follows the task, as kombu's JSON.
    """

    task: str
    queue: str
    headers: dict[str, Any]
    body: str


class PopStreamTask(Task):
    """A task that is enqueued as an agenda; the base of all tasks of an app, or of some.

    The app's configuration has `pop_stream_url` and `pop_stream_token` (`POP_API_URL` and
    `POP_API_TOKEN` if not set), and `pop_stream_customer`: whose share tasks count against, an
    id, or a function of task, args and kwargs that says it.
    """

    abstract = True

    def apply_async(  # noqa: PLR0913, PLR0917  # as Celery calls it
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        producer: object = None,
        link: Any = None,  # noqa: ANN401  # signatures
        link_error: Any = None,  # noqa: ANN401
        shadow: str | None = None,
        *,
        customer: str | None = None,
        **options: Any,  # noqa: ANN401  # as Celery calls it
    ) -> Any:  # noqa: ANN401
        """Submit the task; returns once Kafka has acknowledged it.

        Args:
            args: As Celery takes them; JSON, as kombu has it.
            kwargs: Likewise.
            task_id: The agenda's id; a second task with it is not enqueued.
            producer: Is for a broker, and not used.
            link: Run with the result.
            link_error: Run with the id, if the task has failed.
            shadow: The agenda's title, in the place of the task's name.
            customer: Whose share it counts against; else that of the task that runs here, else
                what the app's configuration says.
            options: `countdown`, `eta`, `expires`, `priority` (9 is the most urgent), `queue`,
                `time_limit` and what canvas adds. Others are for a broker, and change nothing.

        Raises:
            ValueError: If something is no JSON, or there is no customer.
            ApiError: If the API does not take it.
        """
        app = self.app
        if app.conf.task_always_eager:
            return super().apply_async(
                args, kwargs, task_id, None, link, link_error, shadow, **options
            )
        task_id = task_id or uuid()
        if self.request.id == task_id and not self.request.called_directly:
            _check_retry(self, args, kwargs)
            return self.AsyncResult(task_id)  # `run_message` has the attempt wait
        if self.typing:
            self.__header__(*(args or ()), **(kwargs or {}))
        options = {"priority": self.priority, **self._get_exec_options(), **options}
        options |= {"link": link, "link_error": link_error, "shadow": shadow}
        message = _message(self, task_id, args, kwargs, options)
        chosen = customer or _customer.get() or _configured_customer(self, args, kwargs)
        agenda = agenda_of(message, customer_id=chosen, priority=options["priority"])
        _client(app).call(lambda client: client.submit(agenda))
        return self.AsyncResult(task_id)


def agenda_of(
    message: CeleryMessage, *, customer_id: str, priority: int | None
) -> dict[str, Any]:
    """The agenda that stands for a message, as it is submitted.

    Args:
        message: With the task's id, which is the agenda's.
        customer_id: Whose share it counts against.
        priority: Of Celery: 9 is the most urgent, 0 the least; None is in the middle.
    """
    headers = message.headers
    operation = {
        "name": "task",
        "type": TASK_TYPE,
        # What a caller passes is data: nothing in it is read as a reference.
        "payload": escaped(msgspec.to_builtins(message)),
    }
    if (limit_s := headers["timelimit"][0]) is not None:
        operation["timeout_s"] = limit_s
    urgent = DEFAULT_PRIORITY if priority is None else MOST_URGENT_OF_CELERY - priority
    agenda = {
        "id": headers["id"],
        "customer_id": customer_id,
        "title": headers["shadow"] or message.task,
        "params": {"queue": message.queue},
        "priority": max(MOST_URGENT, urgent),
        "operations": [operation],
    }
    if headers["eta"] is not None:
        agenda["not_before"] = headers["eta"]
    if headers["expires"] is not None:
        agenda["expires_at"] = headers["expires"]
    return agenda


def celery_handlers(app: Celery) -> Handlers:
    """The handlers of a puller that runs the app's tasks; imports the modules with them."""
    app.loader.import_default_modules()
    app.finalize()
    handlers = Handlers()
    tracer = cache(partial(_tracer, app))
    handlers.handler(TASK_TYPE)(lambda call: run_message(app, tracer, call))
    return handlers


def run_message(
    app: Celery, tracer: Callable[[str], Callable[..., Any]], call: SyncOperationCall
) -> object:
    """Run a task in a thread of the puller; what it returns is the operation's result.

    Args:
        app: Has the task.
        tracer: Makes Celery's tracer of a task by its name.
        call: The operation.

    Raises:
        NotYet: If the task is to be retried.
        FinalError: If it failed, was rejected, is not known here, or has another's id.
        RetryableError: If it was rejected to be requeued.
    """
    message = read_task(
        call.payload,
        CeleryMessage,
        task_type=TASK_TYPE,
        written_by="PopStreamTask.apply_async",
    )
    if message.task not in app.tasks:
        msg = (
            f"task {message.task!r} is not known here; import its module, by `include` or "
            "`imports` of the app"
        )
        raise FinalError(msg)
    task_id = message.headers.get("id")
    if task_id != call.agenda_id.partition("@")[0]:
        # Another's result would be overwritten in the backend.
        msg = f"headers.id is {task_id!r}: a task has the id of its agenda"
        raise FinalError(msg)
    args, kwargs, embed = loads(message.body, _JSON, "utf-8", accept=[_JSON])
    request = {
        **message.headers,
        **embed,
        # Attempts that ended with a retry, and those of workers that died.
        "retries": call.attempt - 1,
        "hostname": f"{os.getpid()}@{socket.gethostname()}",
        "delivery_info": {"exchange": "", "routing_key": message.queue, "redelivered": False},
        "is_eager": False,
    }
    with _on_behalf_of(call.customer_id):
        traced = tracer(message.task)(task_id, args, kwargs, request)
    return _outcome(call, traced)


def _outcome(call: SyncOperationCall, traced: Any) -> object:  # noqa: ANN401
    if traced.info is None:
        try:
            return json.loads(dumps(traced.retval, "json")[2])
        except (EncodeError, TypeError, ValueError):
            return traced.retstr  # the task succeeded, and its own backend may have the value
    error = traced.info.retval
    if traced.info.state == states.RETRY:
        raise NotYet(_seconds(error.when), str(error))
    if traced.info.state == states.IGNORED:
        return None
    if traced.info.state == states.REJECTED and getattr(error, "requeue", False):
        raise RetryableError(str(error))
    call.note(
        str(error), code=ERROR_CODE, detail={**error_detail(error, traced.retval.traceback)}
    )
    msg = f"{type(error).__name__}: {error}"
    raise FinalError(msg) from None


def _seconds(when: object) -> float:
    if isinstance(when, datetime):
        at = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        when = (at - WallClock().now()).total_seconds()
    return max(float(when or 0), LEAST_RETRY_S)  # type: ignore[arg-type]  # a number by now


def _tracer(app: Celery, name: str) -> Callable[..., Any]:
    task = app.tasks[name]
    tracer: Callable[..., Any] = build_tracer(name, task, app=app)
    return tracer


def _message(
    task: PopStreamTask,
    task_id: str,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> CeleryMessage:
    app = task.app
    routed = app.amqp.router.route(dict(options), task.name, args, kwargs)
    queue = routed.get("queue")
    known = {key: value for key, value in options.items() if key in _MESSAGE_OPTIONS}
    parent = app.current_worker_task
    if parent is not None:
        known["root_id"] = known.get("root_id") or parent.request.root_id or parent.request.id
        known["parent_id"] = known.get("parent_id") or parent.request.id
    made = app.amqp.as_task_v2(
        task_id,
        task.name,
        args,
        kwargs,
        callbacks=maybe_list(options.get("link")),
        errbacks=maybe_list(options.get("link_error")),
        **{"ignore_result": task.ignore_result, **known},
    )
    try:
        body = dumps(made.body, "json")[2]
        headers = json.loads(dumps(made.headers, "json")[2])
    except (EncodeError, TypeError) as error:
        msg = f"task {task.name!r}: arguments must be JSON, as kombu has it: {error}"
        raise ValueError(msg) from None
    named = getattr(queue, "name", queue) or app.conf.task_default_queue
    return CeleryMessage(task=task.name, queue=named, headers=headers, body=body)


def _configured_customer(
    task: PopStreamTask, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> str:
    configured = task.app.conf.get("pop_stream_customer")
    if callable(configured):
        configured = configured(task, list(args or ()), dict(kwargs or {}))
    if not configured:
        msg = (
            "no customer: set pop_stream_customer in the app's configuration to an id, or to a "
            "function of task, args and kwargs; or call apply_async(..., customer=...)"
        )
        raise ValueError(msg)
    return str(configured)


def _check_retry(
    task: PopStreamTask, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> None:
    request = task.request
    if list(args or ()) == list(request.args) and dict(kwargs or {}) == dict(request.kwargs):
        return
    msg = (
        f"task {task.name!r}: a retry runs with the same arguments; enqueue another task for "
        "other ones"
    )
    raise ValueError(msg)


def _client(app: Celery) -> ClientThread:
    settings = Settings()
    shown = settings.api_token.get_secret_value() if settings.api_token else None
    url = app.conf.get("pop_stream_url") or settings.api_url
    return client_thread(url, app.conf.get("pop_stream_token") or shown)


@contextmanager
def _on_behalf_of(customer_id: str) -> Iterator[None]:
    token = _customer.set(customer_id)
    try:
        yield
    finally:
        _customer.reset(token)
