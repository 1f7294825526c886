"""The data folder: who owns it, what lies where, and which ports it keeps."""

import contextlib
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from pop_stream.devserver.errors import DevServerError, FolderLockedError

# Below the range from which Linux (32768) and macOS (49152) hand out ports for outgoing
# connections, so that a remembered port is not taken by a passing client meanwhile.
PORTS = range(20_000, 32_000)
_PORT_TRIES = 200


class DataFolder:
    """One owner's folder; use as a context manager to own it.

    Entering twice, from this process or another, raises `FolderLockedError`. The lock is
    the kernel's, so a killed owner leaves none behind.
    """

    def __init__(self, path: Path, *, is_free: Callable[[int], bool] | None = None) -> None:
        self.path = path.expanduser().absolute()
        self.kafka = self.path / "kafka"
        self.postgres = self.path / "postgres"
        self._ports = self.path / "ports.json"
        self._is_free = is_free or is_free_port
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.kafka, self.postgres):
                make_private(folder)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            msg = f"Cannot use the data folder {self.path}: {error}. Choose one you may write."
            raise DevServerError(msg) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            raise FolderLockedError(
                self.path, int(holder) if holder.isdigit() else None
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def signing_secret(self) -> str:
        """What the parts that work on these data sign with; made by the first to ask.

        It lasts as long as the data: what was signed with another is not believed.
        """
        kept = self.path / "signing-secret"
        if not kept.exists():
            made = kept.with_suffix(".new")
            made.unlink(missing_ok=True)
            made.touch(mode=0o600)
            made.write_text(secrets.token_hex(32))
            made.rename(kept)
        return kept.read_text()

    def port(self, name: str) -> int:
        """The loopback port of a server: the remembered one while free, else a new one.

        Clients that outlive a restart find the server again. Call only as the owner.

        Raises:
            DevServerError: If no port of `PORTS` is free.
        """
        remembered = self._remembered()
        port = remembered.get(name)
        taken = {other for owner, other in remembered.items() if owner != name}
        if port is None or not self._is_free(port):
            port = self._free_port(taken)
            self._ports.write_text(json.dumps(remembered | {name: port}, indent=2) + "\n")
        return port

    def _remembered(self) -> dict[str, int]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = json.loads(self._ports.read_text())
            if isinstance(found, dict):
                return {str(k): v for k, v in found.items() if isinstance(v, int)}
        return {}

    def _free_port(self, taken: set[int]) -> int:
        for _ in range(_PORT_TRIES):
            port = secrets.choice(PORTS)
            if port not in taken and self._is_free(port):
                return port
        msg = f"No free loopback port between {PORTS.start} and {PORTS.stop}"
        raise DevServerError(msg)


def make_private(folder: Path) -> None:
    """Make a folder, or close one that is there: other users cannot look into it.

    For root, who runs PostgreSQL as another user, they can pass through it if they could.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = 0o711 if os.geteuid() == 0 else 0o700
    folder.chmod(folder.stat().st_mode & kept)


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Close to other users all files that this process, and those it starts, make meanwhile."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def is_free_port(port: int) -> bool:
    """Whether a server could listen there on loopback now."""
    with socket.socket() as probe:
        # Servers set it too: a port in TIME_WAIT after a stop still counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
