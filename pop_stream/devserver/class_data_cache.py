"""Java's ahead-of-time class cache: Kafka's classes, read, checked and linked once.

Whichever process needs a broker first runs one on an empty folder to record its classes, which
takes about ten seconds and writes some 70 MB; all later starts of the same jars, options and
Java are faster by seconds. A cache that cannot be made is no error.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import structlog

from pop_stream.devserver.errors import DevServerError
from pop_stream.devserver.folder import DataFolder
from pop_stream.devserver.jvm import Jvm
from pop_stream.devserver.kafka import Kafka, plan_cluster
from pop_stream.devserver.wheels import java

RecordClasses = Callable[[Jvm, Path, Path], Awaitable[None]]


_log = structlog.get_logger(__name__)


async def record_classes(jvm: Jvm, folder: Path, written: Path) -> None:
    """Start a broker on a folder of its own and stop it, so that it writes its classes."""
    with DataFolder(folder) as data:
        cluster = await asyncio.to_thread(plan_cluster, data, 1)
        broker = Kafka(
            data, jvm, cluster=cluster, node=cluster.nodes[0], class_cache_target=written
        )
        await broker.start()
        await broker.stop()


async def with_class_data_cache(
    jvm: Jvm, cache: Path, *, run: RecordClasses = record_classes
) -> Jvm:
    """The same, with a cache of loaded classes; it is made if there is none yet.

    Making it runs a broker once, for about ten seconds, and writes some 70 MB. While another
    process makes it, and where it cannot be made, programs run without: they start later, and
    do all else the same.

    Args:
        jvm: Its files and options name the cache: another version has one of its own.
        cache: Folder that outlives data folders.
        run: Given this, a folder and a file, has Java write the file, or nothing if it cannot.
    """
    made = cache / "classes" / f"{_cache_name(jvm)}.aot"
    try:
        with _sole_maker(made) as is_wanted:
            if is_wanted:
                await _make_cache(jvm, made, run)
    except (DevServerError, OSError) as error:
        _log.warning("kafka.class_cache.missing", reason=str(error))
    return jvm.with_classes(made) if _has_cache(made) else jvm


def _cache_name(jvm: Jvm) -> str:
    # Java takes a cache only for the very files and options that it was made with.
    known = hashlib.sha256(repr(jvm.command("")[1:]).encode())
    for path in (java(), *jvm.jars):
        stat = path.stat()
        known.update(f"{stat.st_size} {stat.st_mtime_ns}\n".encode())
    return known.hexdigest()[:16]


def _has_cache(made: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return made.stat().st_size > 0
    return False


async def _make_cache(jvm: Jvm, made: Path, run: RecordClasses) -> None:
    _log.info("kafka.class_cache.recording", cache=str(made))
    with tempfile.TemporaryDirectory(dir=made.parent, prefix="making-") as folder:
        written = Path(folder) / "classes.aot"
        await run(jvm, Path(folder) / "data", written)
        # Of a Java that writes none an empty one tells later starts not to try again.
        written.touch()
        written.replace(made)
    _log.info("kafka.class_cache.recorded", cache=str(made))


@contextlib.contextmanager
def _sole_maker(made: Path) -> Iterator[bool]:
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
