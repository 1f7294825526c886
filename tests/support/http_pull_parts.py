"""All parts but pullers in processes of their own, for workers that pull over HTTP."""

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import timedelta

import crash_points
from deadlines import scaled, within

from pop_stream.operations import provisioning

WITHIN_S = 60

# Leases are longer than sessions, or they would end before a killed API counts as away.
DEFINITIONS = """
[customers.acme]
[insights.media]
partitions = 2
lease_ms = LEASE
max_attempts = 5
[insights.media.mappers]
operation_types = ["work"]
"""


@asynccontextmanager
async def part(settings, name, crash_point=None, **variables):
    """One long-running part in a process of its own; what it wrote to standard output."""
    process = await asyncio.create_subprocess_exec(
        *crash_points.command(crash_point),
        name,
        env={
            **os.environ,
            "POP_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
            "POP_TOPIC_PREFIX": settings.topic_prefix,
            "POP_POSTGRES_DSN": settings.postgres_dsn.get_secret_value(),
            "POP_SCHEDULER_DATA": str(settings.scheduler_data),
            "POP_HTTP_PORT": "0",
            "POP_SESSION_TIMEOUT": f"PT{settings.session_timeout.total_seconds():.1f}S",
            **variables,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def api_process(settings, **variables):
    """`pop-stream serve`, and its address."""
    async with part(settings, "serve", **variables) as process, within(WITHIN_S):
        while not (line := (await process.stdout.readline()).decode()).startswith("http"):
            assert line, "the process has ended"
        yield process, line.strip()


@asynccontextmanager
async def parts_running(settings, tmp_path):
    """Ingest, scheduler and rollup; the settings by which an API belongs to them."""
    file = tmp_path / "definitions.toml"
    busy = scaled(1.0)
    file.write_text(DEFINITIONS.replace("LEASE", f"{busy * 4000:.0f}"))
    settings = settings.model_copy(
        update={
            "definitions_file": file,
            "scheduler_data": tmp_path / "scheduler",
            "session_timeout": timedelta(seconds=busy * 2),
        }
    )
    await provisioning.migrate(settings)
    async with (
        part(settings, "ingest"),
        part(settings, "scheduler"),
        part(settings, "rollup"),
    ):
        yield settings
