"""Counts by customer: what changed since the last report, and totals over several sources.

Also when a scheduler has as much in memory as it may, and which of its insights wait then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pop_stream.model.events.quota import CapacityLimit

MAX_CUSTOMERS_PER_RECORD: Final = 5_000
"""Customers of one record."""


class UsageDelta:
    """Which counts differ from what was reported last; 0 where nothing is left."""

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}

    def take_changed(self, counts: Mapping[str, int], among: Iterable[str]) -> dict[str, int]:
        """What of these customers is to be reported now; it counts as reported."""
        changed = {
            one: counts.get(one, 0)
            for one in among
            if counts.get(one, 0) != self._reported.get(one, 0)
        }
        for one, count in changed.items():
            if count:
                self._reported[one] = count
            else:
                self._reported.pop(one, None)
        return changed

    def complete(self, counts: Mapping[str, int]) -> dict[str, int]:
        """All counts, for a reader that knows nothing; they count as reported."""
        self._reported = {one: count for one, count in counts.items() if count}
        return dict(self._reported)

    def __bool__(self) -> bool:
        """Whether anything but zeros was reported."""
        return bool(self._reported)


class UsageTotals:
    """Counts by customer from several sources, added up."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[str, int]] = {}
        self._sums: dict[str, int] = {}

    def of(self, customer_id: str) -> int:
        """The sum over all sources."""
        return self._sums.get(customer_id, 0)

    def apply(self, source: str, counts: Mapping[str, int], *, is_complete: bool) -> None:
        """Take in what one of them reports; if complete, nothing it reported before counts."""
        if is_complete:
            self.forget(source)
        known = self._by_source.setdefault(source, {})
        for one, count in counts.items():
            add(self._sums, one, count - known.pop(one, 0))
            if count:
                known[one] = count

    def forget(self, source: str) -> None:
        """Drop a source: nothing that it reported counts any more."""
        for one, count in self._by_source.pop(source, {}).items():
            add(self._sums, one, -count)


def add(counts: dict[str, int], customer_id: str, by: int) -> None:
    """Change one of some counts, of which none is 0."""
    left = counts.get(customer_id, 0) + by
    if left:
        counts[customer_id] = left
    else:
        counts.pop(customer_id, None)


def chunks(counts: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The counts in records that each name at most `MAX_CUSTOMERS_PER_RECORD`; at least one."""
    waiting = iter(counts.items())
    some = dict(islice(waiting, MAX_CUSTOMERS_PER_RECORD))
    yield some
    while some := dict(islice(waiting, MAX_CUSTOMERS_PER_RECORD)):
        yield some


def insight_account(insight_id: str) -> str:
    """The name under which an insight's agendas are counted; no customer can have it."""
    return f"insight/{insight_id}"


_NEAR: Final = 0.9


@dataclass(frozen=True, slots=True)
class MemoryLoad:
    """How much a scheduler has in memory, or may have.

    Attributes:
        agendas: That have not ended.
        size: Bytes of their pages.
    """

    agendas: int
    size: int


def capacity_limits(
    loads: Mapping[str, MemoryLoad], limit: MemoryLoad
) -> Mapping[str, CapacityLimit]:
    """Which insights are near or at the limit of their scheduler's memory.

    Those that hold an equal part of it or more, so that a large backlog does not shut out
    small ones. As small ones grow to their part at most, the whole stays below twice the
    limit.

    Args:
        loads: By insight, of one scheduler.
        limit: Of all of them together.
    """
    found: dict[str, CapacityLimit] = {}
    busy = max(1, sum(load.agendas > 0 for load in loads.values()))
    agendas = sum(load.agendas for load in loads.values())
    size = sum(load.size for load in loads.values())
    if size >= _NEAR * limit.size:
        near = CapacityLimit(what="bytes", limit=limit.size, present=size)
        part = _NEAR * limit.size / busy
        found |= {one: near for one, load in loads.items() if load.size >= part}
    if agendas >= _NEAR * limit.agendas:
        near = CapacityLimit(what="agendas", limit=limit.agendas, present=agendas)
        for one, load in loads.items():
            known = found.get(one)
            is_large = load.agendas >= _NEAR * limit.agendas / busy
            if is_large and not (known is not None and known.is_full):
                found[one] = near
    return found
