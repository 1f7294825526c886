"""How far apart the tags of customers that may go can be, within one busy period.

A busy period lasts from the first work until nothing waits and nothing runs. It is divided into
*windows*: the next begins once the virtual time has passed all tags as they were at some moment
of the present one. The bound looks at two windows: the virtual time has passed every customer
that was given nothing since the last one began.

Bound: D e + max(l, D e), over the last two windows: l the most a tag was ahead of the virtual
time when its customer was given an agenda or another weight, or could go on, D the most
agendas out at once, e the largest correction. A tag is at most l ahead, and then moves on by
what its customer's cost more, while the virtual time goes back by what others' cost less; only
the D that were out do either. A customer that was passed has no l, only corrections before and
after that.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pop_stream.model.ids import CustomerId


@dataclass(slots=True)
class _BoundWindow:
    lead: float = 0.0
    error: float = 0.0
    depth: int = 0


class GapBound:
    """Who was served in the busy period, and how far tags can have drifted apart.

    Args:
        served: Customers that were before now.
        mark: The greatest of their tags, in worker-seconds per weight.
        lead: How far that is ahead of the virtual time.
        in_flight: Agendas that are out.

    Attributes:
        served: Customers that could go, or whose tag moved. The virtual clock has passed all
            others at the end of an earlier period.
    """

    __slots__ = ("_before", "_mark", "_now", "_unlooked", "served")

    def __init__(
        self,
        served: Iterable[CustomerId] = (),
        *,
        mark: float = 0.0,
        lead: float = 0.0,
        in_flight: int = 0,
    ) -> None:
        self.served = set(served)
        self._mark = mark
        self._unlooked = 0
        self._before = _BoundWindow()
        self._now = _BoundWindow(lead=lead, depth=in_flight)

    def note_lead(self, customer_id: CustomerId, lead: float) -> None:
        """A charge or a new weight brought its tag so far ahead, or it returns with that."""
        self.served.add(customer_id)
        self._now.lead = max(self._now.lead, lead)

    def note_correction(self, customer_id: CustomerId, by: float) -> None:
        """An agenda turned out to cost more or less than it was charged."""
        self.served.add(customer_id)
        self._now.error = max(self._now.error, abs(by))

    def note_emission(self, in_flight: int) -> bool:
        """Count an emission; returns whether the caller is to call `advance_window`.

        That is after as many emissions as customers were served, so that finding the greatest
        of their tags costs O(1) an emission.
        """
        self._now.depth = max(self._now.depth, in_flight)
        self._unlooked += 1
        return self._unlooked >= len(self.served)

    def advance_window(self, greatest: float, present: float, in_flight: int) -> None:
        """Begin a window if the virtual time has passed the tags of the last mark.

        Args:
            greatest: Tag of those served, now.
            present: The virtual time.
            in_flight: Agendas that are out.
        """
        self._unlooked = 0
        if present < self._mark:
            self._mark = min(self._mark, greatest)
            return
        self._mark = greatest
        self._before, self._now = self._now, _BoundWindow(depth=in_flight)

    @property
    def bound(self) -> float:
        """How far apart tags of those that may go can be, in worker-seconds per weight."""
        before, now = self._before, self._now
        hidden = max(before.depth, now.depth) * max(before.error, now.error)
        return hidden + max(before.lead, now.lead, hidden)
