"""A fair queue that knows what is out, so that a test says only whose agenda ends."""

from pop_stream.policy.fairness.cost_model import Estimate
from pop_stream.policy.fairness.customer_queue import ref_in
from pop_stream.policy.fairness.queue import FairQueue


class SettlingQueue(FairQueue):
    """Estimates are true and sure, unless a test says otherwise."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.keys = {}
        self.out = {}

    def push(self, customer_id, entry, key=""):
        self.keys[ref_in(entry)] = key
        super().push(customer_id, entry, key)

    def pick(self, cost_of, now=0.0):
        pick = super().pick(lambda ref: estimate(cost_of(ref)), now)
        if pick is not None:
            self.out.setdefault(pick.customer_id, []).append((pick, cost_of(pick.ref)))
        return pick

    def end(self, customer_id, *, more=0.0, taken=None):
        """The oldest that is out of a customer ends, having taken so much more."""
        pick, cost = self.out[customer_id].pop(0)
        taken = cost + more if taken is None else taken
        self.settle(customer_id, self.keys[pick.ref], pick.reservation, taken)

    def heartbeat(self, customer_id, elapsed_s):
        """The oldest that is out has run for so long."""
        pick, cost = self.out[customer_id][0]
        key = self.keys[pick.ref]
        after = self.replace(customer_id, key, pick.reservation, elapsed_s)
        self.out[customer_id][0] = pick._replace(reservation=after), cost


def estimate(cost):
    """Of one whose cost is known."""
    return cost if isinstance(cost, Estimate) else Estimate(cost, cost)
