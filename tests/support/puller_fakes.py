"""Agendas as a puller takes them, and what it takes to run one without Kafka."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec
from fakes import ManualClock

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.puller.execution.agenda_run import AgendaRun, PriorResults
from pop_stream.puller.handlers.invocation import RunContext
from pop_stream.puller.handlers.registry import Handlers

AT = datetime(2026, 1, 1, tzinfo=UTC)


def emitted(
    *operations: Mapping[str, object],
    agenda_id: str = "a1",
    attempt: int = 1,
    lease_ms: int = 60_000,
    **changes: object,
) -> EmittedAgenda:
    agenda = {
        "id": agenda_id,
        "customer_id": "acme",
        "operations": operations or [{"name": "only", "type": "noop"}],
    }
    one = EmittedAgenda(
        agenda_id=agenda_id,
        insight_id="media",
        customer_id="acme",
        attempt=attempt,
        accepted_at=AT,
        emitted_at=AT,
        lease_ms=lease_ms,
        agenda=msgspec.Raw(json.dumps(agenda).encode()),
    )
    return msgspec.structs.replace(one, **changes)


def run_context(handlers: Handlers, threads: Executor) -> RunContext:
    return RunContext(handlers, threads, ManualClock(AT))


def run_of(
    handlers: Handlers,
    *operations: Mapping[str, object],
    threads: Executor | None = None,
    earlier: PriorResults | None = None,
    **fields: object,
) -> AgendaRun:
    one = emitted(*operations)
    tools = run_context(handlers, threads or ThreadPoolExecutor(1))
    agenda = json.loads(bytes(one.agenda)) | fields
    return AgendaRun(one, parse_agenda(json.dumps(agenda).encode()), tools, earlier)


@contextmanager
def pool(size: int = 4):
    threads = ThreadPoolExecutor(size)
    try:
        yield threads
    finally:
        threads.shutdown(wait=True)


def states(run: AgendaRun) -> dict[str, str]:
    return {one.name: one.state for one in run.take_changes().operations}


def node(
    name: str, *after: str, kind: str = "work", payload: object = None
) -> dict[str, object]:
    """One operation of type `kind`."""
    depends: Sequence[str] = list(after)
    return {"name": name, "type": kind, "payload": payload, "depends_on": depends}
