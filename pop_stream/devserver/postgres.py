"""One real PostgreSQL server, from the binaries of a wheel, for a single machine."""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psutil
import structlog

from pop_stream.devserver import wheels
from pop_stream.devserver.errors import DevServerError, ServerStartError
from pop_stream.devserver.folder import DataFolder
from pop_stream.devserver.process import (
    Launch,
    ServerProcess,
    ServerUser,
    end_leftovers,
    run_to_end,
)
from pop_stream.postgres.pool import accepts_connections

POSTGRES_MAJOR = "18"
_INIT_LIMIT_S = 60.0
_START_LIMIT_S = 60.0
_RETRY_S = 0.05
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # Loopback with a password reaches every client, whatever its user and however long the
    # folder's path; a Unix socket's path must stay below 108 bytes.
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_NAME = "postgres"
_FAST_STOP = signal.SIGINT  # ends sessions, then checkpoints; SIGTERM waits for clients
_OWNER_EXECUTE = 0o100
_OTHERS_READ_BIT = 0o004
_OTHERS_EXECUTE = 0o001
_log = structlog.get_logger(__name__)


class Postgres:
    """A server in `folder.postgres`, which only its password opens.

    It may be started again after it ended.

    The port is kept over restarts while it is free. What was committed survives a kill of the
    process and a loss of power.

    Attributes:
        dsn: For clients, with the password, once started.
    """

    def __init__(self, folder: DataFolder) -> None:
        self.dsn = ""
        self._folder = folder
        self._home = folder.postgres
        self._data = self._home / "data"
        self._password = self._home / "password"
        self._process: ServerProcess | None = None
        self._port: int | None = None

    @property
    def pid(self) -> int | None:
        """The postmaster's process, None before it was started."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Initialise the data folder if it is new, start, and wait until a query is answered.

        Raises:
            DevServerError: If the data are of another major version, or out of reach of the
                user that PostgreSQL becomes when root runs it.
            ServerStartError: If the server ends or does not answer within a minute.
        """
        identity = await asyncio.to_thread(self._prepare)
        await asyncio.to_thread(self._end_leftovers)
        await self._initialise(identity)
        # Asked for once: while a session of a killed server lingers, its port is not free.
        port = self._port = self._port or self._folder.port("postgres")
        self._process = process = ServerProcess(self._launch(port, identity))
        password = quote(self._password.read_text())
        self.dsn = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres?sslmode=disable"
        process.spawn()
        try:
            await process.record_pid()
            await self._until_accepting(process)
        except BaseException:
            await self.stop()
            raise
        _log.info("postgres.started", port=port, pid=self.pid)

    def request_stop(self) -> None:
        """Ask for an orderly end without waiting for it."""
        if self._process is not None:
            self._process.request_stop()

    async def stop(self) -> None:
        """End in order, killed after a grace; harmless if it never started."""
        if self._process is None:
            return
        was_running = self._process.is_running
        await self._process.stop()
        if was_running:
            _log.info("postgres.stopped")

    async def ended(self) -> ServerStartError:
        """Wait until the server ends by itself, and return what its log says."""
        assert self._process is not None  # noqa: S101  only a started server is watched
        code = await self._process.ended()
        return self._process.start_error(f"it ended with exit code {code}")

    def _prepare(self) -> ServerUser | None:
        version = self._data / "PG_VERSION"
        if version.exists() and (found := version.read_text().strip()) != POSTGRES_MAJOR:
            msg = f"{self._data} was written by PostgreSQL {found}, this is {POSTGRES_MAJOR}"
            raise DevServerError(msg)
        if os.geteuid() != 0:
            return None
        identity = _unprivileged_user()
        with _explaining_permissions(identity, self._data):
            _allow_traversal(self._data)
            _allow_read(wheels.postgres("postgres"))
            _chown_tree(self._data, identity)
        return identity

    def _launch(self, port: int, identity: ServerUser | None) -> Launch:
        settings = _SETTINGS | {"port": str(port)}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return Launch(
            _NAME,
            (str(wheels.postgres("postgres")), "-D", str(self._data), *options),
            self._home,
            stop_signal=_FAST_STOP,
            identity=identity,
        )

    async def _initialise(self, identity: ServerUser | None) -> None:
        if self._data.exists():
            return
        # Initialised aside and renamed: an initdb cut short never looks like a database.
        aside = self._home / "init"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        self._password.touch(mode=0o600)
        self._password.write_text(secrets.token_urlsafe(24))
        if identity is not None:
            with _explaining_permissions(identity, self._data):
                os.chown(aside, identity.uid, identity.gid)
                os.chown(self._password, identity.uid, identity.gid)
        command = (
            *(str(wheels.postgres("initdb")), "-D", str(aside), "-U", "postgres", "-E", "UTF8"),
            *("--auth=scram-sha-256", f"--pwfile={self._password}", "--no-instructions"),
            *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        )
        launch = Launch("postgres-init", command, self._home, identity=identity)
        await run_to_end(launch, limit_s=_INIT_LIMIT_S)
        aside.rename(self._data)

    def _end_leftovers(self) -> None:
        end_leftovers(self._home, _NAME, _FAST_STOP)
        lock = self._data / "postmaster.pid"
        if lock.exists():
            _end_postmaster(int(lock.read_text().split(maxsplit=1)[0]), self._data)
            # A pid reused by another process since a crash would keep the server from starting.
            lock.unlink(missing_ok=True)

    async def _until_accepting(self, process: ServerProcess) -> None:
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                while not await accepts_connections(self.dsn):
                    if not process.is_running:
                        raise await self.ended()
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError as error:
            reason = f"no answer within {_START_LIMIT_S:.0f} s"
            raise process.start_error(reason) from error


