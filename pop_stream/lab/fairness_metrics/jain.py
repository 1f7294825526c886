"""How evenly customers were served while they competed: Jain's index of fairness.

A *stretch* of a customer is a time in which it and at least one other are backlogged
without a break. It counts if what it is due in it comes to `MIN_LARGEST_AGENDAS` of the largest
agendas that anybody who competes is given in it, by weight: in a shorter one a single agenda is
too large a part to say anything, be it its own, or one of another that all others are due their
parts for at once. Of a customer that was given nothing in it, its largest of all is looked at
too, and of one that never was given anything, the largest of anybody: whoever is starved
counts, or the index would hide it. During stretches that count, the customers in them
*compete*, and while at least two do, each worker-second that one of them is given is due to all
of them by weight. The index is taken of given by due, one value a customer; 1 is perfect, 1/n
when one of n has it all. Of fewer than two there is none: nobody competed.

Service is dated by emission, which is what the policy decides, and counts what the log says
that an agenda took in the end.

Agendas are whole, so even a perfect order is off by up to one of them at either end of a
stretch. `jain_lower_bound` says what the index comes to if every competitor is off by that
largest agenda in every stretch: an index above it may be that of a perfect order, one below it
was unfair.

Source: Jain, Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
Allocation in Shared Computer Systems", DEC-TR-301, 1984.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from pop_stream.lab.fairness_metrics.presence import BackloggedCustomers
from pop_stream.lab.fairness_metrics.service_log import EMITTED, REWEIGHTED, ServiceLog

MIN_LARGEST_AGENDAS: Final = 20
"""Largest agendas of its own that a stretch must owe a customer, to count."""

_PAIR: Final = 2


def jain(values: Sequence[float]) -> float:
    """The index of some shares: 1 when all are equal, also for one or none."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def jain_lower_bound(coarseness: Sequence[float]) -> float:
    """The index of shares that are off by so much, in parts of what is due, on both sides.

    The mean of given by due is 1, so it is 1 / (1 + variance).
    """
    return 1 / (1 + fsum(one * one for one in coarseness) / max(1, len(coarseness)))


@dataclass(slots=True)
class Competitor:
    """What one customer was given and due while it competed, in worker-seconds.

    Attributes:
        largest: Of the agendas of all in a stretch the largest by weight, times its own weight,
            or what stands in for it.
        intervals: How often it began to compete.
    """

    given: float = 0.0
    due: float = 0.0
    largest: float = 0.0
    intervals: int = 0

    @property
    def counts(self) -> bool:
        """Whether so much was due to it that a single agenda does not matter."""
        return self.due >= MIN_LARGEST_AGENDAS * self.largest * self.intervals > 0

    @property
    def coarseness(self) -> float:
        """One largest agenda a stretch, as a part of what was due; only of one that counts."""
        return self.intervals * self.largest / self.due


def competitors(log: ServiceLog, sizes: ServiceLog | None = None) -> Mapping[int, Competitor]:
    """What everybody was given and due while competing, by index of the customer.

    Those whose time in competition was too short to say anything are left out.

    Args:
        log: What happened.
        sizes: The same, event by event, with what each agenda would take if it did not
            take longer by accident: how large one is, and so which stretches count. None if
            there are no accidents.
    """
    sizes = sizes or log
    rivals = _CompetingCustomers()
    largest = _largest_agendas(sizes)
    turns = _interval_events(sizes, largest)
    found: dict[int, Competitor] = {}
    weights = [1.0] * len(log.customers)
    events = zip(log, sizes, strict=True)
    for number, ((kind, _, customer, first, second), (*_, size)) in enumerate(events):
        if kind == EMITTED:
            rivals.give(customer, second, size)
        elif kind == REWEIGHTED:
            weights[customer] = first
            rivals.reweigh(customer, first)
        for one in turns.get(number, ()):
            if one in rivals.weights:
                _add_interval(found, rivals.leave(one))
            else:
                rivals.join(one, weights[one], number)
    _add_interval(found, rivals.close())
    for customer, rival in found.items():
        rival.largest = max(rival.largest, 0.0 if rival.given else largest[customer])
    return {customer: one for customer, one in sorted(found.items()) if one.counts}


@dataclass(slots=True)
class _CompetitionInterval:
    """Of one customer: what it began with, and what was due and given in it so far."""

    began: int
    first_gift: int
    level: float
    given: float = 0.0
    due: float = 0.0
    largest: float = 0.0


