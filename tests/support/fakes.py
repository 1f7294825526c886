"""In-memory stand-ins for ports; each passes the contract suite of the real one."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from pop_stream.kafka.publisher import check_sizes
from pop_stream.model.definitions import Definitions, GroupType
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.base import DedupeRule, Duplicate
from pop_stream.model.events.scheduling import AttemptStop, EmittedAgenda, QueueDescribed
from pop_stream.model.ids import InsightId
from pop_stream.model.partitioning import partition_of
from pop_stream.ports.lag import GroupOffsets, LagSnapshot
from pop_stream.ports.publisher import Record

T = TypeVar("T")


class ManualClock:
    """A clock that stands until it is moved."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def move(self, by: timedelta) -> None:
        self._now += by


class MemoryReadyTable:
    """Rows in a dict."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.writes = 0

    def get(self, key: str) -> bytes | None:
        return self.data.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.writes += 1
        self.data[key] = value

    def delete(self, key: str) -> None:
        self.data.pop(key, None)

    def rows(self, partition: int) -> Iterator[tuple[str, bytes]]:
        for key, value in self.data.items():
            if int(key.split("/")[0]) == partition:
                yield key, value

    @property
    def written(self) -> int:
        return 0

    def send_now(self) -> None:
        pass

    async def wait_durable(self, written: int | None = None) -> None:
        pass


class PublishedPosition(NamedTuple):
    """Where a record was written."""

    partition: int
    offset: int


@dataclass
class MemoryPublisher:
    """Records in a list; `refuse` makes the next publications fail."""

    partition_count: int = 4
    records: list[Record] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    _ends: Counter[tuple[str, int]] = field(default_factory=Counter)

    async def publish(self, records: Sequence[Record]) -> Sequence[PublishedPosition]:
        if self.failures:
            raise self.failures.pop(0)
        check_sizes(records)
        self.records.extend(records)
        return [self._place(record) for record in records]

    def _place(self, record: Record) -> PublishedPosition:
        partition = record.partition
        if partition is None:
            partition = partition_of(record.key or b"", self.partition_count)
        offset = self._ends[record.topic, partition]
        self._ends[record.topic, partition] += 1
        return PublishedPosition(partition, offset)

    async def partitions(self, topic: str) -> int:
        return self.partition_count

    async def ping(self) -> None:
        """It is always there."""

    def on(self, topic: str) -> list[Record]:
        return [record for record in self.records if record.topic == topic]

    async def read_newest(
        self, most: Mapping[str, int], read: Callable[[bytes], T]
    ) -> Mapping[str, Sequence[T]]:
        """What is read in the newest values of topics, as a scheduler asks after a crash."""
        read_newest: dict[str, list[T]] = {}
        for topic, count in most.items():
            by_partition: dict[int | None, list[bytes]] = {}
            for record in self.on(topic):
                by_partition.setdefault(record.partition, []).append(record.value or b"")
            newest = (one for lane in by_partition.values() for one in lane[-count:])
            read_newest[topic] = [read(one) for one in newest]
        return read_newest


@dataclass
class FixedDefinitions:
    """Definitions that a test replaces by hand."""

    current: Definitions = field(default_factory=Definitions)


@dataclass
class FixedQueryReplies:
    """Answers that a test sets by hand, by insight and agenda.

    Attributes:
        duplicates: By deduplication key, what is there; None while no scheduler answers.
    """

    by_question: dict[tuple[str, str], QueueDescribed] = field(default_factory=dict)
    asked_weights: list[Mapping[str, float] | None] = field(default_factory=list)
    duplicates: dict[str, Duplicate] | None = field(default_factory=dict)

    async def ask(
        self,
        insight_id: str,
        agenda_id: str = "",
        agenda_ids: Sequence[str] = (),
        tracked_after: int | None = None,
        weights: Mapping[str, float] | None = None,
        dedupe: Sequence[DedupeRule] = (),
    ) -> QueueDescribed:
        self.asked_weights.append(weights)
        if dedupe and self.duplicates is not None:
            known = self.duplicates
            return QueueDescribed(
                insight_id=insight_id,
                query_id="q",
                at=datetime(2026, 1, 1, tzinfo=UTC),
                algorithm="fifo",
                ready=0,
                lag=0,
                in_flight=0,
                slots=0,
                target=0,
                rate_per_s=0.0,
                customers=(),
                duplicates=tuple(known[one.key] for one in dedupe if one.key in known),
            )
        try:
            return self.by_question[insight_id, agenda_id]
        except KeyError:
            msg = "the scheduler does not answer"
            raise UnavailableError(msg) from None


@dataclass
class FixedLags:
    """What a test says of pullers and the relay.

    Attributes:
        by_insight: Records behind, by partition of the insight's topic.
        end_offsets: By partition of the lifecycle's topic; None for a broker that is away.
        relay_offsets: By the same; None for all of it.
        asked: What was asked for, look by look.
        read: How far any group has come with any topic; None for a broker that is away.
        api_processes: Members of any group; None for a broker that is away.
    """

    by_insight: dict[InsightId, Sequence[int]] = field(default_factory=dict)
    end_offsets: dict[int, int] | None = field(default_factory=dict)
    relay_offsets: dict[int, int] | None = None
    asked: list[tuple[tuple[InsightId, ...], bool]] = field(default_factory=list)
    read: GroupOffsets | None = None
    api_processes: int | None = 1

    async def fetch_lag(
        self,
        insights: Sequence[InsightId],
        *,
        shared: Sequence[InsightId] = (),
        relay: bool = False,
    ) -> LagSnapshot:
        asked = (*insights, *shared)
        self.asked.append((asked, relay))
        lags = {one: self.by_insight[one] for one in asked if one in self.by_insight}
        if not relay or self.end_offsets is None:
            return LagSnapshot(lags)
        relayed = self.end_offsets if self.relay_offsets is None else self.relay_offsets
        return LagSnapshot(
            lags, end_offsets=dict(self.end_offsets), relay_offsets=dict(relayed)
        )

    async def fetch_member_count(self, group: str) -> int | None:
        return self.api_processes

    async def fetch_group_offsets(
        self, group: str, topic: str, group_type: GroupType = "consumer"
    ) -> GroupOffsets | None:
        return self.read


@dataclass
class MemoryDeliveries:
    """Agendas that a test lays out by hand; never waits."""

    by_insight: dict[str, list[EmittedAgenda]] = field(default_factory=dict)
    stops: dict[str, AttemptStop] = field(default_factory=dict)
    returned: list[EmittedAgenda] = field(default_factory=list)

    async def poll(
        self, insight_id: str, count: int, wait: timedelta, *, is_connected: Callable[[], bool]
    ) -> list[EmittedAgenda]:
        waiting = self.by_insight.get(insight_id, [])
        taken, self.by_insight[insight_id] = waiting[:count], waiting[count:]
        return taken

    def return_delivery(self, emitted: EmittedAgenda) -> None:
        self.returned.append(emitted)

    def stop_reason(self, agenda_id: str, attempt: int, accepted_at: datetime) -> str | None:
        stop = self.stops.get(agenda_id)
        return stop.reason if stop and stop.attempt >= attempt else None
