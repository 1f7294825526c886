"""The supervisor, with real but tiny processes."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deadlines import within

from pop_stream.devserver.supervisor import Part, RestartPolicy, Supervisor
from pop_stream.operations.errors import CommandError

SOON = timedelta(milliseconds=10)
PATIENCE_S = 20

READY = """
import os
ready = os.open(os.environ["READY"], os.O_WRONLY)
os.write(ready, b"ready")
"""
WAITS = "import signal; signal.pause()"
STAYS = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
{READY}
signal.sigwait([signal.SIGTERM])
"""
STUBBORN = f"""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{READY}
while True:
    signal.pause()
"""
LEAVES_WITH_PARENT = f"""
import asyncio
from pop_stream.operations.lifetime import run_until_stopped

async def body(stop):
    {READY.strip().replace(chr(10), chr(10) + "    ")}
    await stop.wait()

asyncio.run(run_until_stopped(body))
"""
SUPERVISES = """
import asyncio, sys
from pathlib import Path
from pop_stream.devserver.supervisor import Part, RestartPolicy, Supervisor

async def main():
    async with Supervisor(Path(sys.argv[1]), environment={}, policy=RestartPolicy()) as parts:
        for name in ("one", "two"):
            await parts.start(Part(name, (sys.executable, "-c", sys.argv[2])))
        await asyncio.Event().wait()

asyncio.run(main())
"""


def part(name: str, program: str, stage: str = "") -> Part:
    return Part(name, (sys.executable, "-S", "-c", program), stage)


@pytest.fixture
async def changes():
    return []


@pytest.fixture
async def supervisor(tmp_path: Path, changes: list):
    policy = RestartPolicy(first_pause=SOON, longest_pause=SOON, max_crashes=3)
    async with Supervisor(
        tmp_path, environment={"GREETING": "hello"}, policy=policy, on_progress=changes.append
    ) as supervisor:
        yield supervisor


async def until(supervisor: Supervisor, seen) -> None:
    async with within(PATIENCE_S):
        await supervisor.until(seen)


@pytest.fixture
def ready(tmp_path: Path):
    """A named pipe: reading it waits until a part has written that it is ready."""
    pipe = tmp_path / "ready"
    os.mkfifo(pipe)
    return pipe


async def start(supervisor: Supervisor, started: Part, ready: Path) -> None:
    """Start a part and wait until its program has said so."""
    await supervisor.start(replace(started, environment={"READY": str(ready)}))
    async with within(PATIENCE_S):
        with await asyncio.to_thread(ready.open, "rb") as said:
            assert await asyncio.to_thread(said.read, 5) == b"ready"


async def test_killed_part_is_started_again(supervisor):
    await supervisor.start(part("worker", WAITS))
    pid = supervisor.kill("worker")
    await until(supervisor, lambda parts: parts["worker"].restarts == 1)
    status = supervisor.status()["worker"]
    assert status.state == "running"
    assert status.pid != pid
    assert status.exit_code == -signal.SIGKILL


async def test_a_replaced_part_has_stopped_in_order_before_its_successor_starts(supervisor):
    await supervisor.start(part("worker", WAITS))
    await supervisor.start(part("other", WAITS))
    before = supervisor.status()["worker"].pid
    ended = await supervisor.replace("worker", grace=timedelta(seconds=PATIENCE_S))
    assert (ended.pid, ended.state) == (before, "stopped")
    status = supervisor.status()
    assert [*status] == ["worker", "other"]
    assert status["worker"].state == "running"
    assert status["worker"].pid != before
    assert status["worker"].restarts == 0


async def test_crash_tells_exit_code_and_last_words(supervisor, changes):
    await supervisor.start(part("worker", "import sys; print('why'); sys.exit(3)"))
    await until(supervisor, lambda parts: parts["worker"].state == "failed")
    crash = next(change for change in changes if change.state == "crashed")
    assert (crash.exit_code, crash.last_log_line) == (3, "why")


async def test_part_that_crashes_again_and_again_is_given_up(supervisor):
    await supervisor.start(part("worker", "raise SystemExit(1)"))
    async with within(PATIENCE_S):
        status = await supervisor.until_part_failed()
    assert (status.name, status.restarts) == ("worker", 2)


async def test_stopped_part_is_not_started_again(supervisor, ready):
    await start(supervisor, part("worker", STAYS), ready)
    await supervisor.stop("worker")
    assert supervisor.status()["worker"].state == "stopped"
    assert supervisor.kill("worker") is None


