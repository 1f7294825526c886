"""A client for programs without an event loop: it lives in the loop of a thread of its own."""

import asyncio
import atexit
import os
import selectors
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from pop_stream.client import Client

T = TypeVar("T")

Work = Callable[[Client], Awaitable[T]]


class _Selector(selectors.DefaultSelector):
    """A selector that has no entries once it is closed."""

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        # A closed one has None, on which a loop that closes its connections fails.
        return super().get_map() or {}


class ClientThread:
    """One client, used by any number of threads and event loops.

    Its connections are kept between calls. The thread is a daemon: an answer that is awaited
    when the interpreter ends is lost.

    Args:
        url: Where the API listens.
        token: Key or token to show it; None shows none.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._client = Client(url, token=token)
        self._selector = _Selector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pop-stream-client", daemon=True
        )
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._client.__aenter__(), self._loop).result()

    def call(self, work: Work[T]) -> T:
        """What the work returns; blocks the calling thread, never that of the client.

        Raises:
            BaseException: What the work raises.
        """
        return self._start(work).result()

    async def acall(self, work: Work[T]) -> T:
        """What the work returns; a call that is cancelled cancels the work.

        Raises:
            BaseException: What the work raises.
        """
        return await asyncio.wrap_future(self._start(work))

    def close(self) -> None:
        """Close all connections and end the thread; what is under work is given up."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def leave_to_parent(self) -> None:
        """Let go of what a fork has copied; call it in the child, where the thread is not.

        Both processes have one and the same kernel object behind the selector. A connection
        that the child closes, as when it ends, would be taken out of it, and the parent would
        never see its answer.
        """
        self._selector.close()

    def _start(self, work: Work[T]) -> "Future[T]":
        async def run() -> T:
            return await work(self._client)

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._client.__aexit__(None, None, None)


class _ClientThreads:
    """The clients of this process, one for each address and token."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str | None], ClientThread] = {}
        self._inherited: list[ClientThread] = []

    def get(self, url: str, token: str | None) -> ClientThread:
        with self._lock:
            known = self._open.get((url, token))
            if known is None:
                known = self._open[url, token] = ClientThread(url, token)
            return known

    def close(self) -> None:
        with self._lock:
            for one in self._open.values():
                one.close()
            self._open.clear()

    def begin_child(self) -> None:
        # A forked process has neither the threads of its parent nor whoever holds the lock.
        self._lock = threading.Lock()
        for one in self._open.values():
            one.leave_to_parent()
        # Kept, for its connections would be closed with it.
        self._inherited += self._open.values()
        self._open = {}


_threads = _ClientThreads()
os.register_at_fork(after_in_child=_threads.begin_child)
atexit.register(_threads.close)


def client_thread(url: str, token: str | None = None) -> ClientThread:
    """The client of this process for an address and a token, made with the first call.

    Ask for it before each use: a process that was forked meanwhile gets one of its own.
    """
    return _threads.get(url, token)


def close_clients() -> None:
    """Close what `client_thread` opened; the next call opens anew. At exit this is done."""
    _threads.close()
