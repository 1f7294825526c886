"""One insight's scheduler in virtual time: the real policy, without wire or disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.backlog.page import PAGE_SLOTS
from pop_stream.core.backlog.whereabouts import Chosen
from pop_stream.core.definitions.definitions import Insight
from pop_stream.core.delta import Delta
from pop_stream.core.events import Claim, PlacedAgenda, Settlement
from pop_stream.core.fairness.flow import Share
from pop_stream.core.gate import admission
from pop_stream.core.gate.admission import Depth
from pop_stream.core.gate.pace import Counts, Pace
from pop_stream.core.gate.pools import Claimant
from pop_stream.core.values.ids import CustomerId

_MOST_DELTAS: Final = 200


@dataclass(slots=True)
class _Shelf:
    """What would be written: pages, and deltas since the last snapshot."""

    pages: dict[int, Sequence[PlacedAgenda]] = field(default_factory=dict)
    deltas: list[Delta] = field(default_factory=list)

    def save(self, backlog: Backlog) -> None:
        delta = backlog.take_delta()
        if delta is not None:
            self.deltas.append(delta)
        for number in backlog.take_emptied():
            self.pages.pop(number, None)
        if len(self.deltas) > _MOST_DELTAS:
            self.deltas = [backlog.snapshot()]


class VirtualDesk:
    """Does with a backlog and its gate what the scheduler does; instants are in seconds.

    Args:
        insight: Its definition.
        share_of: A customer's present share.
        is_kept: Whether `reload` may be called: then all changes are kept, at a price.
    """

    def __init__(
        self, insight: Insight, share_of: Callable[[CustomerId], Share], *, is_kept: bool
    ) -> None:
        self.backlog = Backlog(insight, share_of)
        self._insight = insight
        self._share_of = share_of
        self._pace = Pace()
        self._unplaced: list[PlacedAgenda] = []
        self._shelf = _Shelf() if is_kept else None

    def receive(self, placed: PlacedAgenda) -> None:
        """Another agenda waits.

        It goes into a page as late as makes no difference, for pages of one are costly.
        """
        self._unplaced.append(placed)

    def claim(self, claim: Claim, now: float, *, idle: int = 0) -> None:
        """It is heard that a runner has one, and that so many others had none."""
        self.backlog.idle.hear({"": idle}, now)
        self.backlog.claim(claim.agenda_id, claim.attempt, now, awaited=claim.awaited)

    def settle(self, settlement: Settlement, now: float = 0.0) -> None:
        """It has ended."""
        self._place(now)  # who waits when a charge is put right is part of the policy
        self.backlog.settle(settlement, now)

    def claimant(self, now: float) -> Claimant:
        """What the insight wants of its pool, as the scheduler reckons it."""
        self._place(now)
        backlog, insight = self.backlog, self._insight
        depth = Depth(unclaimed=backlog.unclaimed, in_flight=backlog.in_flight)
        slots = self._slots(depth, newcomers=backlog.queue.newcomers) if backlog.ready else 0
        return Claimant(
            insight_id=insight.id,
            weight=insight.pool_weight,
            minimum=insight.pool_minimum,
            demand=backlog.in_flight + backlog.queue.startable(slots, now),
            in_flight=backlog.in_flight,
        )

    def refill(
        self, now: float, room: Callable[[float], int] | None = None
    ) -> Sequence[Chosen]:
        """Choose what may be emitted now, and no more than a pool has room for."""
        backlog = self.backlog
        depth = Depth(unclaimed=backlog.unclaimed, in_flight=backlog.in_flight)
        ready = backlog.ready + len(self._unplaced)
        instant = datetime.fromtimestamp(now, UTC)
        counts = Counts(
            emitted=backlog.claimed + backlog.unclaimed,
            claimed=backlog.claimed,
            ready=ready,
            awaited=backlog.awaited,
            awaited_s=backlog.awaited_s,
            idle=backlog.idle.count(now),
        )
        self._pace.observe(counts, instant)
        chosen: Sequence[Chosen] = ()
        if ready and self._slots(depth, newcomers=lambda: ready) > 0:
            self._place(now)
            slots = self._slots(depth, newcomers=backlog.queue.newcomers)
            slots = slots if room is None else min(slots, room(now))
            chosen = backlog.choose(slots, now)
            for one in chosen:
                backlog.on_topic.send(one.ref, 0, now)
        if self._shelf is not None:
            self._place(now)
            self._shelf.save(backlog)
        return chosen

    def _slots(self, depth: Depth, *, newcomers: Callable[[], int]) -> int:
        return admission.slots(self.backlog.insight, depth, self._pace, newcomers=newcomers)

    def reconfigure(self, insight: Insight) -> None:
        """Take up a changed insight and changed shares."""
        self._insight = insight
        self._place()
        self.backlog.reconfigure(insight)

    def reload(self) -> None:
        """Go on as another scheduler would, from what was written."""
        if self._shelf is None:
            msg = "nothing was kept; make the desk with is_kept"
            raise ValueError(msg)
        self._place()
        self._shelf.save(self.backlog)
        self.backlog, self._pace = Backlog(self._insight, self._share_of), Pace()
        self.backlog.restore(self._shelf.pages.items(), self._shelf.deltas)

    def held_by(self, customer_id: CustomerId) -> str:
        """Which limit of its own keeps a customer out; empty for none."""
        return self.backlog.queue.flow(customer_id).held_by

    def _place(self, now: float = 0.0) -> None:
        for begin in range(0, len(self._unplaced), PAGE_SLOTS):
            page = self._unplaced[begin : begin + PAGE_SLOTS]
            number = self.backlog.place(page, now)
            if self._shelf is not None:
                self._shelf.pages[number] = page
        self._unplaced.clear()
