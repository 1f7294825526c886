"""How a cluster is reached: from within it by its service account, else by a kubeconfig.

Of a kubeconfig, what people have is read: certificates and keys, in it or in files, tokens and
token files, passwords, and programs (`exec`) that print a token, as clouds have them.
"""

import asyncio
import base64
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pop_stream.clock import WallClock
from pop_stream.puller.executors.port import ExecutorUnavailableError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the credentials of its service account."""

_FILE_TOKEN_FOR: Final = timedelta(seconds=60)
"""Projected tokens are replaced while they are valid; so long one that was read is used."""

_EXEC_S: Final = 30.0
_CLOCK: Final = WallClock()


@dataclass(slots=True)
class ClusterAccess:
    """A cluster's API server, and as whom it is called.

    Attributes:
        url: Without a slash at its end.
        namespace: What the credentials name; empty for none.
        ssl_context: None for plain HTTP.
        headers: Fixed ones.
        token_file: Where the token is, read again from time to time.
        exec_command: Program and arguments that print a credential.
        exec_environment: Variables that it is given besides this process' own.
    """

    url: str
    namespace: str = ""
    ssl_context: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_file: Path | None = None
    exec_command: tuple[str, ...] = ()
    exec_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    _token: str = field(default="", repr=False)
    _token_until: datetime | None = None

    async def authorization(self) -> Mapping[str, str]:
        """The headers of a request made now.

        Raises:
            ExecutorUnavailableError: If there is no token to be had.
        """
        if self.token_file is None and not self.exec_command:
            return self.headers
        now = _CLOCK.now()
        if self._token_until is None or now >= self._token_until:
            if self.token_file is not None:
                self._token = _read_token(self.token_file)
                self._token_until = now + _FILE_TOKEN_FOR
            else:
                self._token, self._token_until = await self._run_program(now)
        return {**self.headers, "Authorization": f"Bearer {self._token}"}

    def forget_token(self) -> None:
        """Get another one for the next request: the cluster refused this one."""
        self._token_until = None

    async def _run_program(self, now: datetime) -> tuple[str, datetime]:
        program = self.exec_command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self.exec_command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self.exec_environment},
            )
        except OSError as error:
            msg = f"kubeconfig: {program!r} cannot be started: {error}"
            raise ExecutorUnavailableError(msg) from None
        try:
            async with asyncio.timeout(_EXEC_S):
                printed, said = await process.communicate()
        except TimeoutError:
            msg = f"kubeconfig: {program!r} printed no credential within {_EXEC_S:g} s"
            raise ExecutorUnavailableError(msg) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
        try:
            status = json.loads(printed)["status"]
            token, until = status["token"], status.get("expirationTimestamp")
            ends_at = datetime.fromisoformat(until) if until else now + _FILE_TOKEN_FOR
        except (ValueError, KeyError, TypeError) as error:
            shown = said.decode(errors="replace").strip()[-300:]
            msg = f"kubeconfig: {program!r} printed no token ({error!r}): {shown}"
            raise ExecutorUnavailableError(msg) from None
        return token, ends_at


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """The cluster that this process is a pod of.

    Raises:
        ValueError: If it is not in one, or has no service account mounted.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = folder / "token"
    if not host or not token_file.is_file():
        msg = (
            "this process is in no Kubernetes cluster, or has no service account; "
            "set automountServiceAccountToken, or give a kubeconfig"
        )
        raise ValueError(msg)
    bracketed = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return ClusterAccess(
        f"https://{bracketed}:{port}",
        namespace=namespace.read_text().strip() if namespace.is_file() else "",
        ssl_context=ssl.create_default_context(cafile=str(folder / "ca.crt")),
        token_file=token_file,
    )


def from_kubeconfig(path: Path | None = None, context: str | None = None) -> ClusterAccess:
    """The cluster of a context of a kubeconfig; of the current one if none is named.

    Args:
        path: Else the first file of KUBECONFIG, else `~/.kube/config`.
        context: Its name.

    Raises:
        ValueError: If it cannot be read, with what is missing.
    """
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    file = path or (Path(first) if first else Path.home() / ".kube" / "config")
    config = _loaded(file)
    name = context or config.get("current-context") or ""
    chosen = _named(file, config, "contexts", name)["context"]
    cluster = _named(file, config, "clusters", chosen["cluster"])["cluster"]
    user = _named(file, config, "users", chosen["user"])["user"] if chosen.get("user") else {}
    headers: dict[str, str] = {}
    if user.get("token"):
        headers["Authorization"] = f"Bearer {user['token']}"
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    program = user.get("exec") or {}
    server = str(cluster["server"]).rstrip("/")
    return ClusterAccess(
        server,
        namespace=chosen.get("namespace", ""),
        ssl_context=_ssl_context(file.parent, cluster, user) if "https:" in server else None,
        headers=headers,
        token_file=file.parent / user["tokenFile"] if user.get("tokenFile") else None,
        exec_command=_command(file.parent, program) if program else (),
        exec_environment={one["name"]: one["value"] for one in program.get("env") or ()},
    )


def _read_token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        msg = f"the token {file} cannot be read: {error}"
        raise ExecutorUnavailableError(msg) from None


def _loaded(file: Path) -> dict[str, Any]:
    try:
        import yaml  # noqa: PLC0415  # of the extra `kubernetes`
    except ImportError:
        msg = "kubeconfigs are YAML: pip install 'pop-stream[kubernetes]'"
        raise ValueError(msg) from None
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        msg = f"the kubeconfig {file} cannot be read: {error}"
        raise ValueError(msg) from None
    if not isinstance(config, dict):
        msg = f"{file} is no kubeconfig"
        raise ValueError(msg)  # noqa: TRY004  # one error type for a wrong file
    return config


def _named(file: Path, config: Mapping[str, Any], part: str, name: str) -> dict[str, Any]:
    for one in config.get(part) or ():
        if one.get("name") == name:
            return dict(one)
    known = ", ".join(str(one.get("name")) for one in config.get(part) or ()) or "none"
    msg = f"the kubeconfig {file} has no {name!r} among its {part}: {known}"
    raise ValueError(msg)


def _command(folder: Path, program: Mapping[str, Any]) -> tuple[str, ...]:
    command = str(program["command"])
    # As kubectl has it: a path with a slash is relative to the file.
    found = str(folder / command) if "/" in command else command
    return (found, *map(str, program.get("args") or ()))


def _ssl_context(
    folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]
) -> ssl.SSLContext:
    authority = _content(folder, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _content(folder, user, "client-certificate")
    key = _content(folder, user, "client-key")
    if certificate and key:
        # The standard library reads them from files only; this one is its owner's, and brief.
        with tempfile.NamedTemporaryFile() as both:
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def _content(folder: Path, part: Mapping[str, Any], name: str) -> bytes:
    if data := part.get(f"{name}-data"):
        return base64.b64decode(data)
    return (folder / part[name]).read_bytes() if part.get(name) else b""
