"""What a test leaves running, seen from a run of pytest of its own."""

import re
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
SUPPORT = Path(__file__).parents[1] / "support"
LEAVING = """
import asyncio, subprocess, sys, time
import pytest, pytest_asyncio

ENDED = []

async def stays(name):
    try:
        await asyncio.Event().wait()
    finally:
        ENDED.append(name)

@pytest_asyncio.fixture(scope="session")
async def server():
    task = asyncio.create_task(stays("server"))
    yield
    task.cancel()
    await asyncio.wait([task])

@pytest.fixture
def client():
    ENDED.append("client is there")
    yield
    ENDED.append("client ends")

async def test_leaves_a_task(server):
    test_leaves_a_task.task = asyncio.create_task(stays("task"))
    await asyncio.sleep(0)

async def test_finds_the_task_ended(server):
    assert ENDED == ["task"]

async def test_leaves_a_server():
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)

def test_leaves_a_process():
    test_leaves_a_process.left = subprocess.Popen(["sleep", "99"])

def test_finds_the_process_ended():
    assert test_leaves_a_process.left.wait(10) == -9

@pytest.mark.timeout(0.5)
async def test_takes_too_long(client):
    try:
        await asyncio.Event().wait()
    finally:
        ENDED.append("block ends")

async def test_finds_blocks_ended_before_fixtures():
    assert ENDED[1:] == ["client is there", "block ends", "client ends"]

async def test_leaves_nothing():
    await asyncio.create_task(asyncio.sleep(0))
    await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()
"""


@pytest.fixture
def outcome(pytester):
    """Test names by what became of them: passed, failed or error; and all that was printed."""
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = session\n"
        f"asyncio_default_test_loop_scope = session\npythonpath = {SUPPORT}\n"
    )
    pytester.makeconftest(
        'import leaks\npytest_plugins = ["leaks"]\nleaks.SETTLES_WITHIN_S = 0.2\n'
    )
    pytester.makepyfile(LEAVING)
    result = pytester.run(sys.executable, "-m", "pytest", "-p", "no:xdist", "-rA", timeout=100)
    text = result.stdout.str()
    found = {}
    for kind, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", text, re.MULTILINE):
        found.setdefault(name, set()).add(kind)
    return found, text


def test_who_leaves_something_is_named_and_the_next_finds_nothing_of_it(outcome):
    found, text = outcome
    left = {"PASSED", "ERROR"}
    assert found == {
        "test_leaves_a_task": left,
        "test_finds_the_task_ended": {"PASSED"},
        "test_leaves_a_server": left,
        "test_leaves_a_process": left,
        "test_finds_the_process_ended": {"PASSED"},
        "test_takes_too_long": {"FAILED"},
        "test_finds_blocks_ended_before_fixtures": {"PASSED"},
        "test_leaves_nothing": {"PASSED"},
    }, text
    named = r"LeakError: \S+::test_leaves_a_task left running:\nE +Stack for <Task"
    assert re.search(named, text)
