"""The disk that all data are on fills up under load, and is given room again."""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import aiohttp
import psutil
import pytest
from deadlines import within
from whole_system import LOOK_S, WITHIN_S, agenda, running

pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder with a small file system of its own; it takes root to mount one."""
    with tempfile.TemporaryDirectory(prefix="pop-stream-disk-") as folder:
        mount = ("mount", "-t", "tmpfs", "-o", "size=300m,mode=755", "tmpfs", folder)
        done = subprocess.run(mount, check=False, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            pytest.skip(f"this machine lets nobody mount a small disk here: {done.stderr}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(("umount", "--lazy", folder), check=True)  # noqa: S603, S607


def fill(ballast: Path) -> None:
    """Leave not a byte."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                for _ in count():
                    file.write(bytes(size))


async def refusal(system, method, path, **body):
    """Status, Retry-After and problem, once it is one."""
    async with (
        within(WITHIN_S),
        aiohttp.ClientSession(system.settings.api_url) as session,
    ):
        while True:
            async with session.request(method, path, **body) as response:
                if response.status not in {200, 202}:
                    problem = await response.json(content_type=None)
                    return response.status, int(response.headers["Retry-After"]), problem
            await asyncio.sleep(LOOK_S)


async def test_a_full_disk_is_reported_and_costs_nothing_that_was_accepted(disk, monkeypatch):
    async with running(monkeypatch, folder=disk, pullers=1, restarts_servers=True) as system:
        async with system.load("full") as load:
            await system.more_started(load.run, 20)
            broker = system.stack.servers.processes["kafka"]
            fill(disk / "ballast")
            # Without an id, for one that was accepted would be answered as it was.
            nameless = {**agenda(""), "id": None}
            status, wait_s, problem = await refusal(
                system, "POST", "/v1/agendas", json=nameless
            )
            assert (status, problem["code"]) == (503, "unavailable")
            assert wait_s > 0
            await system.until(lambda: not psutil.pid_exists(broker))  # as Kafka does then
            status, _, problem = await refusal(system, "GET", "/readyz")
            assert (status, problem["parts"]["kafka"]) == (503, "away")
            (disk / "ballast").unlink()
            await system.more_started(load.run, 40)
        await system.kept(load, by_each_puller=True)
