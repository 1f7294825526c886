"""A real Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager.

The two programs of Kubernetes are built from its Go module, once, into the user's cache; etcd
is Debian's. There is no scheduler and no container: `kubernetes_node` stands in for a node.
Run as a program, it builds what is missing, and says why where it cannot.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from deadlines import within
from job_puller import kubeconfig

from pop_stream.devserver.folder import PORTS, is_free_port

VERSION = "1.36.3"
PROGRAMS = ("kube-apiserver", "kube-controller-manager")
CONTROLLERS = (
    "job-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "disruption-controller",
    "ttl-after-finished-controller",
)
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
FOLDER = _CACHE / "pop-stream" / f"kubernetes-{VERSION}"
ADMIN, PULLER = "admin-token", "puller-token"


class BuildError(Exception):
    """The control plane cannot be had here."""


def executable(name: str) -> str:
    """Where a program of the control plane is.

    Raises:
        LookupError: If it was not built.
    """
    found = shutil.which(name, path=f"{FOLDER}{os.pathsep}{FOLDER / 'etcd' / 'usr' / 'bin'}")
    if found := found or shutil.which(name):
        return found
    msg = f"{name} is missing; `make cluster` builds it"
    raise LookupError(msg)


# ---- build ----


def build() -> None:
    """Build what is missing; minutes on a quiet machine, half an hour on a busy one.

    Raises:
        BuildError: With what stood in the way.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    if shutil.which("etcd") is None and not (FOLDER / "etcd").exists():
        _unpack_etcd()
    if missing := [one for one in PROGRAMS if not (FOLDER / one).exists()]:
        _build_programs(missing)


def _unpack_etcd() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            _run("apt-get", "-qq", "update", cwd=folder)
        _run("apt-get", "-qq", "download", "etcd-server", cwd=folder)
        (archive,) = Path(folder).glob("*.deb")
        _run("dpkg-deb", "--extract", str(archive), str(FOLDER / "etcd"), cwd=folder)


def _build_programs(names: Sequence[str]) -> None:
    sys.stderr.write(f"Building {', '.join(names)} {VERSION} into {FOLDER}\n")
    with tempfile.TemporaryDirectory() as folder:
        module = json.loads(
            _run("go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}", cwd=folder)
        )
        (Path(folder) / "go.mod").write_text(_module_file(Path(module["GoMod"]).read_text()))
        _run("go", "mod", "tidy", cwd=folder)
        packages = [f"k8s.io/kubernetes/cmd/{one}" for one in names]
        says = f"-X k8s.io/component-base/version.gitVersion=v{VERSION}"
        options = ("-p", "2", "-ldflags", f"-s -w {says}", "-o", str(FOLDER))
        _run("nice", "go", "build", *options, *packages, cwd=folder)


def _module_file(upstream: str) -> str:
    """A module that takes Kubernetes' staging modules, which it replaces by folders, as
    they are published.
    """
    lines = [one.split() for one in upstream.splitlines()]
    staging = [one[0] for one in lines if "=>" in one and one[-1].startswith("./staging/")]
    published = VERSION.replace("1.", "v0.", 1)
    (go,) = (one[1] for one in lines if one[:1] == ["go"])
    replaced = "".join(f"replace {one} => {one} {published}\n" for one in staging)
    tools = "".join(f"tool k8s.io/kubernetes/cmd/{one}\n" for one in PROGRAMS)
    return (
        f"module cluster\n\ngo {go}\n\nrequire k8s.io/kubernetes v{VERSION}\n{replaced}{tools}"
    )


def _run(*command: str, cwd: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(  # noqa: S603  # fixed arguments
            command, cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(str(error)) from error
    return done.stdout


# ---- run ----


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane that answers.

    Attributes:
        url: Of the API server.
        folder: Its certificate is `apiserver.crt` there, with the key beside it.
        session: As its administrator.
    """

    url: str
    folder: Path
    session: aiohttp.ClientSession

    def kubeconfig(self, token: str, namespace: str = "default") -> Path:
        """A file for one who has this token."""
        return kubeconfig(
            self.folder,
            self.url,
            token=token,
            namespace=namespace,
            **{"certificate-authority": "apiserver.crt"},
        )

    async def ask(self, method: str, path: str, **more: Any) -> Any:
        """Content of an answer.

        Raises:
            aiohttp.ClientResponseError: If it is a refusal; its message is the server's.
        """
        async with self.session.request(method, f"{self.url}{path}", **more) as response:
            content = await response.json(content_type=None)
            if response.status >= 400:
                raise aiohttp.ClientResponseError(
                    response.request_info,
                    (),
                    status=response.status,
                    message=f"{method} {path}: {content.get('message', content)}",
                )
            return content

    async def apply(self, path: str, manifest: Any, *, dry_run: bool = False) -> Any:
        """Apply by the server, which refuses fields that it does not know."""
        query = {"fieldManager": "tests", "fieldValidation": "Strict", "force": "true"}
        return await self.ask(
            "PATCH",
            f"{path}/{manifest['metadata']['name']}",
            params=query | ({"dryRun": "All"} if dry_run else {}),
            data=json.dumps(manifest),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def patch_status(self, path: str, status: Any) -> Any:
        return await self.ask(
            "PATCH",
            f"{path}/status",
            data=json.dumps({"status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
        )


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """The control plane, with its data in this folder."""
    etcd, peers, port = [one for one in reversed(PORTS) if is_free_port(one)][:3]
    url = f"https://127.0.0.1:{port}"
    (folder / "tokens.csv").write_text(
        f"{ADMIN},admin,1,system:masters\n{PULLER},puller,2,pullers\n"
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_running(folder, "etcd", _etcd(folder, etcd, peers)))
        await stack.enter_async_context(
            _running(folder, "kube-apiserver", _api_server(folder, etcd, port))
        )
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {ADMIN}"},
                connector=aiohttp.TCPConnector(ssl=False),
            )
        )
        found = Cluster(url, folder, session)
        await _answers(found, "/readyz")
        await stack.enter_async_context(
            _running(folder, "kube-controller-manager", _controllers(found))
        )
        await _answers(found, "/api/v1/namespaces/default/serviceaccounts/default")
        yield found


def _etcd(folder: Path, port: int, peers: int) -> Sequence[str]:
    url, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    return (
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    )


def _api_server(folder: Path, etcd: int, port: int) -> Sequence[str]:
    key = folder / "accounts.key"
    subprocess.run(  # noqa: S603  # fixed arguments
        ["openssl", "genrsa", "-out", str(key), "2048"],  # noqa: S607
        check=True, capture_output=True,
    )  # fmt: skip
    return (
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",
    )


def _controllers(server: Cluster) -> Sequence[str]:
    return (
        f"--kubeconfig={server.kubeconfig(ADMIN)}",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--service-account-private-key-file={server.folder / 'accounts.key'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    )


@asynccontextmanager
async def _running(folder: Path, name: str, options: Sequence[str]) -> AsyncIterator[None]:
    with (folder / f"{name}.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            executable(name), *options, stdout=log, stderr=log, cwd=folder
        )
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            async with within(30):
                await process.wait()


async def _answers(server: Cluster, path: str) -> None:
    async with within(60):
        while True:
            try:
                async with server.session.get(f"{server.url}{path}") as response:
                    if response.ok:
                        return
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.2)


def main() -> int:
    """Build; 1 if that cannot be done."""
    try:
        build()
    except BuildError as error:
        sys.stderr.write(f"\n*** tests/cluster IS LEFT OUT: {error} ***\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
