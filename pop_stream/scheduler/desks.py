"""All desks of this worker, by partition of `pop.ready`, and what they have in common."""

from collections.abc import Callable, Mapping, Sequence

import structlog

from pop_stream.bus.dead_letters import dead_row
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.definitions.definitions import Definitions, Insight
from pop_stream.core.events import InsightPlaced, InsightTick, Limit, ReadyEvent
from pop_stream.core.fairness.flow import Share
from pop_stream.core.gate import pools
from pop_stream.core.values.ids import CustomerId, InsightId
from pop_stream.core.values.partitioning import partition_of
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.table import ReadyTable
from pop_stream.ports.wire import Record
from pop_stream.scheduler.desk import Desk
from pop_stream.scheduler.shelf import Shelf, insights_in

_log = structlog.get_logger()


class Desks:
    """Loads them, finds whom an event is for, and gives pools their due.

    Args:
        table: The ReadyAgenda table.
        definitions: Customers and insights in force.
        clock: For the instants in dead letters.
        topics: Names of topics.
        partitions: Of `pop.ready`.
        term: Greater with each owner of a partition; asked when it is loaded.
    """

    def __init__(
        self,
        *,
        table: ReadyTable,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        partitions: int,
        term: Callable[[], int],
    ) -> None:
        self._table = table
        self._definitions = definitions
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        self._term = term
        self._desks: dict[int, dict[str, Desk]] = {}
        self._letters: dict[int, list[Record]] = {}
        self._in_doubt: dict[int, list[Desk]] = {}
        self._in_force: Definitions | None = None

    @property
    def everywhere(self) -> list[Desk]:
        """Those of all partitions."""
        return [desk for desks in self._desks.values() for desk in desks.values()]

    @property
    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return set(self._desks)

    def of(self, partition: int) -> Mapping[str, Desk]:
        """Those of a partition, by insight; read from the table if they are not in memory."""
        if partition not in self._desks:
            self._load(partition)
        return self._desks[partition]

    def unload(self, partition: int) -> None:
        """Forget a partition."""
        self._desks.pop(partition, None)
        self._in_doubt.pop(partition, None)

    def take_letters(self, partition: int) -> list[Record]:
        """The dead letters of rows that could not be read, once."""
        return self._letters.pop(partition, [])

    def take_doubtful(self, partition: int) -> list[Desk]:
        """Desks that were read with a round that may not be out, once.

        Of insights without a definition nothing is emitted, so theirs wait until it is known.
        """
        doubtful = self._in_doubt.pop(partition, [])
        undefined = [desk for desk in doubtful if not desk.is_defined]
        if undefined:
            self._in_doubt[partition] = undefined
        return [desk for desk in doubtful if desk.is_defined]

    # ---- definitions ----

    @property
    def is_up_to_date(self) -> bool:
        """Whether the definitions in force are those that were taken up."""
        return self._definitions.current is self._in_force

    @property
    def version(self) -> int:
        """Of the definitions that were taken up; 0 before."""
        return self._in_force.version if self._in_force else 0

    def take_up_definitions(self) -> None:
        """Have all desks follow the definitions in force."""
        current = self._definitions.current
        if self.is_up_to_date:
            return
        self._in_force = current
        for desk in self.everywhere:
            insight = current.insights.get(desk.insight_id)
            desk.is_defined = insight is not None
            if insight is not None:
                desk.follow(insight)

    def partitions_of(self, desk: Desk) -> int:
        """Of the insight's topic, by the definitions in force; 0 if it is not defined."""
        insight = self._definitions.current.insights.get(InsightId(desk.insight_id))
        return insight.partitions if insight else 0

    # ---- whom an event is for ----

    def concerned(self, partition: int, event: ReadyEvent) -> Sequence[Desk]:
        """The desks an event is for; none if the insight is at home elsewhere."""
        desks = self._desks[partition]
        if isinstance(event, InsightTick) and not event.insight_id:
            return [*desks.values()]
        desk = desks.get(event.insight_id)
        if desk is None and self._is_due(partition, event):
            desk = desks[event.insight_id] = self._new_desk(partition, event.insight_id)
        return [desk] if desk else []

    def astray(self, partition: int, event: ReadyEvent) -> list[Record]:
        """An event that was sent here by older definitions, sent on to where it belongs."""
        if not event.insight_id or event.insight_id in self._desks[partition]:
            return []
        if self._home(event.insight_id) == partition:
            return []
        current = self._definitions.current
        return [ready_record(self._topics, current, event, partitions=self._partitions)]

    def _is_due(self, partition: int, event: ReadyEvent) -> bool:
        """Whether the event needs a new desk: notes of an insight never placed are nobody's."""
        is_known = event.insight_id in self._definitions.current.insights
        is_placed = isinstance(event, InsightPlaced)
        return (is_known or is_placed) and self._home(event.insight_id) == partition

    def _home(self, insight_id: str) -> int:
        return partition_of(self._definitions.current.home(insight_id), self._partitions)

    # ---- pools ----

    def with_mates(self, partition: int, touched: Mapping[str, Desk]) -> list[Desk]:
        """The desks touched, and those that share a pool with one and have work waiting.

        All of one partition: rows of another may not be written while its event is handled.
        """
        shared = {desk.backlog.insight.pool for desk in touched.values()} - {None}
        mates = (
            desk
            for desk in (self._desks[partition].values() if shared else ())
            if desk.backlog.insight.pool in shared
            and desk.backlog.ready
            and desk.insight_id not in touched
        )
        return [*touched.values(), *mates]

    def room(self, desk: Desk, most: int) -> int:
        """How many agendas a round may emit, within what the insight's pool has left."""
        slots = min(desk.slots(), most)
        pool = self._definitions.current.pools.get(desk.backlog.insight.pool or "")
        if pool is None or slots <= 0:
            return slots
        now = self._clock.now()
        mates = [one for one in self.everywhere if one.backlog.insight.pool == pool.id]
        limits = pools.limits(pool.max_in_flight, [mate.claimant(now) for mate in mates])
        return min(slots, limits[desk.insight_id] - desk.backlog.in_flight)

    def limit(self, desk: Desk) -> Limit:
        """What keeps the desk from emitting, its topic and its customers left aside."""
        if not desk.backlog.ready:
            return ""
        cap = desk.backlog.insight.max_in_flight
        if cap is not None and desk.backlog.in_flight >= cap:
            return "max_in_flight"
        return "pool" if desk.slots() > 0 and self.room(desk, 1) <= 0 else ""

    # ---- making them ----

    def _load(self, partition: int) -> None:
        """Read the partition's backlogs, and take note of what cannot be read."""
        desks: dict[str, Desk] = {}
        letters: list[Record] = []
        now = self._clock.now()
        for insight_id, rows in insights_in(self._table, partition).items():
            desk = self._new_desk(partition, insight_id)
            desk.shelf.load(rows, desk.backlog, now.timestamp())
            desks[insight_id] = desk
            for key, reason in desk.shelf.unreadable.items():
                _log.error("row.unreadable", partition=partition, key=key, reason=reason)
                row = (key, rows.get(key, b""))
                letters.append(dead_row(self._topics, partition, row, at=now, reason=reason))
            if desk.shelf.lacks_rows:
                _log.warning("rows.missing", partition=partition, insight_id=insight_id)
        self._desks[partition] = desks
        self._letters[partition] = letters
        self._in_doubt[partition] = [one for one in desks.values() if one.shelf.last_round]
        ready = sum(desk.backlog.ready for desk in desks.values())
        _log.info("backlog.loaded", partition=partition, insights=len(desks), ready=ready)

    def _new_desk(self, partition: int, insight_id: str) -> Desk:
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        backlog = Backlog(insight or Insight(id=insight_id), self._share)
        shelf = Shelf(self._table, partition, insight_id, self._term())
        desk = Desk(InsightId(insight_id), partition, backlog, shelf)
        desk.is_defined = insight is not None
        return desk

    def _share(self, customer_id: CustomerId) -> Share:
        customer = self._definitions.current.customer(customer_id)
        return Share(
            weight=customer.weight,
            max_in_flight=customer.max_in_flight,
            rate_per_s=customer.rate_per_s,
            burst=customer.burst,
            paused=customer.paused,
        )
