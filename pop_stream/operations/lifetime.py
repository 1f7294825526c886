"""How long a part runs: until a signal, or until the process that started it is gone."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

STOP_WITH_PARENT: Final = "POP_STOP_WITH_PARENT"
"""Variable that tells a part to end when its standard input does."""

_ORPHAN_GRACE_S: Final = 10.0
_STDIN: Final = 0


async def run_until_stopped(body: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `body` with an event that SIGTERM, SIGINT or the parent's death sets.

    A second signal is not caught, so an impatient operator ends the process at once.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_on_signals(loop, stop)
    if os.environ.get(STOP_WITH_PARENT):
        watch = threading.Thread(target=_watch_parent, args=(loop, stop), daemon=True)
        watch.start()
    await body(stop)


def run_until_interrupted(
    main: Coroutine[None, None, None],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> bool:
    """Run `main`; the first SIGTERM or SIGINT cancels it, so that it can clean up.

    Args:
        main: What the command does.
        loop_factory: Of the event loop; None is asyncio's own.

    Returns:
        Whether a signal ended it.
    """

    async def run() -> bool:
        stop = asyncio.Event()
        stop_on_signals(asyncio.get_running_loop(), stop)
        work = asyncio.ensure_future(main)
        interrupt = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([work, interrupt], return_when=asyncio.FIRST_COMPLETED)
        finally:
            interrupt.cancel()
            work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            return True
        return False

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(run())


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set `stop` on the first SIGTERM or SIGINT; the second has its usual effect."""

    def first(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Standard input ends when its last writer does, however that process ended."""
    while os.read(_STDIN, 1024):
        pass
    try:
        loop.call_soon_threadsafe(stop.set)
    except RuntimeError:  # the loop is closed: the process is ending anyhow
        return
    time.sleep(_ORPHAN_GRACE_S)
    os._exit(1)  # nobody is left who could end a part that hangs
