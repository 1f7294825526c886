"""Kafka's classes, read, checked and linked once for all later starts (Java's AOT cache)."""

import asyncio
import contextlib
import fcntl
import hashlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import structlog

from pop_stream.embedded.errors import EmbeddedError
from pop_stream.embedded.folder import DataFolder
from pop_stream.embedded.jvm import Jvm
from pop_stream.embedded.kafka import Kafka, plan_cluster
from pop_stream.embedded.wheels import java

Run = Callable[[Jvm, Path, Path], Awaitable[None]]

_log = structlog.get_logger(__name__)


async def run_once(jvm: Jvm, folder: Path, written: Path) -> None:
    """Start a broker on a folder of its own and stop it, so that it writes its classes."""
    with DataFolder(folder) as data:
        cluster = await asyncio.to_thread(plan_cluster, data, 1)
        broker = Kafka(data, jvm, cluster=cluster, node=cluster.nodes[0], noting=written)
        await broker.start()
        await broker.stop()


async def with_head_start(jvm: Jvm, cache: Path, *, run: Run = run_once) -> Jvm:
    """The same, with a cache of loaded classes; it is made if there is none yet.

    Making it runs a broker once, for about ten seconds, and writes some 70 MB. While another
    process makes it, and where it cannot be made, programs run without: they start later, and
    do all else the same.

    Args:
        jvm: Its files and options name the cache: another version has one of its own.
        cache: Folder that outlives data folders.
        run: Given this, a folder and a file, has Java write the file, or nothing if it cannot.
    """
    made = cache / "classes" / f"{_name(jvm)}.aot"
    try:
        with _alone(made) as is_wanted:
            if is_wanted:
                await _make(jvm, made, run)
    except (EmbeddedError, OSError) as error:
        _log.warning("kafka.head_start_missing", reason=str(error))
    return jvm.reading(made) if _has_any(made) else jvm


def _name(jvm: Jvm) -> str:
    # Java takes a cache only for the very files and options that it was made with.
    known = hashlib.sha256(repr(jvm.command("")[1:]).encode())
    for path in (java(), *jvm.jars):
        stat = path.stat()
        known.update(f"{stat.st_size} {stat.st_mtime_ns}\n".encode())
    return known.hexdigest()[:16]


def _has_any(made: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return made.stat().st_size > 0
    return False


async def _make(jvm: Jvm, made: Path, run: Run) -> None:
    _log.info("kafka.head_start_making", cache=str(made))
    with tempfile.TemporaryDirectory(dir=made.parent, prefix="making-") as folder:
        written = Path(folder) / "classes.aot"
        await run(jvm, Path(folder) / "data", written)
        # Of a Java that writes none an empty one tells later starts not to try again.
        written.touch()
        written.replace(made)
    _log.info("kafka.head_start_made", cache=str(made))


@contextlib.contextmanager
def _alone(made: Path) -> Iterator[bool]:
    """Whether it is to be made, and nobody else makes it."""
    if made.exists():
        yield False
        return
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield not made.exists()
