"""Runners of a puller in virtual time: real handlers, whose durations are stated."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Final

import msgspec

from pop_stream.api.agendas.views import progress_view
from pop_stream.model.agenda import parse_agenda
from pop_stream.model.appended_operations import all_operations
from pop_stream.model.events.lifecycle import AgendaClaimed, LifecycleEvent
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.policy.completion_token import CompletionClaims, CompletionTokens
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.puller.execution.agenda_run import AgendaRun, PriorResults
from pop_stream.puller.execution.failure import Deferral, Failure
from pop_stream.puller.execution.prior_results import prior_results_from
from pop_stream.puller.handlers.errors import HandOverTimedOutError
from pop_stream.puller.handlers.invocation import AttemptContext, RunContext
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.puller.reporting.reporter import AttemptChanges, AttemptOutcome, outcome_events

PULLER_ID: Final = "in-memory"

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When virtual time begins."""

COMPLETION_TOKENS: Final = CompletionTokens([b"in memory"])

DEFAULT_SECONDS: Final = 1.0
"""How long an operation takes whose type is not named."""


class VirtualClock:
    """A clock that stands still until it is moved.

    Args:
        start: Where it stands at first.
    """

    def __init__(self, start: datetime = START) -> None:
        # A float: an instant rounded down to microseconds would never reach one it is moved to.
        self._now_s = start.timestamp()

    def now(self) -> datetime:
        """The present instant."""
        return datetime.fromtimestamp(self._now_s, UTC)

    @property
    def now_s(self) -> float:
        """The same in seconds since the epoch."""
        return self._now_s

    def move_to(self, at_s: float) -> None:
        """Move on to an instant, in seconds since the epoch; never back."""
        self._now_s = max(self._now_s, at_s)


