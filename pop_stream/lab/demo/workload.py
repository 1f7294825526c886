"""What the demo submits: agendas over the sources of this very Python installation."""

import itertools
import sysconfig
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FLOOD: Final = "flood"
QUIET: Final = ("anna", "bruno", "carla", "dora")
WEIGHTS: Final[Mapping[str, float]] = {"dora": 2.0}
"""Weights other than 1; as in definitions.toml."""

WARM_UP: Final = "warm-up"
"""A customer whose few agendas come before the rest and are in no figure."""

_WARM_UP_AGENDAS: Final = 80
_LARGEST_SHARE_OF_QUIET: Final = 0.05
_MAX_QUIET: Final = 150
_MIN_QUIET: Final = 5
_SIZES: Final = range(4_000, 40_000)
_NO_PROSE: Final = frozenset({"test", "tests", "site-packages", "dist-packages", "lib2to3"})


@dataclass(frozen=True, slots=True)
class Workload:
    """The agendas of one run, by customer, in order of submission: the flood is first."""

    run: str
    agendas: Mapping[str, Sequence[Mapping[str, Any]]]

    @property
    def owners(self) -> Mapping[str, str]:
        """The customer of each agenda id."""
        return {
            agenda["id"]: customer for customer, own in self.agendas.items() for agenda in own
        }

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each agenda's file, by agenda id."""
        agendas = (agenda for own in self.agendas.values() for agenda in own)
        return {one["id"]: _path(one).stat().st_size for one in agendas}

    def link(self, customer_id: str) -> str:
        """The link id of all of a customer's agendas of this run."""
        return f"{self.run}-{customer_id}"


def workload(run: str, total: int) -> Workload:
    """A flood, and four customers with far fewer agendas each.

    Args:
        run: Begins all ids, so that earlier runs are left out of the count.
        total: Of all agendas, at least 10.
    """
    share = max(_MIN_QUIET, int(total * _LARGEST_SHARE_OF_QUIET))
    few = max(1, min(share, total // 10, _MAX_QUIET))
    counts = {FLOOD: total - few * len(QUIET), **dict.fromkeys(QUIET, few)}
    return _workload(run, counts)


def warm_up(run: str) -> Workload:
    """Some agendas, so that the pullers have joined, and costs and pace are known."""
    return _workload(run, {WARM_UP: _WARM_UP_AGENDAS})


def _workload(run: str, counts: Mapping[str, int]) -> Workload:
    files = itertools.cycle(source_files())
    return Workload(
        run,
        {
            customer: [_agenda(run, customer, number, next(files)) for number in range(count)]
            for customer, count in counts.items()
        },
    )


def source_files() -> Sequence[Path]:
    """Python sources of middling size that every installation has, in a fixed order.

    The order has nothing to do with folders, whose files are alike: all customers get a mix.
    """
    library = Path(sysconfig.get_path("stdlib"))
    found = (path for path in library.rglob("*.py") if _fits(path, library))
    return sorted(found, key=lambda path: zlib.crc32(path.as_posix().encode()))


def _fits(path: Path, library: Path) -> bool:
    return (
        not _NO_PROSE.intersection(path.relative_to(library).parts)
        and path.stat().st_size in _SIZES
    )


def _agenda(run: str, customer_id: str, number: int, path: Path) -> Mapping[str, Any]:
    return {
        "id": f"{run}-{customer_id}-{number:05}",
        "customer_id": customer_id,
        "link_id": f"{run}-{customer_id}",
        "title": path.name,
        "operations": list(_operations(path)),
    }


def _path(agenda: Mapping[str, Any]) -> Path:
    return Path(agenda["operations"][0]["payload"]["path"])


def _operations(path: Path) -> Iterator[Mapping[str, Any]]:
    yield {"name": "read", "type": "file.read", "payload": {"path": str(path)}}
    for name in ("hash", "count", "compress"):
        payload = {"path": "@<read.out::/path>"}
        yield {"name": name, "type": f"file.{name}", "payload": payload}
    yield {
        "name": "report",
        "type": "file.report",
        "payload": {
            "path": "@<read.out::/path>",
            "lines": "@<read.out::/lines>",
            "sha256": "@<hash.out::/sha256>",
            "tokens": "@<count.out::/tokens>",
            "ratio": "@<compress.out::/ratio>",
        },
    }
