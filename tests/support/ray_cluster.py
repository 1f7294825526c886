"""A real Ray cluster of one node, with its dashboard, in a folder of its own."""

import asyncio
import os
import random
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from deadlines import within

from pop_stream.devserver.folder import PORTS, is_free_port


def _free_ports(count):
    return [one for one in random.sample(PORTS, 50) if is_free_port(one)][:count]


@asynccontextmanager
async def ray_cluster(folder, modules):
    """The dashboard's URL.

    Args:
        folder: Short, as Ray makes sockets in it.
        modules: Where jobs find modules of their own.
    """
    head, dashboard, client, agent = _free_ports(4)
    program = Path(sys.executable).with_name("ray")
    options = {
        "port": head,
        "dashboard-host": "127.0.0.1",
        "dashboard-port": dashboard,
        "ray-client-server-port": client,
        "dashboard-agent-listen-port": agent,
        "min-worker-port": 0,
        "max-worker-port": 0,
        "num-cpus": 4,
        "object-store-memory": 100_000_000,
        "temp-dir": folder,
    }
    # Nothing of this process' own: its debug modes are not the cluster's.
    kept = {"HOME", "LANG", "TMPDIR"}
    environment = {name: value for name, value in os.environ.items() if name in kept}
    environment |= {
        "PATH": os.pathsep.join([str(program.parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": str(modules),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    process = await asyncio.create_subprocess_exec(
        program,
        "start",
        "--head",
        "--block",
        "--disable-usage-stats",
        "--include-dashboard=true",
        *(f"--{name}={value}" for name, value in options.items()),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{dashboard}"
    try:
        await _until_jobs_can_run(url, process)
        yield url
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _until_jobs_can_run(url, process):
    """Wait until the dashboard lists its one node and its jobs."""
    async with within(120), aiohttp.ClientSession() as session:
        while process.returncode is None:
            with suppress(aiohttp.ClientError, OSError, ValueError):
                async with session.get(f"{url}/api/jobs/") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
    msg = f"ray start ended with {process.returncode}"
    raise RuntimeError(msg)
