"""Leases of claimed attempts, and offsets of unclaimed ones; in memory only.

A lease runs on the clock of relayed reports: it ends once all reports sent before its end were
applied and no heartbeat was among them. So a relay that lags ends no lease. After a restart all
leases begin again.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_SOMEWHERE: Final = -1
_UNKNOWN: Final = -1


class Leases:
    """When each attempt that is with a puller last had a heartbeat, longest silent first.

    Instants are seconds since the epoch, on the scheduler's clock alone.
    """

    __slots__ = ("_by_http", "_last_heartbeat_at")

    def __init__(self) -> None:
        self._last_heartbeat_at: OrderedDict[int, float] = OrderedDict()
        self._by_http: set[int] = set()

    def begin(self, ref: int, now: float) -> None:
        """A claim or a heartbeat: the lease runs from now."""
        self._last_heartbeat_at[ref] = now
        self._last_heartbeat_at.move_to_end(ref)

    def end_by(self, ref: int, at: float, length_s: float) -> None:
        """The lease is to end at that instant, unless a heartbeat comes."""
        self._last_heartbeat_at[ref] = at - length_s
        self._last_heartbeat_at.move_to_end(ref, last=False)

    def mark_by_http(self, ref: int) -> None:
        """Heartbeats of this place come through the API; a second call does nothing."""
        if ref in self._last_heartbeat_at:
            self._by_http.add(ref)

    @property
    def any_by_http(self) -> bool:
        """Whether such a lease runs."""
        return bool(self._by_http)

    def is_by_http(self, ref: int) -> bool:
        """Whether the place's is such a lease."""
        return ref in self._by_http

    def is_running(self, ref: int) -> bool:
        """Whether the place has a lease."""
        return ref in self._last_heartbeat_at

    def end(self, ref: int) -> None:
        """The attempt is over; nothing happens if it had no lease."""
        self._last_heartbeat_at.pop(ref, None)
        self._by_http.discard(ref)

    def restart_all(self, now: float) -> None:
        """Start all leases again now: for a time no heartbeat could arrive."""
        self._last_heartbeat_at = OrderedDict.fromkeys(self._last_heartbeat_at, now)

    def entries(self) -> list[tuple[int, float, bool]]:
        """Place, last heartbeat, and whether through the API; longest silent first."""
        return [(ref, at, ref in self._by_http) for ref, at in self._last_heartbeat_at.items()]

    def restore(self, entries: Iterable[tuple[int, float, bool]]) -> None:
        """Become what returned these entries."""
        self._last_heartbeat_at, self._by_http = OrderedDict(), set()
        for ref, at, by_http in entries:
            self._last_heartbeat_at[ref] = at
            if by_http:
                self._by_http.add(ref)

    @property
    def oldest(self) -> float | None:
        """The last heartbeat of the one that is silent longest; None if none runs."""
        return next(iter(self._last_heartbeat_at.values()), None)

    def pop_expired(self, since: float, most: int) -> list[int]:
        """Take out places without a heartbeat since then, at most so many.

        The caller ends each attempt, or begins its lease again.
        """
        silent: list[int] = []
        while len(silent) < most and (oldest := self.oldest) is not None and oldest < since:
            silent.append(self._last_heartbeat_at.popitem(last=False)[0])
        return silent


class EmittedOffsets:
    """Where emitted agendas without a claim lie on their topic, oldest first.

    A record was skipped if the pullers of its partition have committed beyond it without a
    claim: if fewer records lie behind their commit than were emitted there from it on.
    """

    __slots__ = ("_counts", "_emitted", "_waiting")

    def __init__(self) -> None:
        self._emitted: OrderedDict[int, tuple[int, int, float]] = OrderedDict()
        self._counts: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()

    def send(self, ref: int, partition: int, now: float) -> None:
        """The place's agenda goes to this partition of the insight's topic."""
        self.remove(ref)
        self._emitted[ref] = (partition, self._counts[partition], now)
        self._counts[partition] += 1
        self._waiting[partition] += 1

    def recover(self, ref: int, now: float = 0.0) -> None:
        """The agenda was emitted before a restart, and its partition is not known.

        It lies before all that were sent since.

        Args:
            ref: Its place.
            now: When that became known.
        """
        self.remove(ref)
        self._emitted[ref] = (_SOMEWHERE, -1, now)

    def emitted_at(self, ref: int) -> float | None:
        """When the place's agenda went; None if that is not known any more."""
        sent = self._emitted.get(ref)
        return None if sent is None or sent[0] < 0 else sent[2]

    def entries(self) -> tuple[list[tuple[int, int, int, float]], dict[int, int]]:
        """Place, partition, number there and instant of each; and records by partition."""
        return [(ref, *sent) for ref, sent in self._emitted.items()], dict(self._counts)

    def restore(
        self, entries: Iterable[tuple[int, int, int, float]], counts: Mapping[int, int]
    ) -> None:
        """Become what returned these entries."""
        self._emitted = OrderedDict(
            (ref, (where, at, when)) for ref, where, at, when in entries
        )
        self._counts = Counter(counts)
        self._waiting = Counter(where for where, _, _ in self._emitted.values())

    def remove(self, ref: int) -> None:
        """It was claimed, or has ended; a second call does nothing."""
        sent = self._emitted.pop(ref, None)
        if sent is not None:
            self._waiting[sent[0]] -= 1

    def waiting(self, partitions: int) -> list[int]:
        """How many lie on each of so many partitions, as far as known."""
        return [self._waiting[partition] for partition in range(partitions)]

    @property
    def oldest(self) -> float | None:
        """When the first was sent, or found to have been; None if there is none."""
        first = next(iter(self._emitted.values()), None)
        return None if first is None else first[2]

    def skipped(self, lags: Sequence[int], since: int, before: float) -> list[int]:
        """Places whose records were skipped.

        Args:
            lags: Records behind the commit, by partition.
            since: How many were sent, wherever to, after the lags were asked for.
            before: Only of those that were sent before this instant.
        """
        beyond = {where: self._counts[where] - since - lag for where, lag in enumerate(lags)}
        # One whose partition is not known was skipped if it was on whichever partition it is.
        beyond[_SOMEWHERE] = min(beyond.values(), default=_UNKNOWN)
        found: list[int] = []
        for ref, (partition, number, emitted_at) in self._emitted.items():
            if emitted_at >= before:
                break
            if beyond.get(partition, _UNKNOWN) > number:
                found.append(ref)
        return found
