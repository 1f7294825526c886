"""`pop-stream dev` from its start to its end, however that comes."""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from deadlines import within

PATIENCE_S = 90
AGENDA = {"customer_id": "anna", "operations": [{"name": "only", "type": "noop"}]}


@dataclass
class Dev:
    """A running `pop-stream dev`.

    Attributes:
        family: All processes that it started, directly or not.
        said: What it printed until it was ready.
    """

    process: asyncio.subprocess.Process
    url: str
    family: list[psutil.Process]
    said: str

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        async with within(PATIENCE_S):
            await self.process.communicate()
        return self.process.returncode

    async def survivors(self) -> list[psutil.Process]:
        _, alive = await asyncio.to_thread(psutil.wait_procs, self.family, timeout=PATIENCE_S)
        return alive


async def pop_stream(*arguments: str, given: str = "", url: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pop_stream", *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"POP_API_URL": url},
    )  # fmt: skip
    async with within(PATIENCE_S):
        out, err = await process.communicate(given.encode())
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which every run of pytest closes to other users.

    Run as root, PostgreSQL is another user, and must keep the way to its data.
    """
    with tempfile.TemporaryDirectory(prefix="pop-stream-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest_asyncio.fixture
async def dev(folder: Path, unused_tcp_port: int) -> AsyncIterator[Dev]:
    own = {"POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pop_stream", "dev",
        "--folder", str(folder), "--port", str(unused_tcp_port),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name not in own},
    )  # fmt: skip
    said = []
    try:
        async with within(PATIENCE_S):
            async for line in process.stdout:
                said.append(line.decode())
                if "ready" in said[-1]:
                    break
        assert process.returncode is None, "".join(said)
        family = psutil.Process(process.pid).children(recursive=True)
        url = f"http://127.0.0.1:{unused_tcp_port}"
        yield Dev(process, url, family, "".join(said))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_what_it_prints_is_for_people_and_begins_with_the_consoles_address(dev, folder):
    first, *_ = dev.said.splitlines()
    assert first == f"the web console will be at {dev.url}/ui/"
    assert not re.search(r"\d{4}-\d\d-\d\dT|\[(info|warning|error) *\]", dev.said), dev.said
    assert "kafka.started" in (folder / "logs" / "dev.log").read_text()


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_agenda_goes_through_and_ctrl_c_ends_everything(dev):
    code, out, err = await pop_stream(
        "submit", "-", "--wait", "--json", given=json.dumps(AGENDA), url=dev.url
    )
    assert code == 0, err
    agenda_id = json.loads(out.splitlines()[-1])["id"]

    code, out, err = await pop_stream("watch", agenda_id, "--json", url=dev.url)
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["state"] == "succeeded"

    code, out, err = await pop_stream("progress", agenda_id, "--json", url=dev.url)
    assert code == 0, err
    assert json.loads(out)["operations"][0]["state"] == "succeeded"

    code, out, err = await pop_stream("submit", "-", given='{"operations": []}', url=dev.url)
    assert code == 1
    assert "customer_id" in err

    dev.end(signal.SIGINT)
    assert await dev.exit_code() == 0
    assert await dev.survivors() == []


def exposed(folder):
    """What another user may read, through folders that it may pass."""
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if mode & 0o066 and not path.is_symlink():
            yield path
        if path.is_dir() and mode & 0o011:
            yield from exposed(path)


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_nobody_else_on_the_machine_can_read_its_data_and_logs(dev, folder):
    code, _, _ = await pop_stream("submit", "-", given=json.dumps(AGENDA), url=dev.url)
    assert code == 0
    assert {"kafka", "postgres", "logs", "scheduler"} <= {one.name for one in folder.iterdir()}
    assert [*exposed(folder)] == []


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_killed_supervisor_leaves_nothing_running(dev):
    assert len(dev.family) >= 6
    dev.end(signal.SIGKILL)
    assert await dev.exit_code() == -signal.SIGKILL
    assert await dev.survivors() == []
