"""The puller: composes its parts, and serves its insights until it is to stop."""

import asyncio
import os
import re
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import structlog
import uvloop

from pop_stream.clock import WallClock
from pop_stream.kafka import clients
from pop_stream.kafka.attempt_stops import follow_controls
from pop_stream.kafka.publisher import KafkaPublisher, ReconnectingPublisher
from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topics import Topics
from pop_stream.model.ids import TOPIC_SAFE_PATTERN
from pop_stream.puller.claiming.capacity import Capacity
from pop_stream.puller.claiming.claims import AttemptWindow, Claimer
from pop_stream.puller.claiming.pipeline import ClaimContext
from pop_stream.puller.consuming.subscription import run_subscription
from pop_stream.puller.execution.completion_tokens import CompletionTokenIssuer
from pop_stream.puller.execution.executor import AttemptExecutor
from pop_stream.puller.execution.prior_results import PriorResultsReader
from pop_stream.puller.handlers.invocation import RunContext
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.puller.handlers.waiting import add_waiting
from pop_stream.puller.metrics import PullerMetrics
from pop_stream.puller.reporting.lease_renewer import LeaseRenewer
from pop_stream.puller.reporting.reporter import Reporter
from pop_stream.settings import Settings
from pop_stream.telemetry.process import part_registry
from pop_stream.telemetry.server import serve_metrics
from pop_stream.telemetry.tracing import traced

# The client goes on trying by itself; an earlier timeout here would write records twice.
_ACKNOWLEDGED_WITHIN: Final = timedelta(seconds=60)
_FLUSH_S: Final = 10.0
_CLOSE_S: Final = 5.0

F = TypeVar("F", bound=Callable[[Any], Any])

_log = structlog.get_logger()


