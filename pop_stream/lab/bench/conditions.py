"""The conditions of a measurement: machine, versions, settings, commit; and its data folder."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from pop_stream.settings import Settings

_PACKAGES: Final = ("aiokafka", "asyncpg", "faust-streaming", "msgspec", "pydantic", "uvloop")


def conditions(**settings: object) -> Mapping[str, Any]:
    """Facts about the machine now, to be asked before anything is started.

    Args:
        settings: What else decides the result, by name.
    """
    return {
        **settings,
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "load_before": [round(one, 2) for one in os.getloadavg()],
        "commit": commit(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "variables": _variables(),
    }


def commit() -> str | None:
    """The checkout that this code runs from; None for an installed package."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(  # noqa: S603  # nothing in it comes from outside
            ["git", "-C", str(here), "describe", "--always", "--dirty"],  # noqa: S607  # any git
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def _variables() -> Mapping[str, str]:
    """Settings from the environment, but for secret ones."""
    shown = {
        f"POP_{name.upper()}"
        for name, field in Settings.model_fields.items()
        if "Secret" not in str(field.annotation)
    }
    return {name: os.environ[name] for name in sorted(shown & os.environ.keys())}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


@contextmanager
def data_folder(bench_options: Path | None) -> Iterator[Path]:
    """The wanted folder, made if need be; without one, a folder that is removed at the end."""
    if bench_options is not None:
        yield bench_options.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="pop-stream-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
