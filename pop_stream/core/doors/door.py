"""What one door lets in: a customer's quotas, and room with the scheduler, over all doors.

A door is a process through which agendas come: one of the API, or one of intake. What is ready
the schedulers count and tell. What is on its way to them is counted by whoever has it: a door
of the API until an intake has handled its record, intake until the scheduler has placed it.
So an agenda is always counted by someone, and for a moment perhaps by two.

The doors tell each other a few times a second. A decision therefore misses at most what the
others let in since they last told.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pop_stream.core.definitions.definitions import Customer
from pop_stream.core.doors.quota import Bucket, spend, take
from pop_stream.core.doors.under_way import Position, UnderWay
from pop_stream.core.errors import FullError, QuotaError
from pop_stream.core.events import BacklogCounted, CountEvent, DoorCounted, Fullness
from pop_stream.core.values.counted import Changes, Sums, portions

WHOLE_EVERY_S: Final = 10.0
"""Whoever has something to tell tells all of it so often, for those that have just come."""

FORGOTTEN_AFTER_S: Final = 35.0
"""A door that has told nothing for so long is gone."""

LOOK_AGAIN_S: Final = 5.0
"""When who has too much ready may come back; how fast it falls is not known."""

MOST_KNOWN: Final = 100_000
"""Customers whose allowance is remembered; who is forgotten has submitted nothing for long."""

_END_OF_RECORD: Final = 1 << 62


@dataclass(slots=True)
class _Other:
    """Another door, by its last words."""

    number: int
    heard_s: float


class Door:
    """One door; see the module. Every `now_s` is of one clock, whatever its zero is.

    Args:
        door_id: Of the process, unlike all others'.
        customer_of: A customer's definition; None for one that has none.

    Attributes:
        begun: By partition of `pop.submissions`, up to where any intake has begun.
    """

    def __init__(self, door_id: str, customer_of: Callable[[str], Customer | None]) -> None:
        self.begun: dict[int, int] = {}
        self._door_id = door_id
        self._customer_of = customer_of
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._ready = Sums()
        self._elsewhere = Sums()
        self._others: dict[str, _Other] = {}
        self._near: dict[str, Fullness] = {}
        self._under_way = UnderWay()
        self._changes = Changes()
        self._admitted: dict[str, int] = {}
        self._mine: dict[str, dict[str, int]] = {"begun": {}, "handled": {}}
        self._is_news = False
        self._number = 0
        self._whole_at: float | None = None

    # ---- who comes in ----

    def admit(self, customer_id: str, insight_id: str, *, now_s: float) -> None:
        """Let one agenda in; say where it was `written`, or that it was `given_up`.

        Raises:
            FullError: If the insight's scheduler has as much as it may.
            QuotaError: If the customer has as much ready as it may, or submits too fast.
        """
        near = self._near.get(insight_id)
        if near is not None and near.is_full:
            raise FullError(insight_id, near.what, near.limit, near.present)
        customer = self._customer_of(customer_id)
        if customer is None:
            return
        if customer.max_ready is not None:
            present = self.present(customer_id)
            if present >= customer.max_ready:
                raise QuotaError(
                    customer_id,
                    "max_ready",
                    limit=customer.max_ready,
                    present=present,
                    retry_after_s=LOOK_AGAIN_S,
                )
        if customer.max_submit_per_s is not None:
            self._take_token(customer, customer.max_submit_per_s, now_s)
        self.let_in(customer_id)

    def let_in(self, customer_id: str) -> None:
        """Count one agenda that another door has let in, or this one before."""
        customer = self._customer_of(customer_id)
        if customer is not None and customer.max_ready is not None:
            self._under_way.begin(customer_id)

    def asks_for(self, customer_id: str, insight_id: str) -> bool:
        """Whether `admit` could be of another mind later."""
        customer = self._customer_of(customer_id)
        has_quota = customer is not None and (
            customer.max_ready is not None or customer.max_submit_per_s is not None
        )
        return has_quota or insight_id in self._near

    def written(self, customer_id: str, place: Position, *, lane: Hashable) -> None:
        """One that was let in is written.

        Args:
            customer_id: Whose it is.
            place: Offset and index of the submission.
            lane: Partition of `pop.submissions`; for intake, with the insight before it.
        """
        self._under_way.place(customer_id, lane, place)

    def given_up(self, customer_id: str) -> None:
        """One that was let in could not be written, or nobody knows."""
        self._under_way.abandon(customer_id)

    def present(self, customer_id: str) -> int:
        """Ready agendas of a customer, and those on their way; as far as was told."""
        here = self._under_way.counts.get(customer_id, 0)
        return here + self._ready.of(customer_id) + self._elsewhere.of(customer_id)

    # ---- what is heard and told ----

    def hear(self, event: CountEvent, *, now_s: float) -> None:
        """Take note of what a scheduler or another door tells."""
        if isinstance(event, BacklogCounted):
            self._hear_backlog(event)
        else:
            self._hear_door(event, now_s)

    def begin(self, ends: Mapping[int, int]) -> DoorCounted:
        """Submissions up to these offsets are begun; to be told before any is accepted."""
        self.begun.update(ends)
        self._note("begun", ends)
        self._number += 1
        begun = dict(self._mine["begun"])
        return DoorCounted(door_id=self._door_id, number=self._number, begun=begun)

    def handled(self, ends: Mapping[int, int]) -> None:
        """Submissions up to these offsets are handled."""
        self._note("handled", ends)
        self._is_news = True

    def statements(self, now_s: float) -> Sequence[DoorCounted]:
        """What is to be told now, in order; nothing if nothing changed."""
        self._forget_silent(now_s)
        counts, touched = self._under_way.counts, self._under_way.take_touched()
        is_whole = self._is_whole_due(now_s)
        if is_whole:
            self._whole_at = now_s
            named = self._changes.whole(counts)
        else:
            named = self._changes.since(counts, touched)
        admitted, self._admitted = self._admitted, {}
        if not (is_whole or named or admitted or self._is_news):
            return []
        self._is_news = False
        *first, last = portions(named)
        told = [
            self._statement(part, {}, is_whole and number == 0, last=False)
            for number, part in enumerate(first)
        ]
        return [*told, self._statement(last, admitted, is_whole and not told, last=True)]

    # ---- inside ----

    def _take_token(self, customer: Customer, rate_per_s: float, now_s: float) -> None:
        burst = customer.submit_burst
        known = self._buckets.get(customer.id)
        bucket, wait_s = take(known, rate_per_s=rate_per_s, burst=burst, now_s=now_s)
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

    def _remember(self, customer_id: str, bucket: Bucket) -> None:
        self._buckets[customer_id] = bucket
        self._buckets.move_to_end(customer_id)
        if len(self._buckets) > MOST_KNOWN:
            self._buckets.popitem(last=False)

    def _hear_backlog(self, event: BacklogCounted) -> None:
        self._ready.lay(event.insight_id, event.customers, is_whole=event.is_whole)
        if event.fullness is None:
            self._near.pop(event.insight_id, None)
        else:
            self._near[event.insight_id] = event.fullness
        for partition, place in event.placed.items():
            self._under_way.pass_by((event.insight_id, int(partition)), place)

    def _hear_door(self, event: DoorCounted, now_s: float) -> None:
        known = self._others.get(event.door_id)
        if event.door_id == self._door_id or (known and event.number <= known.number):
            return
        self._others[event.door_id] = _Other(event.number, now_s)
        self._elsewhere.lay(event.door_id, event.under_way, is_whole=event.is_whole)
        for customer_id, count in event.admitted.items():
            customer = self._customer_of(customer_id)
            if customer is not None and customer.max_submit_per_s is not None:
                known_bucket = self._buckets.get(customer_id)
                full = Bucket(float(customer.submit_burst), now_s)
                self._remember(customer_id, spend(known_bucket or full, count))
        for partition, end in event.begun.items():
            number = int(partition)
            self.begun[number] = max(end, self.begun.get(number, 0))
        for partition, end in event.handled.items():
            self._under_way.pass_by(int(partition), (end - 1, _END_OF_RECORD))

    def _forget_silent(self, now_s: float) -> None:
        gone = [
            door_id
            for door_id, other in self._others.items()
            if now_s - other.heard_s > FORGOTTEN_AFTER_S
        ]
        for door_id in gone:
            del self._others[door_id]
            self._elsewhere.forget(door_id)

    def _is_whole_due(self, now_s: float) -> bool:
        has_any = bool(self._under_way.counts or self._changes or self._mine["begun"])
        is_time = self._whole_at is None or now_s - self._whole_at >= WHOLE_EVERY_S
        return has_any and is_time

    def _note(self, what: str, ends: Mapping[int, int]) -> None:
        self._mine[what].update({str(partition): end for partition, end in ends.items()})

    def _statement(
        self, named: dict[str, int], admitted: dict[str, int], is_whole: bool, *, last: bool
    ) -> DoorCounted:
        self._number += 1
        mine = self._mine if last else {"begun": {}, "handled": {}}
        return DoorCounted(
            door_id=self._door_id,
            number=self._number,
            admitted=admitted,
            under_way=named,
            is_whole=is_whole,
            begun=dict(mine["begun"]),
            handled=dict(mine["handled"]),
        )
