"""Renders the overlays and the chart into `deploy/rendered`; with `--check` it compares.

The tests of every day read what is rendered, so they need neither Helm nor kustomize. The first
line of each file has a digest of all that it was rendered from: a test finds a change of the
sources that was not rendered. `make deploy-render` and `make deploy-check` run this.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).parent
RENDERED: Final = HERE / "rendered"
CHART: Final = HERE / "helm" / "pop-stream"
KUBERNETES: Final = HERE / "kubernetes"

OVERLAYS: Final[Mapping[str, str]] = {
    "base": "base",
    "development": "overlays/development",
    "production": "overlays/production",
    "complete": "overlays/complete",
}
"""What is rendered by kustomize: the file's name, and the folder."""

RELEASES: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "chart": ("pop-stream", ()),
    "chart-production": ("pop-stream", ("values-production.yaml",)),
    "chart-everything": ("farm", ("ci/everything-values.yaml",)),
}
"""What is rendered by Helm: the file's name, the release's, and its files of values."""

# A Helm that was built by `go install` else takes its cluster for one of long ago.
_KUBERNETES: Final = ("--kube-version", "1.31")
_HELM: Final = (
    "go install helm.sh/helm/v3/cmd/helm@v3.19.5, or https://helm.sh/docs/intro/install"
)
RULES: Final = HERE / "prometheus" / "rules.yaml"
COPIES: Final = (
    CHART / "files" / "rules.yaml",
    KUBERNETES / "components" / "prometheus-operator" / "rules.yaml",
)
"""Where the alarms are again, since neither program reads beyond its own folder."""

_RULE: Final = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: pop-stream
spec:
"""
_KUSTOMIZE: Final = "go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1, or install kubectl"


class MissingToolError(Exception):
    """A program that renders is not on the PATH."""


class Dumper(yaml.SafeDumper):
    """Texts of several lines stay lines, and what is equal is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        """Never an alias: a reader should not have to look for what it stands for."""
        del data
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _write_text)


def digest() -> str:
    """Of every file that something is rendered from, and of what is rendered."""
    found = hashlib.sha256(repr((OVERLAYS, RELEASES)).encode())
    for folder in (CHART, KUBERNETES):
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            found.update(f"{file.relative_to(HERE)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def run_helm(values: Sequence[Path], *, name: str = "pop-stream") -> list[dict[str, Any]]:
    """The objects of a release of the chart.

    Raises:
        MissingToolError: If there is no `helm`.
        ValueError: If Helm refuses the values; its words.
    """
    given = [word for one in values for word in ("--values", str(one))]
    where = ("--namespace", "work", *_KUBERNETES)
    return _objects("helm", _HELM, "template", name, str(CHART), *where, *given)


def run_kustomize(folder: Path) -> list[dict[str, Any]]:
    """The objects of a base or an overlay, by `kustomize` or else by `kubectl`.

    Raises:
        MissingToolError: If there is neither.
        ValueError: If the folder cannot be built; the words of the program.
    """
    if shutil.which("kustomize"):
        return _objects("kustomize", _KUSTOMIZE, "build", str(folder))
    return _objects("kubectl", _KUSTOMIZE, "kustomize", str(folder))


def _objects(program: str, remedy: str, *arguments: str) -> list[dict[str, Any]]:
    found = shutil.which(program)
    if found is None:
        msg = f"{program} is not on the PATH; install it: {remedy}"
        raise MissingToolError(msg)
    done = subprocess.run(  # noqa: S603  # arguments of this file
        [found, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(done.stderr)
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    return sorted(objects, key=lambda one: (one["kind"], one["metadata"]["name"]))


def copies() -> Iterator[tuple[Path, str]]:
    """The files that have the alarms again, and what they should be."""
    head, rules = (
        "# Made by `make deploy-render` from deploy/prometheus; do not edit.\n",
        RULES.read_text(),
    )
    chart, component = COPIES
    yield chart, head + rules
    yield component, head + _RULE + indent(rules, "  ")


def _texts() -> Iterator[tuple[Path, str]]:
    head = f"# Made by `make deploy-render`; do not edit. Sources: {digest()}\n"
    for name, folder in OVERLAYS.items():
        yield RENDERED / f"{name}.yaml", head + _text(run_kustomize(KUBERNETES / folder))
    for name, (release, files) in RELEASES.items():
        values = [CHART / one for one in files]
        yield RENDERED / f"{name}.yaml", head + _text(run_helm(values, name=release))


def _text(objects: Sequence[Mapping[str, Any]]) -> str:
    return yaml.dump_all(objects, Dumper=Dumper, sort_keys=True, explicit_start=True, width=200)


def main() -> int:
    """Write or compare the files; 0 if they are current, 1 if not, 2 without the programs."""
    stale: list[str] = []
    try:
        for made in (copies, _texts):
            for file, text in made():
                if not file.exists() or file.read_text() != text:
                    stale.append(str(file.relative_to(HERE)))
                if "--check" not in sys.argv[1:]:
                    file.parent.mkdir(exist_ok=True)
                    file.write_text(text)
    except (MissingToolError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if stale and "--check" in sys.argv[1:]:
        sys.stderr.write(f"not current: {', '.join(stale)}; run `make deploy-render`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
