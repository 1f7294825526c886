"""How soon a new weight shows in what was emitted after it.

A change is *visible* after n agendas if from the n-th on, counting those emitted since the
change, the customer's part of their worker-seconds stays nearer to what it is due by the new
weight than by the old. It is watched while all stay backlogged who were when it came, and no
weight changes again: only for so long is it known what anybody is due.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pop_stream.lab.fairness_metrics.presence import BackloggedCustomers
from pop_stream.lab.fairness_metrics.service_log import EMITTED, REWEIGHTED, ServiceLog
from pop_stream.model.ids import CustomerId


@dataclass(frozen=True, slots=True)
class WeightChangeEffect:
    """The effect of one change of a weight while its customer competed.

    Attributes:
        at: When it began to hold, in seconds.
        emissions: Agendas after which it was visible; None if it was not.
        watched: Agendas for which it could be watched.
    """

    customer_id: CustomerId
    at: float
    emissions: int | None
    watched: int

    def within(self, depth: int) -> float | None:
        """Agendas until it was visible, by `depth`; 1 or more if it was not in so many.

        None if it was not visible, but could not be watched for so many either.
        """
        if self.emissions is not None:
            return self.emissions / depth
        return self.watched / depth if self.watched >= depth else None


def since_announced(
    changes: Sequence[WeightChangeEffect], log: ServiceLog, announced_at: Sequence[float]
) -> Sequence[WeightChangeEffect]:
    """The same, counted from when each was defined instead of when the scheduler applied it.

    Args:
        changes: Of the log, as `weight_change_effects` has them.
        log: Of one insight.
        announced_at: When changes were defined, in order; a change that takes effect belongs
            to the last one before.
    """
    emitted_at = sorted(at for kind, at, *_ in log if kind == EMITTED)
    found: list[WeightChangeEffect] = []
    for one in changes:
        [announced] = announced_at[: bisect_right(announced_at, one.at)][-1:] or (one.at,)
        delayed = bisect_left(emitted_at, one.at) - bisect_left(emitted_at, announced)
        seen = None if one.emissions is None else one.emissions + delayed
        found.append(replace(one, at=announced, emissions=seen, watched=one.watched + delayed))
    return found


def weight_change_effects(log: ServiceLog) -> Iterator[WeightChangeEffect]:
    """All changes of the weights of customers that competed, in one pass and in order."""
    backlogged_now = BackloggedCustomers(len(log.customers))
    watch: _WeightChangeWatch | None = None
    for kind, at, customer, value, spent in log:
        old = backlogged_now.weights[customer]
        has_left = backlogged_now.note(kind, customer, value) < 0
        if watch is not None:
            if kind == EMITTED:
                watch.give(customer, spent)
            if kind == REWEIGHTED or (has_left and customer in watch.rivals):
                yield watch.result(log.customers)
                watch = None
        if kind == REWEIGHTED and value != old and customer in backlogged_now.backlogged:
            rivals = {one: backlogged_now.weights[one] for one in backlogged_now.backlogged}
            watch = _WeightChangeWatch(customer, at, rivals, old) if len(rivals) > 1 else None
    if watch is not None:
        yield watch.result(log.customers)


class _WeightChangeWatch:
    """One customer's new weight, and how emissions fall from then on.

    Attributes:
        rivals: Weights of all who were backlogged when it changed.
    """

    def __init__(
        self, customer: int, at: float, rivals: Mapping[int, float], old: float
    ) -> None:
        new, total = rivals[customer], sum(rivals.values())
        self._customer = customer
        self._at = at
        self.rivals = rivals
        shares = new / total, old / (total - new + old)
        self._midway = sum(shares) / 2
        self._is_raise = shares[0] > shares[1]
        self._own = 0.0
        self._all = 0.0
        self._watched = 0
        self._visible_after: int | None = None

    def give(self, customer: int, spent: float) -> None:
        """An agenda was emitted; it counts if its customer was there from the beginning."""
        if customer not in self.rivals:
            return
        self._watched += 1
        self._all += spent
        self._own += spent if customer == self._customer else 0.0
        share = self._own / self._all
        is_nearer = share > self._midway if self._is_raise else share < self._midway
        if not is_nearer:
            self._visible_after = None
        elif self._visible_after is None:
            self._visible_after = self._watched

    def result(self, customers: list[CustomerId]) -> WeightChangeEffect:
        """What was seen up to now."""
        return WeightChangeEffect(
            customers[self._customer], self._at, self._visible_after, self._watched
        )
