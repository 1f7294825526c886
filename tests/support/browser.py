"""Chromium for the tests of the console: finds it, and installs it by apt where that may be.

As a program it is a step of `make test`. It prints what pytest is to leave out: nothing where
there is a browser. Without one it says so loudly; in CI (`CI=true`) it fails.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

CHROMIUM = "chromium"
LEFT_OUT = "tests/acceptance/test_console.py"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_REMEDY = "install it (Debian, Ubuntu: apt install chromium)"


def executable() -> str:
    """Where the browser is.

    Raises:
        LookupError: If there is none; says what to do.
    """
    found = shutil.which(CHROMIUM)
    if found is None:
        msg = f"{CHROMIUM} is not installed; {_REMEDY}"
        raise LookupError(msg)
    return found


def install() -> None:
    """Install it where apt is and this user may; quick, and says nothing, if it is there."""
    if shutil.which(CHROMIUM) or os.geteuid() or not shutil.which("apt-get"):
        return
    say("Installing Chromium for the console's tests")
    for command in (["update"], ["install", "-y", "--no-install-recommends", CHROMIUM]):
        if not _apt(command):
            return


def _apt(arguments: Sequence[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(  # noqa: S603  # fixed arguments
        ["apt-get", "-qq", *arguments],  # noqa: S607  # wherever the system has it
        env=environment, stdout=sys.stderr, check=False,
    )  # fmt: skip
    return done.returncode == 0


def say(text: str) -> None:
    """To people; the standard output is pytest's."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Print pytest's arguments; 1 if there has to be a browser and is none."""
    install()
    try:
        executable()
    except LookupError as error:
        is_ci = os.environ.get("CI", "").lower() in {"1", "true"}
        consequence = "CI runs all tests" if is_ci else f"{LEFT_OUT} IS LEFT OUT"
        say(f"\n*** {consequence}: {error} ***\n")
        sys.stdout.write("" if is_ci else f"--ignore={LEFT_OUT}\n")
        return int(is_ci)
    return 0


if __name__ == "__main__":
    sys.exit(main())
