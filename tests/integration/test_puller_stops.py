"""Attempts that are to stop, that others outdated, and that go on where earlier ones were."""

import asyncio
import json
import os
import signal
import sys
import textwrap
from contextlib import AsyncExitStack

import pytest
from deadlines import scaled, within
from puller_world import (
    WITHIN_S,
    ApiWithProgress,
    agenda,
    open_world,
    progress,
    serving,
    with_api,
    work,
)

from pop_stream.kafka import topics
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
)
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.puller import Puller


@pytest.fixture
async def world(settings):
    controls = Topics(settings.topic_prefix).controls
    async with open_world(settings, controls) as opened:
        await opened.create()
        yield opened


def patient(settings):
    """A puller whose handler runs until it is stopped."""
    puller = Puller("media", settings=settings)

    @puller.handler("work")
    async def forever(operation):
        await operation.report(40, "half way")
        await asyncio.Event().wait()

    @puller.handler("quick")
    async def quick(operation):
        return operation.name

    return puller


async def test_stop_reaches_a_running_attempt_and_frees_its_place(world):
    quick = work("first", "quick")
    await world.emit(agenda("a1", quick, work("long", depends_on=["first"])))
    async with serving(patient(world.settings)):
        await world.until(lambda: world.of(AgendaProgressed))
        await world.stop("a1")
        await world.until(lambda: world.of(AgendaStopped))
        await world.emit(agenda("a2", work("b", "quick")))
        await world.until(lambda: world.of(AgendaSucceeded))
    (stopped,) = world.of(AgendaStopped)
    reported = {
        one.name: one.state
        for event in world.of(AgendaProgressed, AgendaStopped)
        for one in event.operations
    }
    assert reported == {"first": "succeeded", "long": "failed"}
    assert set(stopped.spent_s) == {"quick", "work"}


async def test_stop_before_the_claim_is_answered_without_running(world):
    async with serving(patient(world.settings)) as _:
        await world.emit(agenda("a0", work()))
        await world.until(lambda: world.of(AgendaClaimed))
        await world.stop("a0")
        await world.stop("a1", 3, "expired")
        await world.until(lambda: world.ids(AgendaStopped) == ["a0"])
        await world.emit(agenda("a1", work(), attempt=3))
        await world.until(lambda: world.ids(AgendaStopped) == ["a0", "a1"])
    assert world.of(AgendaStopped)[1].operations == ()


async def test_cluster_without_the_topic_of_controls_is_no_hindrance(settings):
    async with open_world(settings) as world:
        await world.create()
        await world.emit(agenda("a1", work("a", "quick")))
        async with serving(patient(settings)):
            await world.until_ended(1)
            # An upgrade creates it later; then it is heeded.
            names = Topics(settings.topic_prefix)
            (spec,) = [one for one in topics.catalog(names) if one.name == names.controls]
            await topics.ensure(world.admin, [spec], replication_factor=1)
            await world.emit(agenda("a2", work()))
            await world.until(lambda: world.of(AgendaProgressed))
            async with within(WITHIN_S):
                while not world.of(AgendaStopped):
                    await world.stop("a2")
                    await world.read()


async def test_resumed_attempt_waits_for_its_summary_and_runs_only_what_is_left(world):
    api = ApiWithProgress()
    known = progress(
        2,
        fetch={"state": "succeeded", "result": {"size": 12}},
        store={"state": "waiting", "prior": {"attempt": 1, "state": "running", "percent": 70}},
    )
    known["appended"] = [
        {"by": "fetch", "at": "2026-01-01T00:00:00Z", "operation": work("more", "quick")}
    ]
    api.answers = [(503, {}), (200, progress(1)), (200, known)]
    ran = []
    async with api.server() as server:
        settings = world.settings.model_copy(
            update={"api_url": str(server.make_url("/")), "api_token": _Secret("k1")}
        )
        puller = Puller("media", settings=settings)

        @puller.handler("work")
        async def note(operation):
            ran.append((operation.name, operation.payload, operation.prior))

        @puller.handler("quick")
        async def quick(operation):
            ran.append((operation.name, operation.payload, operation.prior))

        store = work("store", payload="@<fetch.out::/size>")
        await world.emit(agenda("a1", work("fetch"), store, attempt=2))
        async with serving(puller):
            await world.until_ended(1)
    assert api.asked == [("a1", "Bearer k1")] * 3
    by_name = {name: (payload, prior) for name, payload, prior in ran}
    assert by_name.keys() == {"store", "more"}
    payload, prior = by_name["store"]
    assert (payload, prior.percent) == (12, 70)
    waits = [one.message for event in world.of(AgendaProgressed) for one in event.operations]
    assert any("answers 503: the database is away" in message for message in waits)
    assert any("the summary is at attempt 1" in message for message in waits)


class _Secret:
    def __init__(self, value):
        self._value = value

    def get_secret_value(self):
        return self._value


async def test_attempt_that_waits_for_its_results_keeps_its_lease_and_may_be_stopped(world):
    api = ApiWithProgress()
    api.answers = [(503, {})]
    async with api.server() as server:
        settings = world.settings.model_copy(update={"api_url": str(server.make_url("/"))})
        waits = agenda("a1", work(), work("b"), attempt=2, lease_ms=900)
        await world.emit(waits)
        async with serving(patient(settings)):
            await world.until(lambda: len(world.of(AgendaHeartbeat)) >= 4)
            await world.stop("a1", 2)
            await world.until(lambda: world.of(AgendaStopped))
    assert len(api.asked) >= 2


FROZEN = """
    import asyncio
    from pop_stream.puller import Puller

    puller = Puller(insight="media")

    @puller.handler("work")
    async def work(operation):
        await operation.report(40, "half way")
        await asyncio.sleep(1.0)
        return operation.attempt

    puller.run()
"""


async def test_frozen_puller_reports_nothing_into_a_newer_attempt(world, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(FROZEN))
    await world.emit(agenda("a1", work(), lease_ms=1000))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "POP_KAFKA_BOOTSTRAP": world.settings.kafka_bootstrap,
            "POP_TOPIC_PREFIX": world.settings.topic_prefix,
            "POP_SESSION_TIMEOUT": f"PT{scaled(2.0):.1f}S",
        },
    )
    try:
        await world.until(lambda: world.of(AgendaProgressed))
        process.send_signal(signal.SIGSTOP)
        # Its lease ends, so another puller is given the next attempt, and ends it.
        async with AsyncExitStack() as stack:
            settings, _ = await stack.enter_async_context(
                with_api(world.settings, (200, progress(2)))
            )
            other = Puller("media", settings=settings)

            @other.handler("work")
            async def done(operation):
                return operation.attempt

            await stack.enter_async_context(serving(other))
            await world.emit(agenda("a1", work(), attempt=2))
            await world.until_ended(1)
            process.send_signal(signal.SIGCONT)
            await world.stop("a1", 1, "outdated")
            # Awake, it may still tell of the attempt that it held; then it is at rest.
            await world.emit(agenda("a2", work()), agenda("a3", work()))
            await world.until(lambda: {"a2", "a3"} <= set(world.ids(AgendaSucceeded)))
            process.terminate()
            async with within(WITHIN_S):
                await process.wait()
        await world.read()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lifecycle = [event for event in world.events if event.agenda_id == "a1"]
    ends = [one for one in lifecycle if isinstance(one, AgendaSucceeded) and one.attempt == 2]
    assert len(ends) == 1
    summary, _ = fold_all(None, lifecycle)
    assert (summary.attempt, summary.state.value) == (2, "succeeded")
    assert json.loads(bytes(summary.operations["a"].result)) == 2