class InMemoryTokens:
    """Makes tokens to complete operations with, as the API does for a puller.

    Args:
        clock: For when their time is over.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._made = count(1)

    async def issue(self, attempt: AttemptContext, operation: str, within_s: float) -> str:
        """A token for an operation of a running attempt, another one each time."""
        # The clock stands still, and no two are to be alike.
        issued_at = self._clock.now() + timedelta(microseconds=next(self._made))
        return COMPLETION_TOKENS.sign(
            CompletionClaims(
                attempt.agenda_id,
                attempt.insight_id,
                attempt.attempt,
                attempt.accepted_at,
                operation,
                issued_at,
                issued_at + timedelta(seconds=within_s),
            )
        )


@dataclass(slots=True, eq=False)
class _Attempt:
    """An attempt that occupies a runner.

    Attributes:
        task: The call of its handlers; done long before the runner is free again.
        is_stopped: It was to stop, and its end is reported already.
    """

    emitted: EmittedAgenda
    started_s: float
    changes: AttemptChanges = field(default_factory=AttemptChanges)
    outcome: Failure | Deferral | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False


class InMemoryRunners:
    """Takes agendas in the order of emission, and runs their operations.

    Args:
        handlers: By operation type.
        runners: Agendas at a time, at least 1.
        takes: Seconds that an operation of a type takes; one second where none is named.
        clock: Moved by whoever drives the runners.
        summary_of: The present summary of an agenda, for what earlier attempts left.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        runners: int,
        takes: Mapping[str, float],
        clock: VirtualClock,
        summary_of: Callable[[str], Summary],
    ) -> None:
        if runners < 1:
            msg = f"runners = {runners}: at least one agenda must run at a time"
            raise ValueError(msg)
        self._size = runners
        self._takes = takes
        self._clock = clock
        self._summary_of = summary_of
        self._threads = ThreadPoolExecutor(runners, thread_name_prefix="operation")
        tokens = InMemoryTokens(clock)
        self._run_context = RunContext(handlers, self._threads, clock, completion_tokens=tokens)
        self._topic: deque[EmittedAgenda] = deque()
        self._active: dict[str, _Attempt] = {}
        self._ends: list[tuple[float, int, _Attempt]] = []
        self._number = 0

    def close(self) -> None:
        """End the threads of handlers that are not async."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def next_end_s(self) -> float | None:
        """When a runner is free next; None if all are."""
        return self._ends[0][0] if self._ends else None

    def deliver(self, emitted: EmittedAgenda) -> None:
        """Put an agenda behind those that wait for a runner."""
        self._topic.append(emitted)

    def claim(self) -> list[LifecycleEvent]:
        """Begin what there are runners for; the claims, in order."""
        claims: list[LifecycleEvent] = []
        while self._topic and len(self._active) < self._size:
            emitted = self._topic.popleft()
            attempt = _Attempt(emitted, self._clock.now_s)
            self._active[emitted.agenda_id] = attempt
            attempt.task = asyncio.create_task(self._run(attempt))
            claims.append(
                AgendaClaimed(
                    agenda_id=emitted.agenda_id,
                    at=self._clock.now(),
                    insight_id=emitted.insight_id,
                    attempt=emitted.attempt,
                    puller_id=PULLER_ID,
                    lease_ms=emitted.lease_ms,
                    idle=self._size - len(self._active),
                    deferrals=emitted.deferrals,
                )
            )
        return claims

    async def wait(self) -> None:
        """Wait for the handlers that were called; those of one instant run concurrently."""
        tasks = [one.task for one in self._active.values() if one.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        for attempt in self._active.values():
            task, attempt.task = attempt.task, None
            if task is None:
                continue
            if not task.cancelled():
                task.result()
            self._number += 1
            ends_s = attempt.started_s + sum(attempt.spent_s.values())
            heappush(self._ends, (ends_s, self._number, attempt))

    def end_due(self) -> list[LifecycleEvent]:
        """The last events of what ends now, in order."""
        events: list[LifecycleEvent] = []
        while self._ends and self._ends[0][0] <= self._clock.now_s:
            attempt = heappop(self._ends)[2]
            if not attempt.is_stopped:
                events += self._end(attempt)
        return events

    def stop(self, agenda_id: str, attempt_number: int) -> list[LifecycleEvent]:
        """Stop an attempt, on its way or running; its last events, none if there is no such."""
        for emitted in [*self._topic]:
            if (emitted.agenda_id, emitted.attempt) == (agenda_id, attempt_number):
                self._topic.remove(emitted)
                return self._stopped(_Attempt(emitted, self._clock.now_s))
        attempt = self._active.get(agenda_id)
        if attempt is None or attempt.emitted.attempt > attempt_number:
            return []
        attempt.is_stopped = True
        if attempt.task is not None:
            attempt.task.cancel()
        del self._active[agenda_id]
        return self._stopped(attempt)

    def _stopped(self, attempt: _Attempt) -> list[LifecycleEvent]:
        at = self._clock.now()
        end = AttemptOutcome(at, is_stopped=True)
        return outcome_events(attempt.emitted, attempt.changes, end)

    def _end(self, attempt: _Attempt) -> list[LifecycleEvent]:
        del self._active[attempt.emitted.agenda_id]
        outcome = attempt.outcome
        end = AttemptOutcome(
            self._clock.now(),
            attempt.spent_s,
            outcome if isinstance(outcome, Failure) else None,
            deferral=outcome if isinstance(outcome, Deferral) else None,
        )
        return outcome_events(attempt.emitted, attempt.changes, end)

    async def _run(self, attempt: _Attempt) -> None:
        emitted = attempt.emitted
        agenda = parse_agenda(bytes(emitted.agenda), is_accepted=True)
        prior = self._prior(emitted)
        run = AgendaRun(emitted, agenda, self._run_context, prior)
        attempt.outcome = await run.run()
        attempt.changes = changes = run.take_changes()
        known = all_operations(agenda.operations, [*prior.appended, *changes.appended])
        types = {one.name: one.type for one in known}
        ran = [types[one.name] for one in changes.operations if one.started_at is not None]
        attempt.spent_s = self._spent(ran)

    def _prior(self, emitted: EmittedAgenda) -> PriorResults:
        if emitted.attempt == 1:
            return PriorResults()
        progress = progress_view(self._summary_of(emitted.agenda_id), seen_by=None)
        prior = prior_results_from(msgspec.json.encode(progress), emitted)
        now = self._clock.now()
        late = [
            name
            for name, one in prior.waits.items()
            if one.token and one.gives_up_at is not None and one.gives_up_at <= now
        ]
        if not late:
            return prior
        waits = {name: one for name, one in prior.waits.items() if name not in late}
        error = HandOverTimedOutError("it was handed over, and nobody completed it in time")
        failed = {**prior.failed, **dict.fromkeys(late, error)}
        return replace(prior, waits=waits, failed=failed)

    def _spent(self, types: Sequence[str]) -> dict[str, float]:
        spent: dict[str, float] = {}
        for kind in types:
            spent[kind] = spent.get(kind, 0.0) + self._takes.get(kind, DEFAULT_SECONDS)
        return spent
