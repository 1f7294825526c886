"""For how long those that run now have run; no IO, no clock."""

from collections import Counter


class RunDurations:
    """Of runs told by the instants at which they began, on a clock that never goes back."""

    def __init__(self) -> None:
        # In the order in which they began: who becomes a long one next is the first.
        self._short: Counter[float] = Counter()
        self._long: Counter[float] = Counter()
        self._long_started_sum_s = 0.0
        self._long_count = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, now_s: float) -> None:
        """One begins to run."""
        self._short[now_s] += 1
        self._count += 1

    def end(self, started_s: float) -> None:
        """One that began at `started_s` runs no more."""
        self._count -= 1
        if started_s in self._short:
            _take(self._short, started_s)
        else:
            _take(self._long, started_s)
            self._long_count -= 1
            self._long_started_sum_s -= started_s

    def long(self, after_s: float, now_s: float) -> tuple[int, float]:
        """How many have run for longer than `after_s`, and for how long on average.

        Who was once among them stays, whatever `after_s` is later. Costs what has changed.
        """
        while self._short:
            started_s = next(iter(self._short))
            if now_s - started_s <= after_s:
                break
            count = self._short.pop(started_s)
            self._long[started_s] += count
            self._long_count += count
            self._long_started_sum_s += count * started_s
        if not self._long_count:
            self._long_started_sum_s = 0.0
            return 0, 0.0
        return self._long_count, now_s - self._long_started_sum_s / self._long_count


def _take(counts: Counter[float], key: float) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
