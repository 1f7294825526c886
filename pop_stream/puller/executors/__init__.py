"""Executors: operations run where the resources are, and a puller only watches them.

    from pop_stream.puller import Handlers
    from pop_stream.puller.executors import add_executor
    from pop_stream.puller.executors.kubernetes import JobRules, KubernetesExecutor

    handlers = Handlers()
    add_executor(handlers, "kubernetes.job", KubernetesExecutor(JobRules(images=["acme/*"])))

`port.Executor` is what a place has to be able to do: submit, status, cancel, the log's tail,
list, delete. There are three, each of which passes `tests/contract/test_executors.py`, as the
fake of the tests does: `kubernetes.KubernetesExecutor` (Jobs), `containers.ContainerExecutor`
(Docker's or Podman's engine on this machine) and `ray_jobs.RayExecutor` (jobs and tasks).

`handler.ExecutorHandler` drives all of them. What it submits is a *run*, named by agenda,
operation, attempt and try, so to submit it twice makes one. A run is in these states. *Queued*:
a queue of the executor's own holds it back, for as long as that takes. *Pending*: it is about
to start; for a bounded time, a shorter one if the reason seldom goes away, such as an image
that does not exist; then it is cancelled and the attempt fails with the reason. *Running*: its
program's own account of its progress is read from its log. *Ended*: what it left is the result.

The lease is renewed as for any handler. If the puller dies or stops, the run goes on; the next
attempt of the same run of the agenda finds it, running or succeeded, and goes on with it. A
rerun begins anew. If the agenda is cancelled or expires, or the operation's time is up, the run
is cancelled. `orphans.OrphanCollector` ends what nobody was there to cancel. An executor that
is away is waited for, for a bounded time.

A run is charged for the seconds its program took, times its size in workers, which follows from
the resources it was given and not from what the customer says. One that was pending and never
started is charged the time for which it was; what waits in a queue of the executor's own, or
starts in the end, is not charged for its wait. How many runs an executor holds is the insight's
`max_in_flight`; `capacity` lowers it by reports of health while the executor holds fewer.

Start with `handler.ExecutorHandler.__call__`.
"""

from datetime import timedelta
from typing import TypeVar

from pop_stream.puller.executors.capacity import report_capacity
from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.orphans import ApiAgendaStates, OrphanCollector
from pop_stream.puller.executors.port import Executor
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.settings import Settings

__all__ = ["Executor", "ExecutorHandler", "RunLimits", "add_executor", "report_capacity"]

S = TypeVar("S")


def add_executor(
    handlers: Handlers,
    operation_type: str,
    executor: Executor[S],
    *,
    limits: RunLimits | None = None,
    settings: Settings | None = None,
    keep_ended: timedelta = timedelta(hours=24),
) -> ExecutorHandler[S]:
    """Have an executor run operations of a type, and end its orphans while a puller serves.

    Args:
        handlers: Where it is registered.
        operation_type: Such as `kubernetes.job`.
        executor: Where runs are; one for each operation type.
        limits: How long the handler waits for it.
        settings: Where the API is that says which agendas are over; read from POP_ variables if
            not given.
        keep_ended: How long a run that has ended is kept.

    Raises:
        ValueError: If the type has a handler already.
    """
    handler = ExecutorHandler(executor, limits)
    handlers.handler(operation_type)(handler)
    agendas = ApiAgendaStates(settings or Settings())
    collector = OrphanCollector(
        executor,
        agendas,
        lambda: handler.watched,
        keep_ended=keep_ended,
    )
    handlers.beside(collector.run)
    handlers.on_stop(agendas.close)
    handlers.on_stop(executor.close)
    return handler
