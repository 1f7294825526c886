"""`pop.counts`: how much of each customer waits and is on its way; every door reads all of it.

Counts are absolute, so a record that is lost is made good by the next one, and name only
customers that changed, unless they are whole.
"""

from typing import Literal

from msgspec import field

from pop_stream.core.events.base import Event, Instant, Struct


class Fullness(Struct, frozen=True):
    """How near to its limit the scheduler of an insight is; told from nine tenths on.

    Attributes:
        what: Of which there is much: agendas, or bytes of them.
        limit: Most that the scheduler takes, of all its insights.
        present: What it has, of all its insights.
    """

    what: Literal["agendas", "bytes"]
    limit: int
    present: int

    @property
    def is_full(self) -> bool:
        """Whether doors are to let nothing more in."""
        return self.present >= self.limit


class BacklogCounted(Event, frozen=True):
    """What waits in an insight, as its scheduler counts it.

    Attributes:
        customers: Ready agendas by customer, of those that have a quota.
        is_whole: Whether customers that are not named have none.
        placed: By partition of `pop.submissions`, offset and index of the last agenda placed.
        fullness: None while there is room for much more.
    """

    insight_id: str
    at: Instant
    customers: dict[str, int] = field(default_factory=dict)
    is_whole: bool = False
    placed: dict[str, tuple[int, int]] = field(default_factory=dict)
    fullness: Fullness | None = None


class DoorCounted(Event, frozen=True):
    """What a process let in: one of the API, or one of intake.

    Attributes:
        door_id: Of the process.
        number: From 1, growing, so that a repeat is known.
        admitted: Since the last number, of customers with a rate.
        under_way: By customer with a quota: let in, and not yet counted by whoever comes next.
        is_whole: Whether customers that are not named have none under way.
        begun: By partition of `pop.submissions`, the offset up to which it has begun to
            take submissions in; what lies before may have been accepted.
        handled: The same up to which it has: all before is counted here or by schedulers.
    """

    door_id: str
    number: int
    admitted: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, int] = field(default_factory=dict)
    is_whole: bool = False
    begun: dict[str, int] = field(default_factory=dict)
    handled: dict[str, int] = field(default_factory=dict)


CountEvent = BacklogCounted | DoorCounted
