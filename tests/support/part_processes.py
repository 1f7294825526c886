"""Parts in processes of their own, to be killed and frozen."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import crash_points

from pop_stream.settings import Settings

PART = (
    "import asyncio, importlib, sys; "
    "from pop_stream.settings import Settings; "
    "name = 'pop_stream.composition.' + sys.argv[1].removeprefix('run_'); "
    "part = importlib.import_module(name); "
    "asyncio.run(getattr(part, sys.argv[1])(Settings(), asyncio.Event()))"
)


@asynccontextmanager
async def process(
    name: str,
    settings: Settings,
    program: str = PART,
    crash_point: str | None = None,
    **variables: str,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A part in a process of its own, killed at the end; or by itself, at a crash point."""
    if crash_point is not None:
        program = crash_points.program(crash_point, then=program)
    known = variables | {
        "POP_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "POP_TOPIC_PREFIX": settings.topic_prefix,
        "POP_SCHEDULER_DATA": str(settings.scheduler_data),
    }
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, name, env=os.environ | known
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGCONT)
            started.send_signal(signal.SIGKILL)
        await started.wait()
