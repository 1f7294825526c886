"""Runs the phases of the fairness benchmark one by one, on a stack of its own."""

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from pop_stream.clock import WallClock
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import DefinitionFollower, publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.lab.bench.load import PARAM, ScenarioLoad, submit
from pop_stream.lab.bench.observer import (
    LifecycleObserver,
    MeasuredAttempt,
    depth_of,
    recorded_attempts,
    weight_changes,
)
from pop_stream.lab.fairness_metrics.recorded import decisions_since
from pop_stream.lab.fairness_metrics.service_log import (
    ObservedWeight,
    ServiceLog,
    service_log_of,
)
from pop_stream.lab.simulate.scenarios import RUNTIME_S
from pop_stream.lab.simulator.workload import (
    Arrival,
    Change,
    DefinitionChange,
    GroupRebalance,
    SchedulerRestart,
)
from pop_stream.model.definitions import AlgorithmName, Customer, Definition
from pop_stream.model.ids import CustomerId
from pop_stream.operations.errors import CommandError

_Define = Callable[[Sequence[Definition]], Awaitable[None]]

_WARM_UP: Final = CustomerId("warm-up")
_WARM_UP_AGENDAS: Final = 60
_RATE_AGENDAS: Final = 1_500
_MAX_FLOODS: Final = 6
_SPEED_UP: Final = 1.1
_STALL_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What is started.

    Attributes:
        folder: For data and logs; nothing in it is used again.
        insights: Algorithm by insight id.
        customers: Those whose definition is not the default.
        runners: Agendas at a time, of all pullers together.
        target: Of the insights: unclaimed agendas that a refill aims at, or `auto`.
    """

    folder: Path
    insights: Mapping[str, AlgorithmName]
    customers: Mapping[CustomerId, Customer]
    runners: int
    pullers: int
    target: int | str = "auto"


@dataclass(frozen=True, slots=True)
class BenchPhase:
    """One workload, run on one insight.

    Attributes:
        attempts: Of all agendas that ended.
        depth: Most agendas that the scheduler held to be out at once.
        lost: Agendas that never ended.
        failed: Agendas that ended, but not well.
        duplicates: Successes beyond an agenda's first.
        weight_changes: Weights of customers, whenever a round first knew another one.
        changed_at: When definitions were acknowledged anew, in seconds since the epoch.
        unrecorded: Agendas that ended, but that no round was recorded to have chosen: its
            scheduler was cut off between the emissions and the record.
    """

    attempts: Sequence[MeasuredAttempt]
    depth: int
    lost: int = 0
    failed: int = 0
    duplicates: int = 0
    weight_changes: Sequence[ObservedWeight] = ()
    changed_at: Sequence[float] = ()
    unrecorded: int = 0

    @property
    def log(self) -> ServiceLog:
        """What an audit reads; service is what agendas took."""
        return service_log_of((one.served for one in self.attempts), self.weight_changes)

    @property
    def log_without_noise(self) -> ServiceLog:
        """The same log, but service is what agendas were to take and what the machine adds.

        It adds the mean of the run to each: that is real time of a runner, which counts for
        more with short agendas, while what one sleep of 5 ms happens to last is nobody's share.
        """
        beyond = (one.served.spent - one.requested_s for one in self.attempts)
        added_s = max(0.0, fmean(beyond)) if self.attempts else 0.0
        served = (replace(one.served, spent=one.requested_s + added_s) for one in self.attempts)
        return service_log_of(served, self.weight_changes)


@dataclass(frozen=True, slots=True)
class DelayedChange:
    """A change that is made once so many agendas of its phase have ended.

    By the clock it would come too late where runners have become faster meanwhile.
    """

    after: int
    change: Change


@asynccontextmanager
async def open_session(
    bench: SessionPlan, on_progress: OnProgress
) -> AsyncIterator["BenchSession"]:
    """Start everything, let every insight's pullers join, and stop it all at the end.

    Raises:
        CommandError: If something does not start, or fails on the way.
    """
    bench.folder.mkdir(parents=True, exist_ok=True)
    definitions = bench.folder / "definitions.toml"
    definitions.write_text(
        definitions_toml(bench.insights, bench.target, bench.customers.values()),
        encoding="utf-8",
    )
    plan = StackPlan(
        folder=bench.folder,
        definitions=definitions,
        pullers=bench.pullers,
        overrides={
            "puller_concurrency": bench.runners // bench.pullers,
            "topic_prefix": f"bench-{secrets.token_hex(3)}.",
        },
    )
    stack = Stack(plan, on_progress)
    async with stack, failing_with(stack):
        session = BenchSession(stack, bench)
        for insight_id in bench.insights:
            await session.warm_up(insight_id)
        yield session


class BenchSession:
    """Runs phases on a stack that is up."""

    def __init__(self, stack: Stack, bench: SessionPlan) -> None:
        self._stack = stack
        self._bench = bench
        self._settings = stack.settings
        self._topics = Topics(stack.settings.topic_prefix)
        self._changed_at: list[float] = []

    async def warm_up(self, insight_id: str) -> None:
        """Have the insight's topic made, its pullers join, and costs learned."""
        await self._run(insight_id, [_agenda(_WARM_UP)] * _WARM_UP_AGENDAS)

    async def rate(self, insight_id: str) -> float:
        """Agendas of 5 ms that are ended in a second, with nothing but a flood of them.

        Floods follow each other until one is hardly faster than the one before: a broker that
        has just started takes seconds of work to come to its speed.
        """
        before, rate = 0.0, await self._flood(insight_id)
        for _ in range(_MAX_FLOODS - 1):
            if rate <= _SPEED_UP * before:
                break
            before, rate = rate, await self._flood(insight_id)
        return rate

    async def _flood(self, insight_id: str) -> float:
        load, observer = await self._run(insight_id, [_agenda(_WARM_UP)] * _RATE_AGENDAS)
        timelines = [observer.timelines[one] for one in load.submitted_at]
        begin = min(one.claimed_at for one in timelines)
        return len(timelines) / (max(one.ended_at for one in timelines) - begin)

    async def phase(
        self,
        insight_id: str,
        arrivals: Sequence[Arrival],
        changes: Sequence[DelayedChange] = (),
    ) -> BenchPhase:
        """Run a workload and wait until all of it has ended.

        What it changed is as before for the next one.
        """
        self._changed_at = []
        load, observer = await self._run(insight_id, arrivals, changes)
        await self._undo(changes)
        history, known = await asyncio.to_thread(
            recorded_attempts, self._settings, insight_id, observer.timelines, load
        )
        timelines = [
            observer.timelines[one] for one in load.submitted_at if one in observer.timelines
        ]
        own = decisions_since(history, min(load.submitted_at.values()))
        ended = sum(one.ended_at > 0 for one in timelines)
        return BenchPhase(
            attempts=known,
            depth=depth_of(own),
            weight_changes=[*weight_changes(own)],
            changed_at=self._changed_at,
            lost=len(arrivals) - ended,
            unrecorded=ended - len({one.agenda_id for one in known}),
            failed=sum(one.has_failed for one in timelines),
            duplicates=sum(max(0, one.successes - 1) for one in timelines),
        )

    async def _run(
        self,
        insight_id: str,
        arrivals: Sequence[Arrival],
        changes: Sequence[DelayedChange] = (),
    ) -> tuple[ScenarioLoad, LifecycleObserver]:
        load = ScenarioLoad(insight_id, secrets.token_hex(4), arrivals)
        work_s = sum(one.runtime_s for one in arrivals) / self._bench.runners
        within_s = _STALL_TIMEOUT_S + arrivals[-1].at + 20 * work_s + len(arrivals) / 50
        async with (
            connections.publisher(self._settings, client_id="bench") as publisher,
            LifecycleObserver(self._settings, f"{load.prefix}-") as observer,
        ):
            changing = asyncio.create_task(self._change(changes, observer))
            try:
                async with asyncio.timeout(within_s):
                    topic = self._topics.submissions
                    await submit(load, publisher, topic, WallClock())
                    await observer.until_ended(load.submitted_at)
                    await changing
            except TimeoutError:
                msg = f"{insight_id}: not all agendas had ended after {within_s:.0f} s"
                raise CommandError(msg) from None
            finally:
                changing.cancel()
        return load, observer

    async def _undo(self, changes: Sequence[DelayedChange]) -> None:
        known = self._bench.customers
        customers = [
            known.get(CustomerId(one.id), Customer(id=one.id))
            for staged in changes
            if isinstance(staged.change, DefinitionChange)
            and isinstance(one := staged.change.definition, Customer)
        ]
        if not customers:
            return
        async with self._definer() as define:
            await define(customers)

    @asynccontextmanager
    async def _definer(
        self,
    ) -> AsyncIterator[_Define]:
        """Publishes definitions that differ from those in force."""
        async with (
            DefinitionFollower(self._settings, client_id="bench") as follower,
            connections.publisher(self._settings, client_id="bench-definitions") as publisher,
        ):

            async def define(bench_options: Sequence[Definition]) -> None:
                await publish_definitions(
                    publisher, self._topics, bench_options, follower.current
                )

            yield define

    async def _change(
        self, changes: Sequence[DelayedChange], observer: LifecycleObserver
    ) -> None:
        if not changes:
            return
        # It takes longer to start than some agendas to end.
        async with self._definer() as define:
            for one in sorted(changes, key=lambda one: one.after):
                await observer.until_so_many_ended(one.after)
                match one.change:
                    case DefinitionChange(definition=definition):
                        await define([definition])
                        self._changed_at.append(WallClock().now().timestamp())
                    case SchedulerRestart():
                        # It stops in order, and the supervisor starts it again.
                        self._stack.supervisor.kill("scheduler", signal.SIGTERM)
                    case GroupRebalance():
                        self._stack.supervisor.kill("puller-1", signal.SIGTERM)


def _agenda(customer_id: CustomerId) -> Arrival:
    return Arrival(0.0, customer_id, RUNTIME_S, RUNTIME_S)


def definitions_toml(
    insights: Mapping[str, AlgorithmName],
    target: int | str,
    customers: Iterable[Customer] = (),
    more: Iterable[str] = (),
) -> str:
    """Definitions as a file: JSON strings and numbers are TOML's, too.

    Args:
        insights: Algorithm by id; an agenda is routed by its param `PARAM`.
        target: Of all of them.
        customers: Of which only the weight is published.
        more: Further lines of each insight.
    """
    lines: list[str] = []
    for insight_id, algorithm in insights.items():
        lines += [
            f"[insights.{json.dumps(insight_id)}]",
            f"algorithm = {json.dumps(algorithm)}",
            f"target = {json.dumps(target)}",
            f"mappers = {{ params = [{json.dumps(f'{PARAM}={insight_id}')}] }}",
            *more,
        ]
    for customer in customers:
        lines += [
            f"[customers.{json.dumps(customer.id)}]",
            f"weight = {customer.weight}",
        ]
    return "\n".join(lines) + "\n"
