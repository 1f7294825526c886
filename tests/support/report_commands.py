"""`pop-stream` commands that report, each as a process of its own."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from deadlines import within

from pop_stream.settings import Settings

PATIENCE_S = 200


def servers_of(settings: Settings) -> Mapping[str, str]:
    """Variables that name the servers a benchmark is to use."""
    return {
        "POP_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "POP_POSTGRES_DSN": settings.postgres_dsn.get_secret_value(),
    }


async def reported(
    *arguments: str, servers: Mapping[str, str]
) -> tuple[int, Mapping[str, Any], str]:
    """Run a command to its end: its exit code, its report, and what it said besides."""
    own = {"POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN"}
    inherited = {name: value for name, value in os.environ.items() if name not in own}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pop_stream", *arguments, "--json",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, **servers},
    )  # fmt: skip
    try:
        async with within(PATIENCE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    lines = out.decode().splitlines()
    assert lines, err.decode()
    return process.returncode, json.loads(lines[-1]), err.decode()


async def bench(*arguments: str, servers: Mapping[str, str]) -> Mapping[str, Any]:
    """Run a benchmark to its end; returns its report."""
    code, report, said = await reported("bench", *arguments, servers=servers)
    assert code == 0, said
    return report
