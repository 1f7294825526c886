"""A customer in one insight: its share, its queue, and what it was given.

A `Flow` is one customer, and a `Pick` is what the fair queue chose of one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import exp2, inf, nextafter
from typing import Final, NamedTuple

from pop_stream.model.definitions import Definitions
from pop_stream.model.ids import CustomerId
from pop_stream.policy.delta import FairnessState
from pop_stream.policy.fairness.cost_model import HINT
from pop_stream.policy.fairness.customer_queue import (
    CustomerQueue,
    class_of,
    priority_of,
    ref_in,
    with_priority,
    within_priority,
)
from pop_stream.policy.fairness.turn_order import MICROSECONDS, Account, Reservation

HALF_LIFE_S: Final = 30.0
"""Half-life of the recent service that people are shown."""

LEVELS: Final = 9
"""Priorities, and so levels of urgency: 1 is most urgent."""

_WAIT_GAIN: Final = 1 / 16
_WHOLE_TOKEN: Final = 1.0 - 1e-9
"""A token that float arithmetic left a hair short of one still counts."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a customer may have of an insight.

    Attributes:
        weight: Relative to other backlogged customers, above 0.
        max_in_flight: Most agendas emitted and not settled; None for no cap.
        rate_per_s: Most agendas emitted per second in the long run; None for no limit.
        burst: Most agendas emitted at once after a rest; at least 1.
        paused: Whether nothing of its backlog is emitted.
    """

    weight: float = 1.0
    max_in_flight: int | None = None
    rate_per_s: float | None = None
    burst: int = 1
    paused: bool = False


def share_of_definition(definitions: Definitions, customer_id: CustomerId) -> Share:
    """A customer's share as its definition says."""
    customer = definitions.customer(customer_id)
    return Share(
        weight=customer.weight,
        max_in_flight=customer.max_in_flight,
        rate_per_s=customer.rate_per_s,
        burst=customer.burst,
        paused=customer.paused,
    )


