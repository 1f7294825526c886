"""What happened to one insight's agendas, in order: the log that the measures read."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pop_stream.model.ids import CustomerId

ARRIVED, SETTLED, STARTED, RELEASED, HELD, REWEIGHTED, EMITTED = range(7)
"""Kinds of events; of those at one instant, the lesser comes first in `service_log_of`."""

_CHARGED: Final = 0
_SPENT: Final = 1


ServiceEvent = tuple[int, float, int, float, float]
"""Kind, instant in seconds, index of the customer, and two values.

The values are what was charged and what was truly spent of an emission; the wait of a start;
what was spent by weight and by itself of an end; the weight. A plain tuple: a long run has
millions.
"""


@dataclass(frozen=True, slots=True)
class ServedAttempt:
    """One attempt of one agenda, as an observer saw it; instants are in seconds.

    Attributes:
        arrived_at: When the scheduler had it; it waits from here to `emitted_at`.
        submitted_at: When its customer sent it; the wait counts from here to `started_at`.
        charged: Worker-seconds it was taken to cost when it was emitted.
        spent: Worker-seconds it truly took.
        weight: Of its customer when it was emitted.
    """

    customer_id: CustomerId
    submitted_at: float
    arrived_at: float
    emitted_at: float
    started_at: float
    ended_at: float
    charged: float
    spent: float
    weight: float = 1.0


class ServiceLog:
    """Events in the order in which they took effect, at 30 bytes each.

    Attributes:
        customers: All that were ever named; events hold indices into it.
    """

    def __init__(self) -> None:
        self.customers: list[CustomerId] = []
        self._indices: dict[CustomerId, int] = {}
        self._kinds = bytearray()
        self._instants = array("d")
        self._who = array("L")
        self._values = (array("d"), array("d"))

    def __len__(self) -> int:
        return len(self._kinds)

    def __iter__(self) -> Iterator[ServiceEvent]:
        columns = (self._kinds, self._instants, self._who, *self._values)
        return zip(*columns, strict=True)

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last instant; zeros for an empty log."""
        return (self._instants[0], self._instants[-1]) if self._instants else (0.0, 0.0)

    def index(self, customer_id: CustomerId) -> int:
        """The customer's index, given on first use."""
        found = self._indices.get(customer_id)
        if found is None:
            found = self._indices[customer_id] = len(self.customers)
            self.customers.append(customer_id)
        return found

    def arrived(self, at: float, customer: int) -> None:
        """An agenda waits now."""
        self._add(ARRIVED, at, customer)

    def emitted(self, at: float, customer: int, *, charged: float, spent: float) -> None:
        """One of the customer's waiting agendas was emitted.

        Args:
            at: When.
            customer: Whose.
            charged: Worker-seconds it was taken to cost.
            spent: Worker-seconds it will have taken in the end.
        """
        self._add(EMITTED, at, customer, charged, spent)

    def started(self, at: float, customer: int, *, waited: float) -> None:
        """An emitted agenda began to run, `waited` seconds after it was submitted."""
        self._add(STARTED, at, customer, waited)

    def settled(self, at: float, customer: int, *, spent: float, weight: float) -> None:
        """An emitted agenda ended.

        Args:
            at: When.
            customer: Whose.
            spent: Worker-seconds it took.
            weight: Of the customer when it was emitted.
        """
        self._add(SETTLED, at, customer, spent / weight, spent)

    def weighed(self, at: float, customer: int, weight: float) -> None:
        """The customer's weight is this from now on; 1 until the first time."""
        self._add(REWEIGHTED, at, customer, weight)

    def held(self, at: float, customer: int) -> None:
        """Its own pause, cap or rate limit keeps the customer out."""
        self._add(HELD, at, customer)

    def released(self, at: float, customer: int) -> None:
        """It is held no longer."""
        self._add(RELEASED, at, customer)

    def _add(
        self, kind: int, at: float, customer: int, first: float = 0.0, second: float = 0.0
    ) -> None:
        self._kinds.append(kind)
        self._instants.append(at)
        self._who.append(customer)
        self._values[_CHARGED].append(first)
        self._values[_SPENT].append(second)


@dataclass(frozen=True, slots=True)
class ObservedWeight:
    """When an observer first saw that a customer had this weight."""

    at: float
    customer_id: CustomerId
    weight: float


def service_log_of(
    attempts: Iterable[ServedAttempt], weight_changes: Iterable[ObservedWeight] = ()
) -> ServiceLog:
    """A log from what an observer gathered, in any order.

    Of events at the same instant, arrivals come first and emissions last, as in a round.

    Args:
        attempts: Each with the weight that it was emitted with.
        weight_changes: Of changes that were seen before the customer's next emission.
    """
    log = ServiceLog()
    events: list[tuple[float, int, int, ServedAttempt | ObservedWeight]] = [
        (one.at, REWEIGHTED, number, one) for number, one in enumerate(weight_changes)
    ]
    for number, one in enumerate(attempts):
        instants = (
            (min(one.arrived_at, one.emitted_at), ARRIVED),
            (one.emitted_at, EMITTED),
            (one.started_at, STARTED),
            (one.ended_at, SETTLED),
        )
        events += [(at, kind, number, one) for at, kind in instants]
    events.sort(key=lambda event: event[:3])
    weights: dict[int, float] = {}
    for at, kind, _, event in events:
        _append_event(log, weights, at, kind, event)
    return log


def _append_event(
    log: ServiceLog,
    weights: dict[int, float],
    at: float,
    kind: int,
    one: ServedAttempt | ObservedWeight,
) -> None:
    customer = log.index(one.customer_id)
    if kind in {REWEIGHTED, EMITTED} and weights.get(customer, 1.0) != one.weight:
        weights[customer] = one.weight
        log.weighed(at, customer, one.weight)
    if isinstance(one, ObservedWeight):
        return
    if kind == ARRIVED:
        log.arrived(at, customer)
    elif kind == EMITTED:
        log.emitted(at, customer, charged=one.charged, spent=one.spent)
    elif kind == STARTED:
        log.started(at, customer, waited=at - one.submitted_at)
    else:
        log.settled(at, customer, spent=one.spent, weight=one.weight)
