"""Quotas of customers and insights, and the schedulers' capacity, over all that admit agendas.

An *ingress* is such a process: one of the API, or one of ingest. A customer may submit at a
rate (`TokenBucket`) and may have so many agendas ready. So may an insight, which lets agendas
of priority 1 pass until it has twice as many. An insight whose scheduler has as much in memory
as it may admits nothing.

Both are accounts: a customer under its id, an insight under `insight_account`.

What is ready is counted by the schedulers. What is on its way to them is counted by whoever
has it (`InFlightSubmissions`): an ingress of the API until an ingest has processed its
record, ingest until the scheduler has placed it. So an agenda is always counted by someone,
and for a moment perhaps by two.

Ingresses report to each other a few times a second (`QuotaLedger.drain_reports`, `apply`). A
decision therefore misses at most what the others admitted since their last report; over all,
a customer may exceed a quota by that much, and waits for it afterwards.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.errors import CapacityError, InsightFullError, QuotaError
from pop_stream.model.events.quota import BacklogUsage, CapacityLimit, IngressUsage, UsageEvent
from pop_stream.policy.ingress.usage import (
    UsageDelta,
    UsageTotals,
    add,
    chunks,
    insight_account,
)


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """What is left of a customer's rate.

    Attributes:
        tokens: At the instant; at most the burst, below 0 if more was taken elsewhere.
        at_s: Of a clock that never goes back.
    """

    tokens: float
    at_s: float


def take_token(
    bucket: TokenBucket | None, *, rate_per_s: float, burst: int, now_s: float
) -> tuple[TokenBucket, float]:
    """Take one token, if there is one; pure.

    Args:
        bucket: As the last call left it; None is a full one.
        rate_per_s: Tokens that come back per second, above 0.
        burst: Most that there can be, at least 1.
        now_s: The present; before the last call's it counts as that.

    Returns:
        The bucket as it is now, and the seconds until there is a token: 0 if one was taken.
    """
    if bucket is None:
        bucket = TokenBucket(float(burst), now_s)
    now_s = max(now_s, bucket.at_s)
    tokens = min(float(burst), bucket.tokens + (now_s - bucket.at_s) * rate_per_s)
    if tokens >= 1:
        return TokenBucket(tokens - 1, now_s), 0.0
    return TokenBucket(tokens, now_s), (1 - tokens) / rate_per_s


def deduct(bucket: TokenBucket, count: int) -> TokenBucket:
    """The bucket after so many tokens were taken elsewhere; it may be left below 0."""
    return replace(bucket, tokens=bucket.tokens - count)


RecordPosition = tuple[int, int]
"""Where an agenda was written: offset, and index within the record."""

LONG_LANE: Final = 1_000
"""Entries of a lane, above which neighbours of one customer share one."""

_MAX_MERGED: Final = 64


class InFlightSubmissions:
    """Agendas that were admitted and are not counted yet by whoever has them next, by customer.

    An agenda leaves when its lane is known to have come past it.

    Within a lane positions grow, but for neighbours: one that comes late leaves with those
    before it. In a long lane neighbours of one customer share an entry, and leave together.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}
        self._lanes: dict[Hashable, deque[tuple[RecordPosition, str, int]]] = {}
        self._changed: set[str] = set()

    @property
    def counts(self) -> Mapping[str, int]:
        """By customer; those with none are not in it."""
        return self._counts

    def drain_changed(self) -> set[str]:
        """Customers whose counts may have changed since the last call."""
        touched, self._changed = self._changed, set()
        return touched

    def reserve(self, customer_id: str) -> None:
        """One was admitted; where it will be written is not known yet."""
        self._unwritten[customer_id] = self._unwritten.get(customer_id, 0) + 1
        self._add(customer_id, 1)

    def discard(self, customer_id: str) -> None:
        """One of those reserved was not written; without any reserved, nothing happens."""
        if self._end(customer_id):
            self._add(customer_id, -1)

    def locate(self, customer_id: str, lane: Hashable, position: RecordPosition) -> None:
        """One of those reserved was written."""
        if not self._end(customer_id):
            return
        entries = self._lanes.setdefault(lane, deque())
        if (
            len(entries) > LONG_LANE
            and entries[-1][1] == customer_id
            and entries[-1][2] < _MAX_MERGED
        ):
            last, _, count = entries.pop()
            entries.append((max(last, position), customer_id, count + 1))
        else:
            entries.append((position, customer_id, 1))

    def advance(self, lane: Hashable, position: RecordPosition) -> None:
        """The next part counts the lane's agendas up to and with this position."""
        entries = self._lanes.get(lane)
        if entries is None:
            return
        while entries and entries[0][0] <= position:
            _, customer_id, count = entries.popleft()
            self._add(customer_id, -count)
        if not entries:
            del self._lanes[lane]

    def _end(self, customer_id: str) -> bool:
        left = self._unwritten.get(customer_id, 0) - 1
        if left > 0:
            self._unwritten[customer_id] = left
        else:
            self._unwritten.pop(customer_id, None)
        return left >= 0

    def _add(self, customer_id: str, count: int) -> None:
        self._changed.add(customer_id)
        add(self._counts, customer_id, count)


