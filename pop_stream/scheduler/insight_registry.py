"""All desks of this worker, by partition of `pop.ready`, and what they have in common."""

from collections.abc import Callable, Mapping, Sequence

import structlog

from pop_stream.kafka.dead_letters import row_dead_letter
from pop_stream.kafka.publisher import ready_record
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.events.scheduling import (
    EmissionLimit,
    InsightAgendasRouted,
    InsightTick,
    ReadyEvent,
)
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.flow_control import pool_sharing
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Record
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler.insight import InsightScheduler
from pop_stream.scheduler.state.backlog_store import BacklogStore, rows_by_insight

_log = structlog.get_logger()


class InsightRegistry:
    """Loads them, finds whom an event is for, and gives pools their due.

    Args:
        table: The ReadyAgenda table.
        definitions: Customers and insights in force.
        clock: For the instants in dead letters.
        topics: Names of topics.
        partitions: Of `pop.ready`.
        epoch: Greater with each owner of a partition; asked when it is loaded.
    """

    def __init__(
        self,
        *,
        table: BacklogTable,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        partitions: int,
        epoch: Callable[[], int],
    ) -> None:
        self._table = table
        self._definitions = definitions
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        self._epoch = epoch
        self._schedulers: dict[int, dict[str, InsightScheduler]] = {}
        self._dead_letters: dict[int, list[Record]] = {}
        self._unconfirmed: dict[int, list[InsightScheduler]] = {}
        self._definitions_in_force: Definitions | None = None

    @property
    def all_schedulers(self) -> list[InsightScheduler]:
        """Those of all partitions."""
        return [
            scheduler
            for schedulers in self._schedulers.values()
            for scheduler in schedulers.values()
        ]

    @property
    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return set(self._schedulers)

    def in_partition(self, partition: int) -> Mapping[str, InsightScheduler]:
        """Those of a partition, by insight; read from the table if they are not in memory."""
        if partition not in self._schedulers:
            self._load(partition)
        return self._schedulers[partition]

    def unload(self, partition: int) -> None:
        """Forget a partition."""
        self._schedulers.pop(partition, None)
        self._unconfirmed.pop(partition, None)

    def take_dead_letters(self, partition: int) -> list[Record]:
        """The dead letters of rows that could not be read, once."""
        return self._dead_letters.pop(partition, [])

    def take_unconfirmed(self, partition: int) -> list[InsightScheduler]:
        """Desks that were read with a round that may not be out, once.

        Of insights without a definition nothing is emitted, so theirs wait until it is known.
        """
        unconfirmed = self._unconfirmed.pop(partition, [])
        undefined = [scheduler for scheduler in unconfirmed if not scheduler.has_definition]
        if undefined:
            self._unconfirmed[partition] = undefined
        return [scheduler for scheduler in unconfirmed if scheduler.has_definition]

    # ---- definitions ----

    @property
    def is_up_to_date(self) -> bool:
        """Whether the definitions in force are those that were taken up."""
        return self._definitions.current is self._definitions_in_force

    @property
    def definitions_version(self) -> int:
        """Of the definitions that were taken up; 0 before."""
        return self._definitions_in_force.version if self._definitions_in_force else 0

    def apply_definitions(self) -> None:
        """Have all desks follow the definitions in force."""
        current = self._definitions.current
        if self.is_up_to_date:
            return
        self._definitions_in_force = current
        for scheduler in self.all_schedulers:
            insight = current.insights.get(scheduler.insight_id)
            scheduler.has_definition = insight is not None
            if insight is not None:
                scheduler.follow(insight)

    def partitions_of(self, scheduler: InsightScheduler) -> int:
        """Of the insight's topic, by the definitions in force; 0 if it is not defined."""
        insight = self._definitions.current.insights.get(InsightId(scheduler.insight_id))
        return insight.partitions if insight else 0

    # ---- whom an event is for ----

    def recipients(self, partition: int, event: ReadyEvent) -> Sequence[InsightScheduler]:
        """The desks an event is for; none if the insight is at home elsewhere."""
        schedulers = self._schedulers[partition]
        if isinstance(event, InsightTick) and not event.insight_id:
            return [*schedulers.values()]
        scheduler = schedulers.get(event.insight_id)
        if scheduler is None and self._needs_scheduler(partition, event):
            scheduler = schedulers[event.insight_id] = self._new_scheduler(
                partition, event.insight_id
            )
        return [scheduler] if scheduler else []

    def misrouted(self, partition: int, event: ReadyEvent) -> list[Record]:
        """An event that was sent here by older definitions, sent on to where it belongs."""
        if not event.insight_id or event.insight_id in self._schedulers[partition]:
            return []
        if self._home_partition(event.insight_id) == partition:
            return []
        current = self._definitions.current
        return [ready_record(self._topics, current, event, partitions=self._partitions)]

    def _needs_scheduler(self, partition: int, event: ReadyEvent) -> bool:
        """Whether the event needs a new desk: notes of an insight never placed are nobody's."""
        is_known = event.insight_id in self._definitions.current.insights
        is_placed = isinstance(event, InsightAgendasRouted)
        return (is_known or is_placed) and self._home_partition(event.insight_id) == partition

    def _home_partition(self, insight_id: str) -> int:
        return partition_of(self._definitions.current.home(insight_id), self._partitions)

    # ---- pools ----

    def with_pool_peers(
        self, partition: int, changed: Mapping[str, InsightScheduler]
    ) -> list[InsightScheduler]:
        """The desks touched, and those that share a pool with one and have work waiting.

        All of one partition: rows of another may not be written while its event is handled.
        """
        shared = {scheduler.backlog.insight.pool for scheduler in changed.values()} - {None}
        pool_peers = (
            scheduler
            for scheduler in (self._schedulers[partition].values() if shared else ())
            if scheduler.backlog.insight.pool in shared
            and scheduler.backlog.ready
            and scheduler.insight_id not in changed
        )
        return [*changed.values(), *pool_peers]

    def budget_within_pool(self, scheduler: InsightScheduler, most: int) -> int:
        """How many agendas a round may emit, within what the insight's pool has left."""
        slots = min(scheduler.slots(), most)
        pool = self._definitions.current.pools.get(scheduler.backlog.insight.pool or "")
        if pool is None or slots <= 0:
            return slots
        now = self._clock.now()
        pool_peers = [one for one in self.all_schedulers if one.backlog.insight.pool == pool.id]
        limits = pool_sharing.pool_limits(
            pool.max_in_flight, [mate.pool_demand(now) for mate in pool_peers]
        )
        return min(slots, limits[scheduler.insight_id] - scheduler.backlog.in_flight)

    def limiting_cause(self, scheduler: InsightScheduler) -> EmissionLimit:
        """What keeps the desk from emitting, its topic and its customers left aside."""
        if not scheduler.backlog.ready:
            return ""
        cap = scheduler.backlog.insight.max_in_flight
        if cap is not None and scheduler.backlog.in_flight >= cap:
            return "max_in_flight"
        return (
            "pool"
            if scheduler.slots() > 0 and self.budget_within_pool(scheduler, 1) <= 0
            else ""
        )

    # ---- making them ----

    def _load(self, partition: int) -> None:
        """Read the partition's backlogs, and take note of what cannot be read."""
        schedulers: dict[str, InsightScheduler] = {}
        letters: list[Record] = []
        now = self._clock.now()
        for insight_id, rows in rows_by_insight(self._table, partition).items():
            scheduler = self._new_scheduler(partition, insight_id)
            scheduler.store.load(rows, scheduler.backlog, now.timestamp())
            schedulers[insight_id] = scheduler
            for key, reason in scheduler.store.unreadable.items():
                _log.error("row.unreadable", partition=partition, key=key, reason=reason)
                row = (key, rows.get(key, b""))
                letters.append(
                    row_dead_letter(self._topics, partition, row, at=now, reason=reason)
                )
            if scheduler.store.is_incomplete:
                _log.warning("rows.missing", partition=partition, insight_id=insight_id)
        self._schedulers[partition] = schedulers
        self._dead_letters[partition] = letters
        self._unconfirmed[partition] = [
            one for one in schedulers.values() if one.store.unconfirmed_round
        ]
        ready = sum(scheduler.backlog.ready for scheduler in schedulers.values())
        _log.info("backlog.loaded", partition=partition, insights=len(schedulers), ready=ready)

    def _new_scheduler(self, partition: int, insight_id: str) -> InsightScheduler:
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        backlog = Backlog(insight or Insight(id=insight_id), self._customer_share)
        store = BacklogStore(self._table, partition, insight_id, self._epoch())
        scheduler = InsightScheduler(InsightId(insight_id), partition, backlog, store)
        scheduler.has_definition = insight is not None
        return scheduler

    def _customer_share(self, customer_id: CustomerId) -> Share:
        customer = self._definitions.current.customer(customer_id)
        return Share(
            weight=customer.weight,
            max_in_flight=customer.max_in_flight,
            rate_per_s=customer.rate_per_s,
            burst=customer.burst,
            paused=customer.paused,
        )
