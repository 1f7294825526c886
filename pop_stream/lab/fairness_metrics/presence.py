"""Which customers are backlogged, event by event of a log of service."""

from pop_stream.lab.fairness_metrics.service_log import (
    ARRIVED,
    EMITTED,
    HELD,
    RELEASED,
    REWEIGHTED,
)


class BackloggedCustomers:
    """Who is backlogged: has an agenda that waits, and is not held by a limit of its own.

    Attributes:
        backlogged: Indices of customers.
        weights: By index of the customer.
    """

    def __init__(self, customers: int) -> None:
        self.backlogged: set[int] = set()
        self.weights = [1.0] * customers
        self._waiting = [0] * customers
        self._held = bytearray(customers)

    def note(self, kind: int, customer: int, value: float) -> int:
        """Apply an event of the log.

        Args:
            kind: Of the event.
            customer: Index of its customer.
            value: The first of its values.

        Returns:
            1 if its customer is backlogged from now on, -1 if it is no longer, else 0.
        """
        if kind == ARRIVED:
            self._waiting[customer] += 1
        elif kind == EMITTED:
            self._waiting[customer] -= 1
        elif kind == REWEIGHTED:
            self.weights[customer] = value
            return 0
        elif kind in {HELD, RELEASED}:
            self._held[customer] = kind == HELD
        else:
            return 0
        return self._change(customer)

    def _change(self, customer: int) -> int:
        is_backlogged = self._waiting[customer] > 0 and not self._held[customer]
        if is_backlogged == (customer in self.backlogged):
            return 0
        if is_backlogged:
            self.backlogged.add(customer)
            return 1
        self.backlogged.remove(customer)
        return -1