class Flow:
    """A customer's backlog, and what is out of it.

    Attributes:
        account: What was delivered to it, and what is reserved for what is out.
        weight: By which that counts; a new one replaces it at the next pick.
        division: In how many insights of a pool that is divided among customers it has
            agendas: its weight is divided by it; else 1.
        level: Of urgency in its turn, 1 most urgent and the only one without aging; 0 while it
            may not go, or has yet to join those that may.
        in_flight: Agendas emitted and not settled.
        largest_s: The most worker-seconds that one of its agendas took or counted as, what it
            declared left aside.
        tokens: Of its rate limit, as of `refilled_at`.
        is_rate_limited: Whether it waits for a token.
        wait_s: Recent mean of the wait of its agendas up to emission.
        served: Worker-seconds reserved for it, halved every `HALF_LIFE_S`, as of `served_at`.
        delivered_s: Worker-seconds of its agendas that ended; for people, in memory only.
    """

    __slots__ = (
        "account",
        "customer_id",
        "customer_queue",
        "delivered_s",
        "division",
        "in_flight",
        "is_rate_limited",
        "largest_s",
        "level",
        "refilled_at",
        "served",
        "served_at",
        "share",
        "tokens",
        "wait_s",
        "weight",
    )

    def __init__(self, customer_id: CustomerId, share: Share, *, by_class: bool) -> None:
        self.customer_id = customer_id
        self.share = share
        self.weight = share.weight
        self.division = 1
        self.account = Account()
        self.level = 0
        self.in_flight = 0
        self.largest_s = 0.0
        self.tokens = float(share.burst)
        self.refilled_at = 0.0
        self.is_rate_limited = False
        self.customer_queue = CustomerQueue(by_class=by_class)
        self.wait_s = 0.0
        self.served = 0.0
        self.served_at = 0.0
        self.delivered_s = 0.0

    @property
    def due_weight(self) -> float:
        """The weight that it should have in this insight by now."""
        return self.share.weight / self.division

    @property
    def is_active(self) -> bool:
        """Whether it has agendas that are out, or that may go."""
        return self.in_flight > 0 or self.is_eligible

    @property
    def ready(self) -> int:
        """Agendas that wait."""
        return self.customer_queue.ready

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it waits, or is out."""
        return not self.customer_queue.ready and not self.in_flight

    @property
    def held_by(self) -> str:
        """Why nothing of it can be picked: `paused`, `max_in_flight`, `rate`, or empty."""
        if self.share.paused:
            return "paused"
        cap = self.share.max_in_flight
        if cap is not None and self.in_flight >= cap:
            return "max_in_flight"
        return "rate" if self.is_rate_limited and self.ready else ""

    @property
    def is_eligible(self) -> bool:
        """Whether the next pick may be one of its agendas."""
        return self.customer_queue.ready > 0 and not self.held_by

    def eligible_count(self, now: float) -> int:
        """How many of its agendas may be picked at once, by its own limits."""
        most = 0 if self.share.paused else self.customer_queue.ready
        if self.share.max_in_flight is not None:
            most = min(most, self.share.max_in_flight - self.in_flight)
        if self.share.rate_per_s is not None:
            most = min(most, int(self._tokens(now) + 1.0 - _WHOLE_TOKEN))
        return max(0, most)

    @property
    def position(self) -> float:
        """Worker-seconds per weight, delivered and reserved: the least is next."""
        return self.account.position(self.weight)

    @property
    def sure_position(self) -> float:
        """The same without declared costs beyond the usual."""
        return self.account.sure_position(self.weight)

    def reweigh(self, weight: float, present: float) -> None:
        """Go on with another weight, as many worker-seconds ahead of the present as before."""
        self.account.reweigh(self.weight, weight, present)
        self.weight = weight

    def note_emission(self, *, cost: float, wait_s: float, now: float) -> None:
        """Count an emission in the figures that people are shown; decides nothing."""
        self.served = self.served_by(now) + cost
        self.served_at = now
        self.wait_s += _WAIT_GAIN * (wait_s - self.wait_s)

    def served_by(self, now: float) -> float:
        """Recent worker-seconds, those of one half-life ago counting half."""
        return self.served * exp2(-max(0.0, now - self.served_at) / HALF_LIFE_S)

    def fairness_state(self, keys: Mapping[str, tuple[float, int] | None]) -> FairnessState:
        """What `restore` needs, with some of its keys."""
        return FairnessState(
            tag=self.account.tag,
            last=self.account.last,
            level=self.level,
            weight=self.weight,
            largest_s=self.largest_s,
            keys_present=self.customer_queue.present,
            keys=dict(keys),
            division=self.division,
        )

    def note_size(self, agenda: Reservation) -> None:
        """Remember how large an agenda was, leaving aside what was declared of it."""
        counted = min(agenda.charged, HINT * agenda.sure) / MICROSECONDS
        self.largest_s = max(self.largest_s, counted)

    def restore(self, saved: FairnessState, *, by_turns: bool) -> None:
        """Become what was saved, but for what waits and is out."""
        self.account = Account(saved.tag, saved.last)
        self.largest_s = saved.largest_s
        self.division = saved.division
        self.weight = 1.0 if by_turns else saved.weight or self.due_weight
        self.customer_queue.restore(saved.keys_present, saved.keys)

    def has_full_burst(self, now: float) -> bool:
        """Whether its rate limit would let a whole burst go now."""
        return self.share.rate_per_s is None or self._tokens(now) >= self.share.burst

    def token_at(self, now: float) -> float:
        """When it has a token: `now` or later, in seconds on the clock of `now`."""
        rate = self.share.rate_per_s
        if rate is None:
            return now
        self._refill(now)
        if self.tokens >= _WHOLE_TOKEN:
            return now
        return max(now, self.refilled_at + (1.0 - self.tokens) / rate)

    def tokens_after_s(self, count: int, now: float) -> float:
        """Seconds until so many of its agendas have had tokens; 0 without a rate limit."""
        rate = self.share.rate_per_s
        if rate is None:
            return 0.0
        return max(0.0, (count - self._tokens(now) - 1.0 + _WHOLE_TOKEN) / rate)

    def consume_token(self, now: float) -> None:
        """Use up one token; only when there is one."""
        if self.share.rate_per_s is not None:
            self._refill(now)
            self.tokens -= 1.0

    def _refill(self, now: float) -> None:
        self.tokens = self._tokens(now)
        self.refilled_at = max(now, self.refilled_at)

    def _tokens(self, now: float) -> float:
        gained = max(0.0, now - self.refilled_at) * (self.share.rate_per_s or 0.0)
        return min(float(self.share.burst), self.tokens + gained)


@dataclass(frozen=True, slots=True)
class Aging:
    """Strict priority across customers, by which what waits becomes more urgent.

    An agenda of priority p counts as one of p - 1 after waiting `step_s`, p - 2 after twice
    that, so after at most 8 steps it is among the most urgent, where turns are fair. Among a
    customer's own of equal urgency those go first that were started before, then by rank and
    age: what has aged does not wait for ever behind new ones that came with that priority.

    Attributes:
        step_s: Seconds of waiting that are worth one priority, above 0.
        arrived_at: When the agenda with this ref arrived, in seconds.
    """

    step_s: float
    arrived_at: Callable[[int], float]

    def urgency(self, priority: int, ref: int, now: float) -> int:
        """The priority that counts now; 1 is most urgent."""
        steps = max(0.0, now - self.arrived_at(ref)) / self.step_s
        return max(1, priority - int(min(steps, LEVELS)))

    def most_urgent(self, heads: Iterable[tuple[int, int]], now: float) -> tuple[int, int]:
        """Of the next entries of a queue's classes, urgency and entry of the first to go.

        Args:
            heads: Priority and entry of each, as `CustomerQueue.heads` has them.
            now: The present instant, in seconds.
        """
        urgency, _, entry = min(
            (self.urgency(priority, ref_in(head), now), within_priority(head), head)
            for priority, head in heads
        )
        return urgency, entry

    def threshold(self, entry: int, head: int, now: float) -> float:
        """Entries of a class below this one go before an entry of the same queue.

        Args:
            entry: Of one that waits.
            head: The next entry of the class; the others in it are taken to be as urgent.
            now: The present instant, in seconds.
        """
        if class_of(head) == class_of(entry):
            return entry
        mine = self.urgency(priority_of(entry), ref_in(entry), now)
        theirs = self.urgency(priority_of(head), ref_in(head), now)
        if mine != theirs:
            return inf if theirs < mine else 0
        return with_priority(entry, priority_of(head))

    def changes_at(self, priority: int, ref: int, now: float) -> float | None:
        """When the urgency rises next, always after `now`; None once it is highest."""
        urgency = self.urgency(priority, ref, now)
        if urgency == 1:
            return None
        at = self.arrived_at(ref) + (priority - urgency + 1) * self.step_s
        return max(at, nextafter(now, inf))


class Pick(NamedTuple):
    """One agenda chosen.

    Attributes:
        ref: Its place in the backlog.
        reservation: What it counts as until it ends.
        level: Of urgency at which its customer was.
    """

    customer_id: CustomerId
    ref: int
    reservation: Reservation
    level: int = 1