class Puller:
    """A member of the consumer group of each of its insights.

    Delivery is at least once: a handler may see an operation again after a crash, so let
    what it does be repeatable, with the agenda id and the operation's name as identity.

    Args:
        insight: What to pull; or several with `insights`.
        insights: What to pull, in addition to `insight`.
        handlers: Registries to take over, besides what `handler` registers.
        settings: Read from POP_ variables if not given.
        concurrency: Agendas at a time; `settings.puller_concurrency` if not given.
        grace: How long running agendas may go on once the puller is to stop;
            `settings.puller_grace` if not given.

    Raises:
        ValueError: If there is no insight, one has an impossible name, `concurrency` is
            below 1, or two registries have a handler for one operation type.
    """

    def __init__(
        self,
        insight: str | None = None,
        *,
        insights: Sequence[str] = (),
        handlers: Handlers | Sequence[Handlers] = (),
        settings: Settings | None = None,
        concurrency: int | None = None,
        grace: timedelta | None = None,
    ) -> None:
        self._insights = _named((insight, *insights) if insight else insights)
        self._settings = settings or Settings()
        self._topics = Topics(self._settings.topic_prefix)
        self._concurrency = _at_least_one(
            self._settings.puller_concurrency if concurrency is None else concurrency
        )
        self._grace = self._settings.puller_grace if grace is None else grace
        self._is_serving = False
        self.handlers = Handlers()
        for registry in [handlers] if isinstance(handlers, Handlers) else handlers:
            self.handlers.include(registry)

    def handler(self, operation_type: str) -> Callable[[F], F]:
        """Register the decorated function for an operation type; see `Handlers.handler`."""
        return self.handlers.handler(operation_type)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; a second signal ends the process at once.

        Call it from the main thread of a program without an event loop. A thread that runs
        a handler cannot be ended from outside: the process lives until the handler returns.

        Raises:
            ValueError: If tracing is on and the extra `otel` is missing, or as in `serve`.
        """
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with traced(self._settings, "puller"), runner:
            runner.run(self._serve_until_signal())

    async def serve(self, stop: asyncio.Event) -> None:
        """Pull until `stop`, then let running agendas end within the grace.

        What still runs then is cancelled and reported as failed, to be tried again. Cancelling
        the call does the same without the grace. May be called again once it has returned.

        Raises:
            ValueError: If no handler is registered.
            RuntimeError: If it is being served already.
            OSError: If the port for its metrics is taken.
        """
        self._check()
        add_waiting(self.handlers)
        self._is_serving = True
        threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="operation")
        try:
            async with asyncio.TaskGroup() as agendas:
                await self._serve(stop, threads, agendas)
        finally:
            self._is_serving = False
            threads.shutdown(wait=False, cancel_futures=True)
            await self._close_handlers()
            _log.info("puller.stopped", insights=self._insights)

    async def _serve(
        self, stop: asyncio.Event, threads: Executor, agendas: asyncio.TaskGroup
    ) -> None:
        parts = self._compose(threads, agendas)
        async with self._metrics_served(parts, stop), asyncio.TaskGroup() as background:
            helpers = [
                background.create_task(parts.reporter.run()),
                background.create_task(parts.renewer.run()),
                background.create_task(self._controls(parts.executor).run()),
                *(background.create_task(work()) for work in self.handlers.works),
            ]
            try:
                await self._pull(stop, parts.claim_context, parts.executor)
            finally:
                await parts.executor.stop()
                await _flush(parts.reporter)
                for helper in helpers:
                    helper.cancel()
                for fetcher in parts.fetchers:
                    await fetcher.close()
                for publisher in parts.publishers:
                    await publisher.close()

    def _metrics_served(
        self, parts: "_Parts", stop: asyncio.Event
    ) -> AbstractAsyncContextManager[None]:
        """Shows metrics and probes if the settings name a port; one that stops is not ready."""
        registry = part_registry()
        parts.metrics.register(registry)
        host, port = self._settings.metrics_host, self._settings.metrics_port
        return serve_metrics(registry, host, port, is_ready=lambda: not stop.is_set())

    def _compose(self, threads: Executor, agendas: asyncio.TaskGroup) -> "_Parts":
        # A client sends one request at a time to a broker: claims shall wait for no reports.
        claims, reports = (ReconnectingPublisher(self._publisher) for _ in range(2))
        puller_id = _new_puller_id()
        clock, capacity = WallClock(), Capacity(self._concurrency)
        reporter = Reporter(reports, self._topics.agenda_events)
        prior_results = PriorResultsReader(self._settings)
        tokens = CompletionTokenIssuer(self._settings)
        metrics = PullerMetrics(self._concurrency)
        run_context = RunContext(self.handlers, threads, clock, metrics, tokens)
        executor = AttemptExecutor(agendas, run_context, reporter, capacity, prior_results)
        metrics.running = executor.__len__
        claimer = Claimer(
            claims, self._topics, clock, puller_id=puller_id, window=AttemptWindow()
        )
        renewer = LeaseRenewer(
            executor,
            claimer,
            reporter,
            clock,
            puller_id=puller_id,
            heartbeat=self._settings.heartbeat,
            claimed_event=claimer.claimed_event,
        )
        _log.info(
            "puller.started",
            puller_id=puller_id,
            insights=self._insights,
            handlers=self.handlers.types,
            concurrency=self._concurrency,
        )
        claim_context = ClaimContext(claimer, executor, reporter, capacity, len(self._insights))
        fetchers = (prior_results, tokens)
        publishers = (claims, reports)
        return _Parts(claim_context, executor, renewer, reporter, fetchers, publishers, metrics)

    async def _pull(
        self, stop: asyncio.Event, claim_context: ClaimContext, running: AttemptExecutor
    ) -> None:
        async with asyncio.TaskGroup() as group:
            feeds = [
                group.create_task(
                    run_subscription(self._settings, insight_id, claim_context, stop)
                )
                for insight_id in self._insights
            ]
            await stop.wait()
            _log.info("puller.stopping", running=len(running))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace.total_seconds()):
                    await asyncio.wait(feeds)
                    await running.ended()
            for feed in feeds:
                feed.cancel()

    async def _serve_until_signal(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def first(number: signal.Signals) -> None:
            stop.set()
            loop.remove_signal_handler(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, first, number)
        await self.serve(stop)

    async def _close_handlers(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.handlers.close()
        except TimeoutError:
            _log.warning("handlers.close_timed_out", after_s=_CLOSE_S)

    def _controls(self, running: AttemptExecutor) -> TopicFollower:
        return follow_controls(
            self._settings, client_id="puller-controls", on_stop=running.stop_attempt
        )

    def _publisher(self) -> KafkaPublisher:
        producer = clients.producer(self._settings, client_id="puller")
        return KafkaPublisher(producer, acknowledge_timeout=_ACKNOWLEDGED_WITHIN)

    def _check(self) -> None:
        if self._is_serving:
            msg = "this puller is being served already; make another one"
            raise RuntimeError(msg)
        if not self.handlers.types:
            msg = "no handler is registered; decorate a function with @puller.handler(type)"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a puller is made of while it serves."""

    claim_context: ClaimContext
    executor: AttemptExecutor
    renewer: LeaseRenewer
    reporter: Reporter
    fetchers: Sequence[PriorResultsReader | CompletionTokenIssuer]
    publishers: Sequence[ReconnectingPublisher]
    metrics: PullerMetrics


def _named(insights: Sequence[str]) -> tuple[str, ...]:
    if not insights:
        msg = "insight is missing; name what to pull, as in Puller(insight='media')"
        raise ValueError(msg)
    for insight_id in insights:
        if not re.fullmatch(TOPIC_SAFE_PATTERN, insight_id):
            msg = f"insight = {insight_id!r}: write letters, digits, dots, dashes and _ only"
            raise ValueError(msg)
    return tuple(dict.fromkeys(insights))


def _at_least_one(concurrency: int) -> int:
    if concurrency < 1:
        msg = f"concurrency = {concurrency}: at least one agenda must run at a time"
        raise ValueError(msg)
    return concurrency


def _new_puller_id() -> str:
    return f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}"


async def _flush(reporter: Reporter) -> None:
    try:
        async with asyncio.timeout(_FLUSH_S):
            await reporter.wait_acknowledged()
    except TimeoutError:
        _log.warning("reports.lost", remedy="their agendas are retried when the lease ends")
