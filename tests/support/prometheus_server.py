"""Prometheus and promtool for tests: Debian's package, fetched where apt is, and a server.

Nothing is installed into the system: the package is unpacked below .venv, so that no service
starts. A user who may not update apt's lists needs ones that are there.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from deadlines import within

from pop_stream.devserver.folder import PORTS, is_free_port

PACKAGE = "prometheus"
LEFT_OUT = "tests/acceptance/test_prometheus.py"
UNPACKED = Path(sys.prefix) / PACKAGE
REMEDY = "install it (Debian, Ubuntu: apt install prometheus)"


def executable(name: str) -> str:
    """Where `prometheus` or `promtool` is.

    Raises:
        LookupError: If it is nowhere; says what to do.
    """
    found = shutil.which(name) or shutil.which(name, path=UNPACKED / "usr" / "bin")
    if found is None:
        msg = f"{name} is not installed; {REMEDY}"
        raise LookupError(msg)
    return found


def fetch() -> None:
    """Unpack the package unless it is there or apt is not."""
    if shutil.which("promtool") or (UNPACKED / "usr").exists() or not shutil.which("apt-get"):
        return
    sys.stderr.write("Fetching Prometheus for the tests of rules and dashboards\n")
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            _run(["apt-get", "-qq", "update"], folder)
        _run(["apt-get", "-qq", "download", PACKAGE], folder)
        for archive in Path(folder).glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(archive), str(UNPACKED)], folder)


def _run(command: Sequence[str], folder: str) -> None:
    subprocess.run(  # noqa: S603  # fixed arguments
        command, cwd=folder, stdout=sys.stderr, check=False
    )


@dataclass(frozen=True)
class PrometheusServer:
    url: str

    async def get(self, path: str, **params: str) -> object:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/{path}", params=params) as answer,
        ):
            body = await answer.json()
        assert body["status"] == "success", (params, body)
        return body["data"]

    async def values(self, query: str) -> list[float]:
        """What a query returns now, series by series; those that are no number are left out."""
        data = await self.get("query", query=query)
        found = (
            [one["value"] for one in data["result"]] if data["resultType"] == "vector" else []
        )
        return [float(value) for _, value in found if value != "NaN"]


@asynccontextmanager
async def prometheus(
    folder: Path, targets: Mapping[str, int], rules: Path
) -> AsyncIterator[PrometheusServer]:
    """A server that scrapes these ports of this machine each second, by job."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for job, port in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = next(one for one in reversed(PORTS) if is_free_port(one))
    process = await asyncio.create_subprocess_exec(
        executable("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
    try:
        yield await _ready(PrometheusServer(f"http://127.0.0.1:{port}"))
    finally:
        process.terminate()
        await process.wait()


async def _ready(server: PrometheusServer) -> PrometheusServer:
    async with within(30):
        while True:
            try:
                await server.values("vector(1)")
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.1)
            else:
                return server


def main() -> int:
    """Print pytest's arguments; 1 if CI has no Prometheus."""
    fetch()
    try:
        executable("promtool")
    except LookupError as error:
        is_ci = os.environ.get("CI", "").lower() in {"1", "true"}
        consequence = "CI runs all tests" if is_ci else f"{LEFT_OUT} IS LEFT OUT"
        sys.stderr.write(f"\n*** {consequence}: {error} ***\n")
        sys.stdout.write("" if is_ci else f"--ignore={LEFT_OUT}\n")
        return int(is_ci)
    return 0


if __name__ == "__main__":
    sys.exit(main())
