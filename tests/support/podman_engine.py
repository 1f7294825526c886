"""A real container engine: Podman, serving its API on a socket in a folder of its own.

It needs Debian's packages `podman`, `runc` and `busybox-static`, and root; run as a program, it
installs them where it may, and prints which tests are to be left out otherwise. The one image
is made of BusyBox; no image is fetched, and containers have no network.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager

from deadlines import within

IMAGE = "localhost/busybox:1"
NEEDED = ("podman", "runc", "busybox")
PACKAGES = ("podman", "runc", "busybox-static")
LEFT_OUT = "tests/integrations/test_containers.py"

CONTAINERS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""

STORAGE = """
[storage]
driver = "vfs"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""


def missing():
    """What it needs that is not there."""
    programs = [one for one in NEEDED if shutil.which(one) is None]
    return programs if os.geteuid() == 0 else [*programs, "root"]


def install():
    """Install the packages, where this user may."""
    if not missing() or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    sys.stderr.write("Installing Podman for the tests of containers\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        subprocess.run(  # noqa: S603  # fixed arguments
            ["apt-get", "-qq", *command],  # noqa: S607  # wherever the system has it
            env=environment, stdout=sys.stderr, check=False,
        )  # fmt: skip


def main():
    """Print pytest's arguments; 1 if there has to be an engine and is none."""
    install()
    if not (lacking := missing()):
        return 0
    is_ci = os.environ.get("CI", "").lower() in {"1", "true"}
    consequence = "CI runs all tests" if is_ci else f"{LEFT_OUT} IS LEFT OUT"
    sys.stderr.write(f"\n*** {consequence}: missing {', '.join(lacking)} ***\n")
    sys.stdout.write("" if is_ci else f"--ignore={LEFT_OUT}\n")
    return int(is_ci)


@asynccontextmanager
async def podman(folder):
    """The engine's socket, with the image there."""
    (folder / "containers.conf").write_text(CONTAINERS)
    (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
    environment = {
        **os.environ,
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
    _import_image(folder, environment)
    socket = folder / "podman.sock"
    process = await asyncio.create_subprocess_exec(
        "podman", "system", "service", "--time", "0", f"unix://{socket}", env=environment
    )
    try:
        async with within(30):
            while not socket.exists():  # noqa: ASYNC110  # another process makes it
                await asyncio.sleep(0.05)
        yield socket
    finally:
        process.terminate()
        await process.wait()
        _run("podman", "rm", "--all", "--force", "--time", "0", env=environment)


def _import_image(folder, environment):
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
    for name in ("sh", "sleep", "echo"):
        (root / "bin" / name).symlink_to("busybox")
    archive = shutil.make_archive(str(folder / "image"), "tar", root)
    _run("podman", "import", archive, IMAGE, env=environment)


def _run(*command, env):
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
