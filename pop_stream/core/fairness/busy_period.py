"""One insight's present busy period: since work came, until nothing waits and nothing runs."""

from collections.abc import Iterable

from pop_stream.core.values.ids import CustomerId


class BusyPeriod:
    """Who was served in it, and how far tags can have drifted apart in it.

    Attributes:
        served: Customers whose tag moved. Those that are not here were passed by the virtual
            clock at the end of an earlier period.
    """

    __slots__ = ("_largest_move", "_most_in_flight", "served")

    def __init__(
        self,
        served: Iterable[CustomerId] = (),
        *,
        largest_move: float = 0.0,
        most_in_flight: int = 0,
    ) -> None:
        self.served = set(served)
        self._largest_move = largest_move
        self._most_in_flight = most_in_flight

    def note_move(self, customer_id: CustomerId, by: float) -> None:
        """A charge or a correction moved the customer's tag."""
        self.served.add(customer_id)
        self._largest_move = max(self._largest_move, abs(by))

    def note_in_flight(self, count: int) -> None:
        """So many agendas are out at once."""
        self._most_in_flight = max(self._most_in_flight, count)

    @property
    def bound(self) -> float:
        """How far apart tags of those that may go can be, in worker-seconds per weight.

        A tag is ahead of the virtual time by the last charge, and by what all those that
        were out cost more; the virtual time went back by what they cost less.
        """
        return 2 * (self._most_in_flight + 1) * self._largest_move