def _unprivileged_user() -> ServerUser:
    """Whom PostgreSQL runs as for root, which it refuses itself."""
    for name in ("pgserver", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerUser(entry.pw_uid, entry.pw_gid)
    msg = "PostgreSQL refuses to run as root, and there is no user 'nobody' to run it as"
    raise DevServerError(msg)


@contextmanager
def _explaining_permissions(identity: ServerUser, data: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = (
            f"For root, PostgreSQL has to run as another user, {identity.uid}, who must"
            f" own {data} and read {wheels.postgres('postgres')}: {error}"
        )
        raise DevServerError(msg) from error


def _allow_traversal(path: Path) -> None:
    """Let other users pass, but not list, the folders above `path`."""
    for parent in {*path.parents, *path.resolve().parents}:
        mode = parent.stat().st_mode
        if not mode & _OTHERS_EXECUTE:
            parent.chmod(mode | _OTHERS_EXECUTE)
            _log.warning("postgres.folder.permissions_widened", folder=str(parent))


def _allow_read(program: Path) -> None:
    """Undo an installation under a private umask, as far as the server needs."""
    _allow_traversal(program)
    if program.stat().st_mode & _OTHERS_READ_BIT:
        return
    installed = program.parents[1]
    libraries = installed.parents[0].with_suffix(".libs")
    for path in (p for root in (installed, libraries) for p in (root, *root.rglob("*"))):
        mode = path.stat().st_mode
        path.chmod(mode | _OTHERS_READ_BIT | (_OTHERS_EXECUTE if mode & _OWNER_EXECUTE else 0))


def _chown_tree(data: Path, identity: ServerUser) -> None:
    if data.exists() and data.stat().st_uid != identity.uid:
        for path in (data, *data.rglob("*")):
            os.chown(path, identity.uid, identity.gid, follow_symlinks=False)


def _end_postmaster(pid: int, data: Path) -> None:
    try:
        process = psutil.Process(pid)
        if process.name() == "postgres" and str(data) in process.cmdline():
            process.kill()
            process.wait(timeout=5)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        return
