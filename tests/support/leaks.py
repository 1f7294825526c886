"""Finds what a test leaves running, says which test it was, and ends it.

Whatever a test starts, or a fixture of that test alone, has to be gone when the next begins:
tasks, connections and listening sockets of the event loop, threads, processes. What wider
fixtures start, such as servers for all tests, stays.

A test that passes and leaves something becomes an error, with a stack for every task. One that
failed, as by its time limit, which leaves all its blocks unfinished, has its tasks cancelled
before its fixtures end: so clients are closed by their own blocks, as if nothing had happened.
"""

import asyncio
import io
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from deadlines import quiet_s, start_probe, within

ENDS_WITHIN_S = 10
SETTLES_WITHIN_S = 5
_CHILDREN = Path("/proc/self/task")
_FORGOTTEN = "mode/utils/locks.py"
_POOLED = ("asyncio_", "ThreadPoolExecutor", "waitpid-")


class LeakError(AssertionError):
    """A test left something running."""


class Running:
    """What runs in this process and below it, and what of it belongs to wider fixtures.

    Attributes:
        runner: Of the loop that all tests share, once there is one.
        kept: What fixtures of the session started.
        worlds: Fixtures that are shared by the tests of a module, and stand now: their clients
            and servers open connections whenever they like.
    """

    def __init__(self) -> None:
        self.runner: asyncio.Runner | None = None
        self.kept: set[Hashable] = set()
        self.worlds = 0

    def now(self) -> Mapping[Hashable, Any]:
        """Tasks, sockets, threads and processes by what identifies them."""
        found: dict[Hashable, Any] = {one: one for one in _threads()}
        found |= {("process", pid): pid for pid in _children()}
        if self.runner is not None:
            loop = self.runner.get_loop()
            found |= {one: one for one in asyncio.all_tasks(loop)}
            found |= {(one.fd, id(one.data)): one for one in _sockets(loop)}
        return found

    def new(self, before: Mapping[Hashable, Any]) -> Mapping[Hashable, Any]:
        """What runs now, did not before, and is not kept."""
        now = self.now()
        return {
            key: one for key, one in now.items() if key not in before and key not in self.kept
        }

    def leave_world(self) -> None:
        """One of the shared fixtures has ended."""
        self.worlds -= 1

    def check(self, before: Mapping[Hashable, Any], name: str) -> None:
        """End what is new since `before` and does not end by itself.

        Raises:
            LeakError: There was something; the text has `name` and the stacks.
        """
        if left := self._since(before):
            text = described(left)
            self.end(left)
            if all(_is_forgotten_by_faust(one) for one in left.values()):
                return
            msg = f"{name} left running:\n{text}"
            raise LeakError(msg)

    def _since(self, before: Mapping[Hashable, Any]) -> Mapping[Hashable, Any]:
        """What is new and still runs when it had a moment to end."""
        ends_s = quiet_s() + SETTLES_WITHIN_S
        while (new := self.new(before)) and quiet_s() < ends_s:
            if all(_is_forgotten_by_faust(one) for one in new.values()):
                break
            self._run(asyncio.sleep(0.01))
        return new

    def end(self, left: Mapping[Hashable, Any]) -> None:
        """Cancel tasks and wait for their clean-up, then cut connections, kill processes."""
        tasks = {one for one in left.values() if isinstance(one, asyncio.Task)}
        for task in tasks:
            task.cancel()
        if tasks:
            self._run(_gone(tasks))
        after = self.now()
        for key, one in left.items():
            if key in after and isinstance(one, _Socket):
                one.cut()
        for key, pid in left.items():
            if key in after and isinstance(pid, int):
                _kill(pid)
        self._run(asyncio.sleep(0))

    def _run(self, what: Any) -> None:
        if self.runner is None:
            asyncio.run(what)
        else:
            self.runner.run(what)


class _Socket:
    """What a loop watches: a transport, or a socket that listens."""

    def __init__(self, loop: Any, key: Any) -> None:
        self._loop, self.fd, self.data = loop, key.fd, key.data
        self._transport = loop._transports.get(key.fd)

    def __repr__(self) -> str:
        return repr(self._transport or f"listening socket {self.fd}")

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        else:
            self._loop._remove_reader(self.fd)


def described(left: Mapping[Hashable, Any]) -> str:
    """A line or a stack each."""
    text = io.StringIO()
    for key, one in left.items():
        if isinstance(one, asyncio.Task):
            one.print_stack(file=text)
        else:
            print(key if isinstance(one, int) else repr(one), file=text)
    return text.getvalue()


def _sockets(loop: Any) -> list[_Socket]:
    own = {loop._ssock.fileno()}
    keys = list(loop._selector.get_map().values())
    return [_Socket(loop, key) for key in keys if key.fd not in own]


def _threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if not one.name.startswith(_POOLED)]


def _children() -> list[int]:
    if not _CHILDREN.exists():
        return [one.pid for one in psutil.Process().children()]
    found: set[int] = set()
    for thread in _CHILDREN.iterdir():
        with suppress(OSError):  # the thread has ended
            found |= {*map(int, (thread / "children").read_text().split())}
    return [pid for pid in found if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            one.kill()
    except psutil.NoSuchProcess:
        return


def _is_forgotten_by_faust(running: Any) -> bool:
    """A task of the library that waits for an event of a service that has ended; for ever."""
    coroutine = running.get_coro() if isinstance(running, asyncio.Task) else None
    code = getattr(coroutine, "cr_code", None)
    return code is not None and code.co_filename.endswith(_FORGOTTEN)


async def _gone(tasks: set[Any]) -> None:
    try:
        async with within(ENDS_WITHIN_S):
            await asyncio.gather(*tasks, return_exceptions=True)
    except TimeoutError:
        return


# ---- hooks and fixtures, for the topmost conftest ----

RUNNING = Running()
_SHARED = ("class", "module", "package")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start what lasts as long as the run, before the first look at what runs."""
    if not session.config.pluginmanager.hasplugin("dsession"):  # which has others run the tests
        start_probe()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Learn the loop, what fixtures of the session start, and which tests share a world."""
    before = RUNNING.now() if fixturedef.scope == "session" else {}
    made = yield
    if fixturedef.argname == "_session_scoped_runner":
        RUNNING.runner = made
    if fixturedef.scope == "session":
        RUNNING.kept |= RUNNING.now().keys() - before.keys()
    elif fixturedef.scope in _SHARED and not fixturedef.argname.startswith("_"):
        RUNNING.worlds += 1
        fixturedef.addfinalizer(RUNNING.leave_world)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """End what a failed test left, before its fixtures end."""
    before = RUNNING.now()
    try:
        return (yield)
    except BaseException:
        left = RUNNING.new(before)
        item.add_report_section("call", "left running", described(left))
        code = getattr(getattr(item, "obj", None), "__code__", None)
        own = {key: one for key, one in left.items() if _is_of(one, code)}
        RUNNING.end(own)
        if not RUNNING.worlds:
            RUNNING.end(RUNNING.new(before))
        raise


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing that a test starts outlives it, unless it shares a world with others."""
    before = RUNNING.now()
    yield
    if not RUNNING.worlds:
        RUNNING.check(before, request.node.nodeid)


@pytest.fixture(autouse=True, scope="module")
def _no_world_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the tests of a module share ends with the last of them."""
    before = RUNNING.now()
    yield
    RUNNING.check(before, request.node.nodeid)


def _is_of(running: Any, code: Any) -> bool:
    coroutine = running.get_coro() if isinstance(running, asyncio.Task) else None
    return code is not None and getattr(coroutine, "cr_code", None) is code
