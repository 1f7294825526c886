"""The demo as a stranger runs it: real servers, real processes, real work."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from deadlines import within

FIGURES = {
    "submitted", "succeeded", "failed", "lost", "duplicates", "seconds", "jain",
    "jain_customers", "wait_p50_ms", "wait_p99_ms",
}  # fmt: skip
QUIET = ("anna", "bruno", "carla", "dora")
MINUTES_S = 200


async def run_demo(folder: Path, *arguments: str, until: str = "") -> tuple[int, str, str]:
    """Run it to its end; or until it says something, and then press Ctrl-C."""
    own = {"POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pop_stream",
        "demo", "--json", "--folder", str(folder), *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name not in own},
    )  # fmt: skip
    try:
        said = b""
        async with within(MINUTES_S):
            while until and until.encode() not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
            if until:
                process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
            err = said + err
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


def processes_of(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        known = process.info
        words = [*(known["cmdline"] or ()), *(known["environ"] or {}).values()]
        is_ours = any(str(folder) in word for word in words)
        if is_ours and known["status"] != psutil.STATUS_ZOMBIE:
            found.append(str(process))
    return found


@pytest.fixture
def folder():
    """Not below pytest's own, which every run of pytest closes to other users.

    Run as root, PostgreSQL is another user, and must keep the way to its data.
    """
    with tempfile.TemporaryDirectory(prefix="pop-stream-") as folder:
        yield Path(folder)


@pytest.mark.timeout(2 * MINUTES_S + 30)
async def test_flood_hurts_nobody_and_nothing_is_lost(folder):
    code, out, err = await run_demo(folder, "--agendas", "300")
    assert code == 0, err
    report = json.loads(out.splitlines()[-1])
    assert set(report) >= FIGURES
    assert report["submitted"] == report["succeeded"] == 300
    assert (report["failed"], report["lost"], report["duplicates"]) == (0, 0, 0)
    customers = report["customers"]
    for customer in QUIET:
        assert customers[customer]["wait_p99_ms"] < customers["flood"]["wait_p99_ms"]
    assert processes_of(folder) == []

    code, out, err = await run_demo(folder, "--agendas", "20", "--keep", until="look around")
    assert code == 0, err
    assert err.startswith("the web console will be at ")
    assert "[info" not in err, "logs are in the folder"
    again = json.loads(out.splitlines()[-1])
    assert again["submitted"] == again["succeeded"] == 20, "the report is of this run only"
    assert (again["jain"], again["jain_customers"]) == (None, 0), "two each tell nothing"
    assert processes_of(folder) == []
