"""Counts by customer: what changed since they were told, and the sums of several tellers."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

MAX_CUSTOMERS_PER_RECORD: Final = 5_000
"""Customers of one record."""


class UsageDelta:
    """Which counts differ from what was told of them last; 0 where nothing is left."""

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}

    def take_changed(self, counts: Mapping[str, int], among: Iterable[str]) -> dict[str, int]:
        """What of these customers is to be told now; it counts as told."""
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

    def whole(self, counts: Mapping[str, int]) -> dict[str, int]:
        """All that is to be told to whoever knows nothing; it counts as told."""
        self._reported = {one: count for one, count in counts.items() if count}
        return dict(self._reported)

    def __bool__(self) -> bool:
        """Whether anything but zeros was told."""
        return bool(self._reported)


class UsageTotals:
    """Counts by customer from several tellers, added up."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[str, int]] = {}
        self._sums: dict[str, int] = {}

    def of(self, customer_id: str) -> int:
        """The sum over all tellers."""
        return self._sums.get(customer_id, 0)

    def apply(self, source: str, counts: Mapping[str, int], *, is_complete: bool) -> None:
        """Take in what one of them tells; if it is whole, nothing it told before counts."""
        if is_complete:
            self.forget(source)
        known = self._by_source.setdefault(source, {})
        for one, count in counts.items():
            add(self._sums, one, count - known.pop(one, 0))
            if count:
                known[one] = count

    def forget(self, source: str) -> None:
        """Nothing that it told counts any more."""
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
