"""One insight's scheduler in virtual time: the real policy, without wire or disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import Claim, RoutedAgenda, Settlement
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.backlog.page import PAGE_SLOTS, ChosenAgenda
from pop_stream.policy.delta import Delta
from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.flow_control import emission_gate
from pop_stream.policy.flow_control.emission_gate import CurrentDepth, FlowCounts, TargetDepth
from pop_stream.policy.flow_control.pool_sharing import PoolDemand

_MAX_DELTAS: Final = 200


@dataclass(slots=True)
class _SimulatedStore:
    """What would be written: pages, and deltas since the last snapshot."""

    pages: dict[int, Sequence[RoutedAgenda]] = field(default_factory=dict)
    deltas: list[Delta] = field(default_factory=list)

    def save(self, backlog: Backlog) -> None:
        delta = backlog.drain_delta()
        if delta is not None:
            self.deltas.append(delta)
        for number in backlog.drain_emptied():
            self.pages.pop(number, None)
        if len(self.deltas) > _MAX_DELTAS:
            self.deltas = [backlog.snapshot()]


class SimulatedScheduler:
    """Does with a backlog and its gate what the scheduler does; instants are in seconds.

    Args:
        insight: Its definition.
        share_of: A customer's present share.
        is_persisted: Whether `reload` may be called: then all changes are kept, at a price.
    """

    def __init__(
        self, insight: Insight, share_of: Callable[[CustomerId], Share], *, is_persisted: bool
    ) -> None:
        self.backlog = Backlog(insight, share_of)
        self._insight = insight
        self._share_of = share_of
        self._target_depth = TargetDepth()
        self._pending: list[RoutedAgenda] = []
        self._store = _SimulatedStore() if is_persisted else None

    def receive(self, placed: RoutedAgenda) -> None:
        """Another agenda waits.

        It goes into a page as late as makes no difference, for pages of one are costly.
        """
        self._pending.append(placed)

    def claim(self, claim: Claim, now: float, *, idle: int = 0) -> None:
        """It is heard that a runner has one, and that so many others had none."""
        self.backlog.idle.update({"": idle}, now)
        self.backlog.claim(claim.agenda_id, claim.attempt, now, sync_matched=claim.sync_matched)

    def settle(self, settlement: Settlement, now: float = 0.0) -> None:
        """It has ended."""
        self._place_pending(now)  # who waits when a charge is put right is part of the policy
        self.backlog.settle(settlement, now)

    def pool_demand(self, now: float) -> PoolDemand:
        """What the insight wants of its pool, as the scheduler reckons it."""
        self._place_pending(now)
        backlog, insight = self.backlog, self._insight
        depth = CurrentDepth(unclaimed=backlog.unclaimed, in_flight=backlog.in_flight)
        slots = (
            self._budget(depth, idle_returners=backlog.queue.idle_returners)
            if backlog.ready
            else 0
        )
        return PoolDemand(
            insight_id=insight.id,
            weight=insight.pool_weight,
            minimum=insight.pool_minimum,
            demand=backlog.in_flight + backlog.queue.eligible_count(slots, now),
            in_flight=backlog.in_flight,
        )

    def refill(
        self, now: float, room: Callable[[float], int] | None = None
    ) -> Sequence[ChosenAgenda]:
        """Choose what may be emitted now, and no more than a pool has room for."""
        backlog = self.backlog
        depth = CurrentDepth(unclaimed=backlog.unclaimed, in_flight=backlog.in_flight)
        ready = backlog.ready + len(self._pending)
        instant = datetime.fromtimestamp(now, UTC)
        counts = FlowCounts(
            emitted=backlog.claimed + backlog.unclaimed,
            claimed=backlog.claimed,
            ready=ready,
            sync_matched=backlog.sync_matched,
            sync_matched_s=backlog.sync_matched_s,
            idle=backlog.idle.count(now),
        )
        self._target_depth.observe(counts, instant)
        chosen: Sequence[ChosenAgenda] = ()
        if ready and self._budget(depth, idle_returners=lambda: ready) > 0:
            self._place_pending(now)
            slots = self._budget(depth, idle_returners=backlog.queue.idle_returners)
            slots = slots if room is None else min(slots, room(now))
            chosen = backlog.choose(slots, now)
            for one in chosen:
                backlog.emitted_offsets.send(one.ref, 0, now)
        if self._store is not None:
            self._place_pending(now)
            self._store.save(backlog)
        return chosen

    def _budget(self, depth: CurrentDepth, *, idle_returners: Callable[[], int]) -> int:
        return emission_gate.slots(
            self.backlog.insight, depth, self._target_depth, idle_returners=idle_returners
        )

    def reconfigure(self, insight: Insight) -> None:
        """Take up a changed insight and changed shares."""
        self._insight = insight
        self._place_pending()
        self.backlog.reconfigure(insight)

    def reload(self) -> None:
        """Go on as another scheduler would, from what was written."""
        if self._store is None:
            msg = "nothing was kept; make the scheduler with is_persisted"
            raise ValueError(msg)
        self._place_pending()
        self._store.save(self.backlog)
        self.backlog, self._target_depth = Backlog(self._insight, self._share_of), TargetDepth()
        self.backlog.restore(self._store.pages.items(), self._store.deltas)

    def held_by(self, customer_id: CustomerId) -> str:
        """Which limit of its own keeps a customer out; empty for none."""
        return self.backlog.queue.flow(customer_id).held_by

    def _place_pending(self, now: float = 0.0) -> None:
        for begin in range(0, len(self._pending), PAGE_SLOTS):
            page = self._pending[begin : begin + PAGE_SLOTS]
            number = self.backlog.place(page, now)
            if self._store is not None:
                self._store.pages[number] = page
        self._pending.clear()