class _CompetingCustomers:
    """Those who compete now, and a level that rises by what each is due per weight."""

    def __init__(self) -> None:
        self.weights: dict[int, float] = {}
        self._stretches: dict[int, _CompetitionInterval] = {}
        self._level = 0.0
        self._total = 0.0
        self._gifts = 0
        self._peaks: list[tuple[int, float]] = []  # by number; none later is as large

    def join(self, customer: int, weight: float, number: int) -> None:
        """One more; its stretch begins with this event, and that of one so far alone."""
        self.weights[customer] = weight
        self._total += weight
        if len(self.weights) == 1:
            return
        for one in self.weights if len(self.weights) == _PAIR else (customer,):
            self._stretches[one] = _CompetitionInterval(number, self._gifts, self._level)

    def leave(self, customer: int) -> Iterator[tuple[int, _CompetitionInterval]]:
        """One less; yields the stretches that end: its own, and that of one left alone."""
        ended = [*self.weights] if len(self.weights) == _PAIR else [customer]
        for one in ended:
            stretch = self._stretches.pop(one, None)
            if stretch is not None:
                self._credit(stretch, self.weights[one])
                stretch.largest = self.weights[one] * self._largest_since(stretch.first_gift)
                yield one, stretch
        self._total -= self.weights.pop(customer)

    def reweigh(self, customer: int, weight: float) -> None:
        """A weight changes for those who compete from now on."""
        if customer not in self.weights:
            return
        if customer in self._stretches:
            self._credit(self._stretches[customer], self.weights[customer])
        self._total += weight - self.weights[customer]
        self.weights[customer] = weight

    def give(self, customer: int, spent: float, size: float) -> None:
        """Worker-seconds for one of them; nothing happens if nobody competes for them."""
        stretch = self._stretches.get(customer)
        if stretch is not None:
            stretch.given += spent
            self._level += spent / self._total
            size /= self.weights[customer]
            while self._peaks and self._peaks[-1][1] <= size:
                self._peaks.pop()
            self._peaks.append((self._gifts, size))
            self._gifts += 1

    def close(self) -> Iterator[tuple[int, _CompetitionInterval]]:
        """End of the log: all stretches end."""
        for customer in [*self._stretches]:
            yield from self.leave(customer)

    def _largest_since(self, gift: int) -> float:
        """The largest agenda by weight from this gift on; 0 if there was none."""
        found = bisect_left(self._peaks, (gift,))
        return self._peaks[found][1] if found < len(self._peaks) else 0.0

    def _credit(self, stretch: _CompetitionInterval, weight: float) -> None:
        stretch.due += weight * (self._level - stretch.level)
        stretch.level = self._level


def _add_interval(
    found: dict[int, Competitor], ended: Iterator[tuple[int, _CompetitionInterval]]
) -> None:
    for customer, stretch in ended:
        one = found.setdefault(customer, Competitor())
        one.given += stretch.given
        one.due += stretch.due
        one.largest = max(one.largest, stretch.largest)
        one.intervals += 1


def _interval_events(log: ServiceLog, largest: Sequence[float]) -> Mapping[int, Sequence[int]]:
    """Who begins or ceases to compete, by number of the event: stretches that count."""
    backlogged_now = BackloggedCustomers(len(log.customers))
    rivals = _CompetingCustomers()
    ended: list[tuple[int, int, _CompetitionInterval]] = []
    for number, (kind, _, customer, first, second) in enumerate(log):
        if kind == EMITTED:
            rivals.give(customer, second, second)
        elif kind == REWEIGHTED:
            rivals.reweigh(customer, first)
        change = backlogged_now.note(kind, customer, first)
        if change > 0:
            rivals.join(customer, backlogged_now.weights[customer], number)
        elif change < 0:
            ended += [(number, *one) for one in rivals.leave(customer)]
    ended += [(len(log), *one) for one in rivals.close()]
    return _intervals_that_count(ended, largest)


def _intervals_that_count(
    ended: Sequence[tuple[int, int, _CompetitionInterval]], largest: Sequence[float]
) -> Mapping[int, Sequence[int]]:
    turns: dict[int, list[int]] = {}
    for number, customer, stretch in ended:
        own = 0.0 if stretch.given else largest[customer]
        if stretch.due >= MIN_LARGEST_AGENDAS * max(stretch.largest, own):
            turns.setdefault(stretch.began, []).append(customer)
            turns.setdefault(number, []).append(customer)
    return turns


def _largest_agendas(log: ServiceLog) -> Sequence[float]:
    """By customer, what its largest agenda took; of one without any, that of anybody."""
    largest = [0.0] * len(log.customers)
    for kind, _, customer, _, spent in log:
        if kind == EMITTED and spent > largest[customer]:
            largest[customer] = spent
    most = max(largest, default=0.0)
    return [one or most for one in largest]
