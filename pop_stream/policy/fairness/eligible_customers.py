"""The customers that may go, in the order of their turns, and those that must wait."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Final

from pop_stream.model.ids import CustomerId
from pop_stream.policy.fairness.algorithms import FairnessAlgorithm
from pop_stream.policy.fairness.customer_queue import ref_in
from pop_stream.policy.fairness.flow import LEVELS, Aging, Flow
from pop_stream.policy.fairness.turn_order import KeyedHeap

TOP_LEVEL: Final = 1
"""The most urgent level, and the only one without strict priorities."""

MAX_IDLE_RETURNERS: Final = 64
"""Most returners that are counted: more than one round needs to serve at once."""


class EligibleCustomers:
    """Who is next, at what present; every call costs O(log customers).

    A customer that may go has a turn: most urgent first, then by the algorithm. One that begins
    to be able to go, or comes to another level, *joins* with the next pick, at the present of
    its level: who waited because nothing was asked for, or for a limit of its own, has saved
    nothing up. All that join with one pick join at the same present, that of those who could go
    before.

    One whose rate limit has no token left waits from that pick on until a pick finds that it
    has one. So what was chosen depends on the order of events and on the instants of rounds
    that chose something, which are on record, and a replay finds the same.

    Args:
        algorithm: How customers take turns.
        aging: For strict priority across customers; None for none.
        flows: All customers; only looked up here.
        presents: By level, to go on from; more or fewer than there are now will do.
    """

    def __init__(
        self,
        algorithm: FairnessAlgorithm,
        aging: Aging | None,
        flows: Mapping[CustomerId, Flow],
        presents: Sequence[float] = (0.0,),
    ) -> None:
        levels = 1 if aging is None else LEVELS
        missing = [presents[0]] * (levels - len(presents))
        self._presents: list[float] = [*presents[:levels], *missing]
        self._turns = [KeyedHeap() for _ in range(levels)]
        self._algorithm = algorithm
        self._aging = aging
        self._flows = flows
        self._joining: set[CustomerId] = set()
        self._dues = KeyedHeap()
        self._held = OrderedDict[CustomerId, None]()

    @property
    def presents(self) -> tuple[float, ...]:
        """As of the last pick by level, most urgent first; never rising."""
        return tuple(self._presents)

    @property
    def due_at(self) -> float | None:
        """When a rate limit lets one go on, or one becomes more urgent; None for never."""
        due = self._dues.first()
        return None if due is None else due[0]

    @property
    def are_none(self) -> bool:
        """Whether nobody may go, as far as is known since the last pick."""
        return not self._joining and not any(self._turns)

    def may_pick(self, now: float) -> bool:
        """Whether `next` could find one; True may turn out wrong, False never."""
        due_at = self.due_at
        return not self.are_none or (due_at is not None and due_at <= now)

    def soonest(self, most: int) -> list[Flow]:
        """About the next `most` customers, soonest first; O(most), and with who joins."""
        joining = sorted(self._joining, key=lambda one: (self._flows[one].position, one))
        names = chain(joining, *(turns.soonest(most) for turns in self._turns))
        return [self._flows[CustomerId(one)] for one in islice(names, most)]

    def held(self, most: int) -> list[Flow]:
        """Up to `most` with agendas that wait and may not go, longest held first; O(most)."""
        return [self._flows[customer_id] for customer_id in islice(self._held, most)]

    def idle_returners(self, in_flight: int) -> int:
        """How many are back from idleness, or were not chosen since, and have little out.

        Little is less than three quarters of an equal part of `in_flight`, all that is out. Up
        to `MAX_IDLE_RETURNERS`; none if agendas go by age alone.
        """
        if self._algorithm.by_age:
            return 0
        turns, present = self._turns[0], self.present(TOP_LEVEL)
        least = [
            self._flows[CustomerId(one)]
            for one in chain(
                islice(self._joining, MAX_IDLE_RETURNERS),
                turns.up_to(present, MAX_IDLE_RETURNERS),
            )
        ]
        parts = 4 * (len(turns) + len(self._joining))
        found = sum(
            one.sure_position <= present and one.in_flight * parts < 3 * in_flight
            for one in least
        )
        return min(found, MAX_IDLE_RETURNERS)

    def eligible_count(self, most: int, now: float) -> int:
        """How many agendas could be picked now, up to `most`; O(most).

        Customers that have just run out of tokens are looked at too, until a pick finds out.
        """
        rested = (
            one
            for one in self._dues.up_to(now, most)
            if self._flows[CustomerId(one)].is_rate_limited
        )
        count = 0
        for name in chain(self._joining, *self._turns, rested):
            if count >= most:
                break
            count += self._flows[CustomerId(name)].eligible_count(now)
        return min(count, most)

    def present(self, level: int) -> float:
        """Where customers that join a level begin, in worker-seconds per weight."""
        stored, first = (
            self._presents[level - TOP_LEVEL],
            self._turns[level - TOP_LEVEL].first(),
        )
        if first is None or self._algorithm.by_age:
            return stored
        flow = self._flows[CustomerId(first[1])]
        return flow.account.present(stored, flow.weight)

    def advance(self, level: int, present: float) -> None:
        """An agenda is emitted at this level from this position."""
        for index in range(level):
            self._presents[index] = max(self._presents[index], present)

    def advance_all(self, present: float) -> None:
        """Nobody waits, so what is delivered is given away by nobody."""
        self.advance(len(self._presents), present)

    def update(self, flow: Flow, now: float) -> bool:
        """Give a customer its turn, or none if it may not go; called after every change of it.

        Returns:
            Whether its level changed.
        """
        before, customer_id = flow.level, flow.customer_id
        if not flow.is_eligible:
            self._leave(flow)
            self._joining.discard(customer_id)
            self._hold(flow)
            return before != 0
        self._held.pop(customer_id, None)
        if not before:
            self._joining.add(customer_id)
            return False
        level, head = self.urgency_and_head(flow, now)
        if level != before:
            self._leave(flow)
            self._joining.add(customer_id)
            return True
        self._put(flow, head, now)
        return False

    def rejoin(self, flow: Flow, now: float) -> None:
        """After a restart: a customer has a turn again at the level that was saved."""
        level = flow.level
        flow.level = 0
        if flow.share.rate_per_s is not None and flow.token_at(now) > now:
            self.limit(flow, now)
        if level and flow.is_eligible:
            urgency, head = self.urgency_and_head(flow, now)
            if urgency == level:
                flow.level = level
                self._put(flow, head, now)
                return
        self.update(flow, now)

    def limit(self, flow: Flow, now: float) -> None:
        """Have a customer wait for a token, if it has none left."""
        token_at = flow.token_at(now)
        if token_at > now:
            flow.is_rate_limited = True
            self._dues.put(flow.customer_id, token_at)

    def follow_limit(self, flow: Flow, now: float) -> None:
        """The rate limit of a customer may have changed."""
        if flow.is_rate_limited:
            flow.is_rate_limited = False
            self._dues.drop(flow.customer_id)
        if flow.share.rate_per_s is not None:
            self.limit(flow, now)

    def admit(self, now: float) -> list[Flow]:
        """Let those join who are due, or could not go before; the first thing of a pick.

        Returns:
            Who has joined.
        """
        while (due := self._dues.first()) is not None and due[0] <= now:
            self._dues.drop(due[1])
            flow = self._flows[CustomerId(due[1])]
            flow.is_rate_limited = False
            self.update(flow, now)
        if not self._joining:
            return []
        joined = [self._flows[one] for one in sorted(self._joining)]
        self._joining = set()
        presents: dict[int, float] = {}
        heads: list[int] = []
        for flow in joined:
            flow.level, head = self.urgency_and_head(flow, now)
            heads.append(head)
            if flow.level not in presents:
                presents[flow.level] = self.present(flow.level)
        for flow, head in zip(joined, heads, strict=True):
            flow.account.lift(presents[flow.level], flow.weight)
            self._put(flow, head, now)
        return joined

    def urgency_and_head(self, flow: Flow, now: float) -> tuple[int, int]:
        """How urgent a customer is now, and with which of its entries."""
        if self._aging is None:
            return TOP_LEVEL, flow.customer_queue.head()
        return self._aging.most_urgent(flow.customer_queue.heads(), now)

    def next(self) -> Flow | None:
        """The customer that is next."""
        for turns in self._turns:
            if (first := turns.first()) is not None:
                return self._flows[CustomerId(first[1])]
        return None

    def forget(self, customer_id: CustomerId) -> None:
        """Forget a customer that has nothing waiting."""
        self._dues.drop(customer_id)

    def _put(self, flow: Flow, head: int, now: float) -> None:
        turn = self._algorithm.turn(position=flow.position, head=head)
        self._turns[flow.level - TOP_LEVEL].put(flow.customer_id, turn)
        if self._aging is not None:
            self._watch(flow, self._aging, now)

    def _leave(self, flow: Flow) -> None:
        if flow.level:
            self._turns[flow.level - TOP_LEVEL].drop(flow.customer_id)
            flow.level = 0

    def _hold(self, flow: Flow) -> None:
        """Remember one that may not go, if anything of it waits."""
        if flow.ready:
            self._held[flow.customer_id] = None
        else:
            self._held.pop(flow.customer_id, None)

    def _watch(self, flow: Flow, aging: Aging, now: float) -> None:
        """Set the instant at which the first of its agendas becomes more urgent."""
        rises = (
            aging.changes_at(priority, ref_in(head), now)
            for priority, head in flow.customer_queue.heads()
        )
        soonest = min((at for at in rises if at is not None), default=None)
        if soonest is None:
            self._dues.drop(flow.customer_id)
        else:
            self._dues.put(flow.customer_id, soonest)
