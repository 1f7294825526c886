"""What the parts cost: processor time and memory of processes, as the kernel counts them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import psutil

_KIB: Final = 1024
_MIB: Final = 1024 * 1024

SERVERS: Final = ("kafka", "postgres")
"""Parts that are not ours."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Of one part, its child processes included.

    Attributes:
        cpu_s: User and system time since its processes began, in seconds.
        rss_mb: Resident now. What child processes share (PostgreSQL's buffers) counts once.
        peak_rss_mb: The most that was ever resident; of several processes, the sum of peaks
            without what they share now.
    """

    cpu_s: float
    rss_mb: float
    peak_rss_mb: float


def read_usage(processes: Mapping[str, int]) -> Mapping[str, ProcessUsage]:
    """The costs so far of parts by name, from their process ids; ended ones are left out."""
    found: dict[str, ProcessUsage] = {}
    for name, pid in processes.items():
        with suppress(psutil.NoSuchProcess):
            found[name] = _process_usage(psutil.Process(pid))
    return found


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """Processor seconds of the whole machine since it started, and when they were read.

    Attributes:
        busy_s: Of all processes, and of the kernel.
        stolen_s: That a hypervisor gave to other machines.
    """

    at: float
    busy_s: float
    stolen_s: float


def read_machine() -> MachineUsage:
    """The machine's processor time so far."""
    times = psutil.cpu_times()
    busy = times.user + times.system + times.nice + times.irq + times.softirq
    return MachineUsage(monotonic(), busy, times.steal)


def other_usage(
    before: MachineUsage, after: MachineUsage, parts_s: float
) -> Mapping[str, float]:
    """What else the machine did between two readings, as shares of one core.

    Args:
        before: The earlier reading.
        after: The later one.
        parts_s: Processor seconds of all that was measured.
    """
    lasted = max(1e-9, after.at - before.at)
    rest = after.busy_s - before.busy_s - parts_s
    return {
        "others": round(max(0.0, rest) / lasted, 3),
        "stolen": round((after.stolen_s - before.stolen_s) / lasted, 3),
    }


def cpu_seconds(
    before: Mapping[str, ProcessUsage], after: Mapping[str, ProcessUsage]
) -> Mapping[str, float]:
    """Processor seconds between two readings, by part.

    A part that was started again meanwhile counts from its new start.
    """
    return {
        name: one.cpu_s
        - (before[name].cpu_s if _is_same_process(before.get(name), one) else 0.0)
        for name, one in after.items()
    }


def count_connections(processes: Mapping[str, int]) -> Mapping[str, int]:
    """Established TCP connections of parts by name, those of their children included."""
    found: dict[str, int] = {}
    for name, pid in processes.items():
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            found[name] = sum(map(_connections, [root, *root.children(recursive=True)]))
    return found


def own_parts(names: Iterable[str]) -> list[str]:
    """Those of the parts that are ours: neither the broker nor the database."""
    return [name for name in names if name not in SERVERS]


def _connections(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        every = process.net_connections(kind="tcp")
        return sum(one.status == psutil.CONN_ESTABLISHED for one in every)
    return 0


def _is_same_process(before: ProcessUsage | None, after: ProcessUsage) -> bool:
    return before is not None and before.cpu_s <= after.cpu_s


def _process_usage(root: psutil.Process) -> ProcessUsage:
    times = root.cpu_times()
    # A server's sessions end: what they used is added to their parent's count then.
    cpu_s = times.user + times.system + times.children_user + times.children_system
    alone = [_memory(root)]
    for child in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            spent_by_child = child.cpu_times()
            cpu_s += spent_by_child.user + spent_by_child.system
            alone.append(_memory(child))
    if len(alone) == 1:
        rss, _, peak = alone[0]
        return ProcessUsage(cpu_s, rss / _MIB, peak / _MIB)
    return ProcessUsage(
        cpu_s,
        sum(own_part for _, own_part, _ in alone) / _MIB,
        sum(own_part + peak - rss for rss, own_part, peak in alone) / _MIB,
    )


def _memory(process: psutil.Process) -> tuple[int, int, int]:
    """Resident bytes, the proportional part of them, and the most ever resident."""
    kept = dict(_lines(Path(f"/proc/{process.pid}/status")))
    rss, peak = kept.get("VmRSS", 0), kept.get("VmHWM", 0)
    try:
        proportional = dict(_lines(Path(f"/proc/{process.pid}/smaps_rollup"))).get("Pss", rss)
    except OSError:  # another user's process
        proportional = rss
    return rss, proportional, peak


def _lines(path: Path) -> Iterator[tuple[str, int]]:
    """The sizes in a file of the kernel's, such as `VmRSS:  1024 kB`, in bytes."""
    for line in path.read_text().splitlines():
        name, _, size = line.partition(":")
        words = size.split()
        if words[1:] == ["kB"]:
            yield name, int(words[0]) * _KIB
