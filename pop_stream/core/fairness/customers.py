"""The customers of one insight: their flows, their shares, and weights that changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from pop_stream.core.delta import FairnessState
from pop_stream.core.fairness.flow import Flow, Share
from pop_stream.core.fairness.line import CustomerQueue
from pop_stream.core.values.ids import CustomerId


class CustomerRegistry:
    """All that are known, backlogged or not.

    Args:
        share_of: The present share of a customer, asked when it is first heard of.

    Attributes:
        flows: By customer; to be looked up, and dropped from.
    """

    def __init__(self, share_of: Callable[[CustomerId], Share]) -> None:
        self.flows: dict[CustomerId, Flow] = {}
        self._share_of = share_of
        self._reweighed: dict[CustomerId, float] = {}

    @property
    def are_reweighed(self) -> bool:
        """Whether a tag is still reckoned with a weight that is not in force any more."""
        return bool(self._reweighed)

    def join(self, customer_id: CustomerId, present: float) -> Flow:
        """A new customer's flow, which starts at the present virtual time."""
        flow = self.flows[customer_id] = Flow(customer_id, self._share_of(customer_id), present)
        return flow

    def refresh_shares(self) -> Iterator[Flow]:
        """Ask every customer's share anew; yields those whose share is another one now."""
        for flow in self.flows.values():
            share = self._share_of(flow.customer_id)
            if share != flow.share:
                self._reweighed.setdefault(flow.customer_id, flow.share.weight)
                flow.share = share
                flow.is_rate_limited = False
                yield flow

    def tag_gap(self, level: int) -> float:
        """Widest difference of tags in a level of urgency; O(customers)."""
        tags = [flow.tag for flow in self.flows.values() if flow.level == level]
        return max(tags) - min(tags) if tags else 0.0

    def greatest(self, among: Iterable[CustomerId]) -> float:
        """The greatest tag among these; 0 if they are none."""
        return max((self.flows[one].tag for one in among), default=0.0)

    def restore(self, flow: Flow, tags: FairnessState | None) -> None:
        """Put a new flow where it was; None if it was idle, and not ahead."""
        if tags is None:
            return
        flow.restore(tags)
        if tags.weight not in {0.0, flow.share.weight}:
            self._reweighed[flow.customer_id] = tags.weight

    def weight(self, flow: Flow) -> float:
        """With which its tag is reckoned: a new one has yet to be seen to."""
        return self._reweighed.get(flow.customer_id, flow.share.weight)

    def tags(
        self,
        customers: Iterable[CustomerId],
        keys: Callable[[CustomerQueue], Mapping[str, float]],
    ) -> dict[str, FairnessState]:
        """Where these are, with the weights their tags are reckoned with.

        Args:
            customers: Known ones.
            keys: The tags of a line's fairness keys that are wanted.
        """
        flows = [self.flows[one] for one in customers]
        return {one.customer_id: one.tags(keys(one.line), self.weight(one)) for one in flows}

    def drain_reweighed(self) -> Iterator[tuple[Flow, float]]:
        """Those whose weight changed since the last call, with the one of before."""
        reweighed, self._reweighed = self._reweighed, {}
        for customer_id, weight in reweighed.items():
            if customer_id in self.flows:
                yield self.flows[customer_id], weight
