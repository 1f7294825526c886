"""Kafka's jars: pinned coordinates, recorded checksums, one cache, no Maven."""

import fcntl
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import structlog

from pop_stream.devserver.errors import DevServerError, JarsUnavailableError
from pop_stream.devserver.wheels import wheel_folder

KAFKA_VERSION = "4.3.0"
# Kafka's POM leaves the binding of its logging API to the distribution; without one a broker
# writes no log at all.
ROOTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
RECORD = Path(__file__).with_name(f"kafka-{KAFKA_VERSION}.sha256")
COORDINATES = ", ".join(":".join(root) for root in ROOTS)

Download = Callable[[Path, str], object]

_DOWNLOADS_AT_ONCE = 8
_ATTEMPTS = 2
_LOCK_RETRY_S = 0.1
_CHUNK = 1 << 20
_log = structlog.get_logger(__name__)


def default_cache() -> Path:
    """The platform's folder for what can be fetched again, shared by all data folders."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pop-stream"


def kafka_jars(
    cache: Path,
    *,
    record: Path = RECORD,
    download: Download | None = None,
    cancelled: threading.Event | None = None,
) -> list[Path]:
    """Paths of Kafka's jars, fetched if the cache lacks or has damaged any.

    Blocks: about a tenth of a second when all are present, which needs no network, else as
    long as 45 MB take. Callers in several processes wait for one another.

    Args:
        cache: Folder for the jars; made if missing.
        record: Lines of `sha256sum`, paths as in a Maven repository.
        download: Fetches one jar; by default with jgo from Maven Central.
        cancelled: Set by another thread to give up between two downloads.

    Raises:
        JarsUnavailableError: If a jar cannot be had or has another checksum than recorded.
    """
    repository = cache / "maven"
    wanted = _recorded(record)
    cancelled = cancelled or threading.Event()
    try:
        if _damaged(repository, wanted):
            repository.mkdir(parents=True, exist_ok=True)
            with _alone(repository / ".lock", cancelled):
                _fetch(repository, wanted, download or _download, cancelled)
        damaged = _damaged(repository, wanted)
    except OSError as error:  # those of requests, which jgo uses, are OSErrors too
        raise _unavailable(cache, f"{type(error).__name__}: {error}") from error
    except (DevServerError, RuntimeError) as error:  # the latter: jgo knows no such artifact
        raise _unavailable(cache, str(error)) from error
    if damaged:
        names = ", ".join(PurePosixPath(path).name for path in damaged)
        raise _unavailable(cache, f"missing, or not the checksum of {record.name}: {names}")
    return [repository / path for path in wanted]


def record_lines(repository: Path) -> Iterator[str]:
    """Resolve `ROOTS` afresh and yield what a new record file should say, sorted.

    For an upgrade of Kafka: run it once, read the difference, check the file in.
    """
    from jgo.maven import Dependency, MavenContext, PythonResolver  # noqa: PLC0415

    context = MavenContext(repo_cache=repository, resolver=PythonResolver())
    # Raw: as a BOM, the logging binding would impose its own older versions on Kafka.
    roots = [
        Dependency(
            context.project(group, name).at_version(version).artifact(),
            scope="compile",
            raw=True,
        )
        for group, name, version in ROOTS
    ]
    inputs, transitive = context.resolver.resolve(roots)
    paths = {dependency.artifact.resolve() for dependency in [*inputs, *transitive]}
    for path in sorted(paths):
        yield f"{_sha256(path)}  {path.relative_to(repository).as_posix()}"


def _recorded(record: Path) -> dict[str, str]:
    lines = (line.split(maxsplit=1) for line in record.read_text().splitlines() if line)
    return {path: checksum for checksum, path in lines}


def _damaged(repository: Path, wanted: dict[str, str]) -> list[str]:
    return [path for path, checksum in wanted.items() if _sha256(repository / path) != checksum]


def _sha256(path: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as jar:
            while chunk := jar.read(_CHUNK):
                digest.update(chunk)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _fetch(
    repository: Path, wanted: dict[str, str], download: Download, cancelled: threading.Event
) -> None:
    # Looked at again under the lock: whoever held it before has probably fetched them all.
    missing = _damaged(repository, wanted)
    if not missing:
        return
    _log.info("kafka.jars.fetching", jars=len(missing), cache=str(repository))

    failed = threading.Event()

    def fetch_one(path: str) -> None:
        for attempt in range(_ATTEMPTS):
            if cancelled.is_set() or failed.is_set():
                return
            (repository / path).unlink(missing_ok=True)  # half a jar is no jar
            try:
                download(repository, path)
            except (OSError, RuntimeError):
                if attempt + 1 == _ATTEMPTS:
                    failed.set()  # without a network, no other jar need wait for a timeout
                    raise
            else:
                return

    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE, thread_name_prefix="jars") as pool:
        list(pool.map(fetch_one, missing))  # raises the first error
    _log.info("kafka.jars.fetched", jars=len(missing))


def _download(repository: Path, path: str) -> None:
    wheel_folder("jgo")
    # Imported late: it costs a fifth of a second that a filled cache need not pay.
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415

    *group, name, version, _ = PurePosixPath(path).parts
    context = MavenContext(repo_cache=repository, resolver=PythonResolver())
    context.project(".".join(group), name).at_version(version).artifact().resolve()


@contextmanager
def _alone(path: Path, cancelled: threading.Event) -> Iterator[None]:
    with path.open("w") as lock:
        while not _locked(lock) and not cancelled.wait(_LOCK_RETRY_S):
            pass
        yield


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unavailable(cache: Path, reason: str) -> JarsUnavailableError:
    return JarsUnavailableError(coordinates=COORDINATES, cache=cache, reason=reason)