FULL_REPORT_INTERVAL_S: Final = 10.0
"""An ingress with anything to report reports all of it so often, for newly started ones."""

PEER_EXPIRY_S: Final = 35.0
"""An ingress that has reported nothing for so long is gone."""

QUOTA_RETRY_AFTER_S: Final = 5.0
"""When a customer with too much ready may try again; how fast it falls is not known."""

URGENT_FACTOR: Final = 2
"""How many times an insight's `max_ready` may be ready until priority 1 is refused, too."""

MAX_BUCKETS: Final = 100_000
"""Customers whose bucket is kept; the one that submitted nothing for longest goes first."""

_END_OF_RECORD: Final = 1 << 62


@dataclass(slots=True)
class _PeerIngress:
    """Another ingress, by its last report."""

    number: int
    last_seen_s: float


class QuotaLedger:
    """The counts of one ingress, and what it knows of the others'; see the module.

    Every `now_s` is of one clock, whatever its zero is.

    Args:
        ingress_id: Of the process, unlike all others'.
        customer_of: A customer's definition; None for one that has none.
        insight_of: The same of an insight.

    Attributes:
        started_up_to: By partition of `pop.submissions`, up to where any ingest has begun.
    """

    def __init__(
        self,
        ingress_id: str,
        customer_of: Callable[[str], Customer | None],
        insight_of: Callable[[str], Insight | None] = lambda _: None,
    ) -> None:
        self._insight_of = insight_of
        self.started_up_to: dict[int, int] = {}
        self._ingress_id = ingress_id
        self._customer_of = customer_of
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._ready = UsageTotals()
        self._at_peers = UsageTotals()
        self._peers: dict[str, _PeerIngress] = {}
        self._capacity_limits: dict[str, CapacityLimit] = {}
        self._in_flight = InFlightSubmissions()
        self._changes = UsageDelta()
        self._admitted: dict[str, int] = {}
        self._own_offsets: dict[str, dict[str, int]] = {
            "started_up_to": {},
            "processed_up_to": {},
        }
        self._has_changes = False
        self._number = 0
        self._last_full_report_at: float | None = None

    # ---- admission ----

    def admit(
        self, customer_id: str, insight_id: str, *, now_s: float, is_urgent: bool = False
    ) -> None:
        """Admit one agenda; `record_position` follows once it is written, or `release`.

        Args:
            customer_id: Whose it is.
            insight_id: Where it goes.
            now_s: The present.
            is_urgent: Whether it is of priority 1, which a full insight lets pass.

        Raises:
            CapacityError: If the insight's scheduler has as much as it may.
            InsightFullError: If the insight has as much ready as it may.
            QuotaError: If the customer has as much ready as it may, or submits too fast.
        """
        near = self._capacity_limits.get(insight_id)
        if near is not None and near.is_full:
            raise CapacityError(insight_id, near.what, near.limit, near.present)
        customer = self._customer_of(customer_id)
        if customer is not None and customer.max_ready is not None:
            self._check_ready(customer, customer.max_ready)
        self._check_insight(insight_id, is_urgent=is_urgent)
        if customer is not None and customer.max_submit_per_s is not None:
            self._take_token(customer, customer.max_submit_per_s, now_s)
        self.count_admitted(customer_id, insight_id)

    def count_admitted(self, customer_id: str, insight_id: str) -> None:
        """Count one agenda that another ingress has admitted, or this one before a crash."""
        for account in self._accounts(customer_id, insight_id):
            self._in_flight.reserve(account)

    def is_limited(self, customer_id: str, insight_id: str) -> bool:
        """Whether `admit` could decide otherwise later."""
        customer = self._customer_of(customer_id)
        has_rate = customer is not None and customer.max_submit_per_s is not None
        is_counted = bool(self._accounts(customer_id, insight_id))
        return has_rate or is_counted or insight_id in self._capacity_limits

    def record_position(
        self, customer_id: str, insight_id: str, position: RecordPosition, *, lane: Hashable
    ) -> None:
        """One that was admitted is written.

        Args:
            customer_id: Whose it is.
            insight_id: Where it goes.
            position: Offset and index of the submission.
            lane: Partition of `pop.submissions`; for ingest, with the insight before it.
        """
        for account in self._accounts(customer_id, insight_id):
            self._in_flight.locate(account, lane, position)

    def release(self, customer_id: str, insight_id: str) -> None:
        """One that was admitted could not be written, or nobody knows."""
        for account in self._accounts(customer_id, insight_id):
            self._in_flight.discard(account)

    def ready_count(self, account: str) -> int:
        """Ready agendas of an account, and those on their way, by the last reports."""
        here = self._in_flight.counts.get(account, 0)
        return here + self._ready.of(account) + self._at_peers.of(account)

    # ---- reports ----

    def apply(self, event: UsageEvent, *, now_s: float) -> None:
        """Take in a scheduler's or ingress's report; its own, or a repeat, changes nothing."""
        if isinstance(event, BacklogUsage):
            self._apply_backlog_usage(event)
        else:
            self._apply_ingress_usage(event, now_s)

    def begin(self, ends: Mapping[int, int]) -> IngressUsage:
        """Note that submissions up to these offsets are begun.

        Publish what it returns before any of them is accepted: whoever reads them again after
        a crash must not refuse what was accepted.
        """
        self.started_up_to.update(ends)
        self._advance_own_offsets("started_up_to", ends)
        self._number += 1
        started_up_to = dict(self._own_offsets["started_up_to"])
        return IngressUsage(
            ingress_id=self._ingress_id, number=self._number, started_up_to=started_up_to
        )

    def mark_processed(self, ends: Mapping[int, int]) -> None:
        """Note that submissions up to these offsets are counted here or refused."""
        self._advance_own_offsets("processed_up_to", ends)
        self._has_changes = True

    def drain_reports(self, now_s: float) -> Sequence[IngressUsage]:
        """What is to be published now, in order; nothing if nothing changed."""
        self._drop_expired_peers(now_s)
        counts, touched = self._in_flight.counts, self._in_flight.drain_changed()
        is_complete = self._is_full_report_due(now_s)
        if is_complete:
            self._last_full_report_at = now_s
            named = self._changes.complete(counts)
        else:
            named = self._changes.take_changed(counts, touched)
        admitted, self._admitted = self._admitted, {}
        if not (is_complete or named or admitted or self._has_changes):
            return []
        self._has_changes = False
        *first, last = chunks(named)
        reports = [
            self._report(part, {}, is_complete and number == 0, last=False)
            for number, part in enumerate(first)
        ]
        return [*reports, self._report(last, admitted, is_complete and not reports, last=True)]

    # ---- inside ----

    def _accounts(self, customer_id: str, insight_id: str) -> Sequence[str]:
        """Under which its ready agendas are counted, because they are limited."""
        customer, insight = self._customer_of(customer_id), self._insight_of(insight_id)
        found = [customer_id] if customer is not None and customer.max_ready is not None else []
        if insight is not None and insight.max_ready is not None:
            found.append(insight_account(insight_id))
        return found

    def _check_ready(self, customer: Customer, max_ready: int) -> None:
        present = self.ready_count(customer.id)
        if present >= max_ready:
            raise QuotaError(
                customer.id,
                "max_ready",
                limit=max_ready,
                present=present,
                retry_after_s=QUOTA_RETRY_AFTER_S,
            )

    def _check_insight(self, insight_id: str, *, is_urgent: bool) -> None:
        insight = self._insight_of(insight_id)
        if insight is None or insight.max_ready is None:
            return
        limit = insight.max_ready * (URGENT_FACTOR if is_urgent else 1)
        present = self.ready_count(insight_account(insight_id))
        if present >= limit:
            raise InsightFullError(
                insight_id, limit=limit, present=present, retry_after_s=QUOTA_RETRY_AFTER_S
            )

    def _take_token(self, customer: Customer, rate_per_s: float, now_s: float) -> None:
        burst = customer.submit_burst
        known = self._buckets.get(customer.id)
        bucket, wait_s = take_token(known, rate_per_s=rate_per_s, burst=burst, now_s=now_s)
        self._remember(customer.id, bucket)
        if wait_s:
            raise QuotaError(
                customer.id,
                "max_submit_per_s",
                limit=rate_per_s,
                present=round(burst - bucket.tokens, 3),
                retry_after_s=wait_s,
            )
        self._admitted[customer.id] = self._admitted.get(customer.id, 0) + 1

    def _remember(self, customer_id: str, bucket: TokenBucket) -> None:
        self._buckets[customer_id] = bucket
        self._buckets.move_to_end(customer_id)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)

    def _apply_backlog_usage(self, event: BacklogUsage) -> None:
        self._ready.apply(event.insight_id, event.customers, is_complete=event.is_complete)
        if event.capacity_limit is None:
            self._capacity_limits.pop(event.insight_id, None)
        else:
            self._capacity_limits[event.insight_id] = event.capacity_limit
        for partition, position in event.placed.items():
            self._in_flight.advance((event.insight_id, int(partition)), position)

    def _apply_ingress_usage(self, event: IngressUsage, now_s: float) -> None:
        known = self._peers.get(event.ingress_id)
        if event.ingress_id == self._ingress_id or (known and event.number <= known.number):
            return
        self._peers[event.ingress_id] = _PeerIngress(event.number, now_s)
        self._at_peers.apply(event.ingress_id, event.in_flight, is_complete=event.is_complete)
        for customer_id, count in event.admitted.items():
            customer = self._customer_of(customer_id)
            if customer is not None and customer.max_submit_per_s is not None:
                known_bucket = self._buckets.get(customer_id)
                full = TokenBucket(float(customer.submit_burst), now_s)
                self._remember(customer_id, deduct(known_bucket or full, count))
        for partition, end in event.started_up_to.items():
            number = int(partition)
            self.started_up_to[number] = max(end, self.started_up_to.get(number, 0))
        for partition, end in event.processed_up_to.items():
            self._in_flight.advance(int(partition), (end - 1, _END_OF_RECORD))

    def _drop_expired_peers(self, now_s: float) -> None:
        gone = [
            ingress_id
            for ingress_id, other in self._peers.items()
            if now_s - other.last_seen_s > PEER_EXPIRY_S
        ]
        for ingress_id in gone:
            del self._peers[ingress_id]
            self._at_peers.forget(ingress_id)

    def _is_full_report_due(self, now_s: float) -> bool:
        has_any = bool(
            self._in_flight.counts or self._changes or self._own_offsets["started_up_to"]
        )
        is_time = (
            self._last_full_report_at is None
            or now_s - self._last_full_report_at >= FULL_REPORT_INTERVAL_S
        )
        return has_any and is_time

    def _advance_own_offsets(self, what: str, ends: Mapping[int, int]) -> None:
        self._own_offsets[what].update({str(partition): end for partition, end in ends.items()})

    def _report(
        self, named: dict[str, int], admitted: dict[str, int], is_complete: bool, *, last: bool
    ) -> IngressUsage:
        self._number += 1
        mine = self._own_offsets if last else {"started_up_to": {}, "processed_up_to": {}}
        return IngressUsage(
            ingress_id=self._ingress_id,
            number=self._number,
            admitted=admitted,
            in_flight=named,
            is_complete=is_complete,
            started_up_to=dict(mine["started_up_to"]),
            processed_up_to=dict(mine["processed_up_to"]),
        )