async def test_stop_does_not_wait_for_a_pending_restart(tmp_path):
    policy = RestartPolicy(first_pause=timedelta(hours=1), longest_pause=timedelta(hours=1))
    async with Supervisor(tmp_path, environment={}, policy=policy) as supervisor:
        await supervisor.start(part("worker", "raise SystemExit(1)"))
        await until(supervisor, lambda parts: parts["worker"].state == "crashed")
        async with within(PATIENCE_S):
            await supervisor.stop("worker")
        assert supervisor.status()["worker"].state == "stopped"


async def test_part_that_ignores_the_stop_is_killed_after_the_grace(supervisor, ready):
    await start(supervisor, part("worker", STUBBORN), ready)
    await supervisor.stop("worker", grace=SOON)
    assert supervisor.status()["worker"].exit_code == -signal.SIGKILL


async def test_stages_stop_in_reverse_order_of_their_start(supervisor, changes, ready):
    for name, stage in [("rollup", "store"), ("puller-1", "pull"), ("puller-2", "pull")]:
        await start(supervisor, part(name, STAYS, stage), ready)
    await supervisor.stop_all()
    ended = [change.name for change in changes if change.state == "stopped"]
    assert ended[-1] == "rollup"
    assert sorted(ended) == ["puller-1", "puller-2", "rollup"]


async def test_stopped_part_can_be_started_anew(supervisor):
    await supervisor.start(part("worker", WAITS))
    await supervisor.stop("worker")
    await supervisor.start(part("worker", WAITS))
    assert supervisor.status()["worker"].state == "running"


async def test_a_name_runs_once(supervisor):
    await supervisor.start(part("worker", WAITS))
    with pytest.raises(CommandError, match="worker"):
        await supervisor.start(part("worker", WAITS))


async def test_parts_get_the_environment_and_log_to_a_file(supervisor):
    await supervisor.start(
        part("worker", "import os, time; print(os.environ['GREETING'], flush=True)")
    )
    await until(supervisor, lambda parts: parts["worker"].state != "running")
    assert "hello" in supervisor.log_file("worker").read_text()


async def test_a_part_has_the_same_name_again_when_it_is_started_anew(supervisor):
    on_progress = "import os; print(os.environ['POP_INSTANCE'], flush=True); os._exit(1)"
    await supervisor.start(part("worker", on_progress))
    await until(supervisor, lambda parts: parts["worker"].restarts > 1)
    names = {*supervisor.log_file("worker").read_text().split()}
    assert len(names) == 1
    assert names.pop().endswith(".worker")


async def test_a_death_is_reported_with_the_parts_name_and_holds_no_restart_up(tmp_path):
    reported, is_over = asyncio.Queue(), asyncio.Event()

    async def on_death(instance):
        reported.put_nowait(instance)
        await is_over.wait()

    policy = RestartPolicy(first_pause=SOON, longest_pause=SOON)
    async with Supervisor(
        tmp_path, environment={}, policy=policy, on_death=on_death
    ) as supervisor:
        await supervisor.start(part("worker", WAITS))
        supervisor.kill("worker")
        await until(supervisor, lambda parts: parts["worker"].restarts == 1)
        assert (await reported.get()).endswith(".worker")
        is_over.set()
        await supervisor.stop("worker")
    assert reported.empty()  # who is asked to stop leaves by itself


def test_pauses_double_up_to_the_longest():
    policy = RestartPolicy(timedelta(seconds=1), timedelta(seconds=5), max_crashes=5)
    pauses = [policy.pause(crashes) for crashes in (1, 2, 3, 4, 5)]
    assert pauses == [timedelta(seconds=s) for s in (1, 2, 4, 5)] + [None]


def test_no_part_outlives_a_supervisor_that_was_killed(tmp_path: Path, ready: Path):
    command = [sys.executable, "-c", SUPERVISES, str(tmp_path), LEAVES_WITH_PARENT]
    environment = {**os.environ, "READY": str(ready)}
    supervising = subprocess.Popen(command, env=environment)  # noqa: S603  # our own program
    with supervising, ready.open("rb") as said:
        try:
            assert said.read(10) == b"readyready"
        finally:
            supervising.kill()
        # Both parts hold the pipe open, so it ends when both have.
        assert said.read() == b""
