"""What callers of all API processes want of one insight, and who is to get the next agenda.

Counts of what was sent and of what came say what is on its way, so no process is sent more
than it has callers for, however often it says what it wants. Agendas that a dispatcher has
claimed when it ceases to be one wait here for the next. No clock: instants are given.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pop_stream.model.events.pull import DeliveryReturned, PollWanted
from pop_stream.model.events.scheduling import EmittedAgenda

PROCESS_TIMEOUT_S: Final = 4.0
"""A process of which nothing was read for so long has no callers; it publishes every second."""


@dataclass(slots=True)
class _ApiProcess:
    wanted: int
    received: int
    sent: int
    last_seen_s: float

    @property
    def capacity(self) -> int:
        return max(0, self.wanted - max(0, self.sent - self.received))


@dataclass(frozen=True, slots=True)
class ReturnedDelivery:
    """A claimed agenda that nobody took, and until when it is worth handing out."""

    emitted: EmittedAgenda
    until_s: float


class PollDemand:
    """How many agendas of one insight which processes want, as one dispatcher knows it.

    Args:
        dispatcher_id: By whose count processes say what they received.
    """

    def __init__(self, dispatcher_id: str) -> None:
        self.dispatcher_id = dispatcher_id
        self._processes: dict[str, _ApiProcess] = {}
        self._round_robin: deque[str] = deque()
        self._returned: deque[ReturnedDelivery] = deque()

    @property
    def capacity(self) -> int:
        """Agendas that could be handed out now."""
        return sum(process.capacity for process in self._processes.values())

    def update(self, poll: PollWanted, now_s: float) -> None:
        """Take over what a process wants; replaces what it wanted before."""
        received = poll.received.get(self.dispatcher_id, 0)
        known = self._processes.get(poll.api_id)
        if known is None:
            # What it received of a dispatcher of this name was sent by this one.
            known = _ApiProcess(poll.wanted, received, received, now_s)
            self._processes[poll.api_id] = known
            self._round_robin.append(poll.api_id)
        known.wanted, known.received, known.last_seen_s = poll.wanted, received, now_s

    def expire_silent(self, now_s: float) -> None:
        """Leave out processes that have gone, and returned agendas whose lease is over."""
        for api_id, process in [*self._processes.items()]:
            if now_s - process.last_seen_s > PROCESS_TIMEOUT_S:
                del self._processes[api_id]
                self._round_robin.remove(api_id)
        while self._returned and self._returned[0].until_s <= now_s:
            self._returned.popleft()

    def next_process(self) -> str | None:
        """Who gets an agenda now, by turns; counts it as sent. None if nobody wants one."""
        for _ in range(len(self._round_robin)):
            api_id = self._round_robin[0]
            self._round_robin.rotate(-1)
            if self._processes[api_id].capacity:
                self._processes[api_id].sent += 1
                return api_id
        return None

    def put_back(self, emitted: EmittedAgenda, now_s: float) -> None:
        """Keep a claimed agenda that nobody took, for as long as its lease may run."""
        self._returned.append(returned_delivery(emitted, now_s))

    def take_returned(self) -> EmittedAgenda | None:
        """A claimed agenda for the next process, the one put back first."""
        return self._returned.popleft().emitted if self._returned and self.capacity else None

    @property
    def has_returned(self) -> bool:
        """Whether a claimed agenda waits for somebody to want it."""
        return bool(self._returned)

    def take_all_returned(self) -> list[ReturnedDelivery]:
        """All of them, for another to hand out."""
        left = [*self._returned]
        self._returned.clear()
        return left


def returned_delivery(emitted: EmittedAgenda, now_s: float) -> ReturnedDelivery:
    """A claimed agenda that nobody took, to be kept for as long as its lease may run."""
    return ReturnedDelivery(emitted, now_s + emitted.lease_ms / 2000)


REBALANCE_GRACE_S: Final = 2.0
"""So long after a group has settled, all of its members read what is written."""


class OrphanedDeliveries:
    """Deliveries of closed dispatches, kept until the next dispatcher can read of them."""

    def __init__(self) -> None:
        self._waiting: list[ReturnedDelivery] = []
        self._resumed_s: float | None = None

    def add(self, some: Iterable[ReturnedDelivery]) -> None:
        """Add deliveries for which this process will get no demand any more."""
        self._waiting += some

    @property
    def has_any(self) -> bool:
        """Whether any are kept."""
        return bool(self._waiting)

    def rebalance_started(self) -> None:
        """The dispatchers' group has begun to settle anew, or is left."""
        self._resumed_s = None

    def rebalance_ended(self, now_s: float) -> None:
        """The group has settled."""
        self._resumed_s = now_s

    def pop_due(self, now_s: float) -> list[DeliveryReturned]:
        """What to publish for the next dispatcher, once; not what may have lost its lease."""
        if self._resumed_s is None or now_s - self._resumed_s < REBALANCE_GRACE_S:
            return []
        waiting, self._waiting = self._waiting, []
        return [
            DeliveryReturned(insight_id=one.emitted.insight_id, emitted=one.emitted)
            for one in waiting
            if one.until_s > now_s
        ]
