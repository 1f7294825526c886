"""What ends a part: signals, and the end of its parent."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

PART = """
import asyncio
from pop_stream.operations.lifetime import run_until_stopped

async def body(stop):
    print("ready", flush=True)
    await stop.wait()
    print("in order", flush=True)

asyncio.run(run_until_stopped(body))
"""
HANGING_PART = PART.replace("await stop.wait()", "await asyncio.Event().wait()")
MAIN = """
import asyncio
from pop_stream.operations.lifetime import run_until_interrupted

async def main():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        print("in order", flush=True)

print(run_until_interrupted(main()))
"""


@pytest.fixture
def start():
    started = []

    def start(program, **environment):
        process = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | environment,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        with process:  # closes its pipes
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_a_part_in_order(start, number):
    part = start(PART)
    part.send_signal(number)
    assert part.communicate()[0] == "in order\n"
    assert part.returncode == 0


def test_second_signal_ends_a_part_that_hangs(start):
    part = start(HANGING_PART)
    part.send_signal(signal.SIGTERM)
    while part.poll() is None:
        # Not in a tight loop: a flood of signals would keep the part from handling one.
        with suppress(subprocess.TimeoutExpired):
            part.wait(timeout=0.2)
        part.send_signal(signal.SIGTERM)
    assert part.returncode == -signal.SIGTERM


def test_end_of_the_parent_stops_a_part(start):
    part = start(PART, POP_STOP_WITH_PARENT="1")
    assert part.communicate(timeout=20)[0] == "in order\n"
    assert part.returncode == 0


def test_part_on_its_own_does_not_mind_its_input(start):
    part = start(PART, POP_STOP_WITH_PARENT="")
    part.stdin.close()
    part.send_signal(signal.SIGTERM)
    assert part.wait(timeout=20) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupt_lets_a_command_clean_up(start, number):
    main = start(MAIN)
    main.send_signal(number)
    assert main.communicate(timeout=20)[0] == "in order\nTrue\n"
