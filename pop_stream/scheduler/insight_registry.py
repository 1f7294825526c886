"""All insights of this process, by partition of `pop.ready`, and what they share.

They share the definitions in force and the capacity of resource pools. A partition's insights
are loaded from the table together and dropped together. `PartitionOwnership` says which
partitions this process certainly owns; it is asked before anything is written.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import timedelta
from math import inf
from time import monotonic

import structlog

from pop_stream.kafka.dead_letters import row_dead_letter
from pop_stream.kafka.lifecycle_reader import ready_record
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
from pop_stream.policy.fairness.flow import Share, share_of_definition
from pop_stream.policy.flow_control.pool_sharing import SharedPool
from pop_stream.policy.insight_scheduler import InsightScheduler
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Record
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler.insight import OwnedInsight
from pop_stream.scheduler.state.backlog_store import BacklogStore, rows_by_insight

_log = structlog.get_logger()


class InsightRegistry:
    """Loads insights, finds the one an event is for, and divides pools among them.

    Args:
        table: The ReadyAgenda table.
        definitions: Customers and insights in force.
        clock: For the instants in dead letters.
        topics: Names of topics.
        partitions: How many `pop.ready` has.
        epoch: The ownership epoch; called when a partition is loaded.
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
        self._insights: dict[int, dict[str, OwnedInsight]] = {}
        self._dead_letters: dict[int, list[Record]] = {}
        self._unconfirmed: dict[int, list[OwnedInsight]] = {}
        self._definitions_in_force: Definitions | None = None
        self._pools: dict[str, SharedPool] = {}

    @property
    def all_insights(self) -> list[OwnedInsight]:
        """Those of all partitions."""
        return [owned for insights in self._insights.values() for owned in insights.values()]

    @property
    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return set(self._insights)

    def in_partition(self, partition: int) -> Mapping[str, OwnedInsight]:
        """Those of a partition, by insight; loads the partition if it is not in memory."""
        if partition not in self._insights:
            self._load(partition)
        return self._insights[partition]

    def unload(self, partition: int) -> None:
        """Drop a partition from memory."""
        self._insights.pop(partition, None)
        self._unconfirmed.pop(partition, None)

    def take_dead_letters(self, partition: int) -> list[Record]:
        """The dead letters of rows that could not be read; each is returned once."""
        return self._dead_letters.pop(partition, [])

    def take_unconfirmed(self, partition: int) -> list[OwnedInsight]:
        """Insights loaded with a round that may not be published; each is returned once.

        One without a definition emits nothing, so it is returned when its definition is known.
        """
        unconfirmed = self._unconfirmed.pop(partition, [])
        undefined = [owned for owned in unconfirmed if not owned.scheduler.has_definition]
        if undefined:
            self._unconfirmed[partition] = undefined
        return [owned for owned in unconfirmed if owned.scheduler.has_definition]

    # ---- definitions ----

    @property
    def is_up_to_date(self) -> bool:
        """Whether the definitions in force have been applied, templates aside."""
        applied = self._definitions_in_force
        return applied is not None and self._definitions.current.schedules_like(applied)

    @property
    def definitions_version(self) -> int:
        """The version of the definitions applied last; 0 before the first."""
        return self._definitions_in_force.version if self._definitions_in_force else 0

    def apply_definitions(self) -> None:
        """Apply the definitions in force to all insights.

        It looks at every customer with a backlog, so only if more than templates have changed.
        """
        current, is_applied = self._definitions.current, self.is_up_to_date
        self._definitions_in_force = current
        if is_applied:
            return
        for owned in self.all_insights:
            insight = current.insights.get(owned.insight_id)
            owned.scheduler.has_definition = insight is not None
            if insight is not None:
                owned.follow(insight)

    def partitions_of(self, owned: OwnedInsight) -> int:
        """How many the insight's topic should have; 0 if the insight is not defined."""
        insight = self._definitions.current.insights.get(InsightId(owned.insight_id))
        return insight.partitions if insight else 0

    # ---- routing events ----

    def recipients(self, partition: int, event: ReadyEvent) -> Sequence[OwnedInsight]:
        """The insights that an event is for; none if it belongs to another partition."""
        insights = self._insights[partition]
        if isinstance(event, InsightTick) and not event.insight_id:
            return [*insights.values()]
        owned = insights.get(event.insight_id)
        if owned is None and self._is_new_here(partition, event):
            owned = insights[event.insight_id] = self._new_insight(partition, event.insight_id)
        return [owned] if owned else []

    def misrouted(self, partition: int, event: ReadyEvent) -> list[Record]:
        """The event for its own partition, if older definitions had it sent to this one."""
        if not event.insight_id or event.insight_id in self._insights[partition]:
            return []
        if self._home_partition(event.insight_id) == partition:
            return []
        current = self._definitions.current
        return [ready_record(self._topics, current, event, partitions=self._partitions)]

    def _is_new_here(self, partition: int, event: ReadyEvent) -> bool:
        """Whether an insight begins with this event: only agendas begin an undefined one."""
        is_known = event.insight_id in self._definitions.current.insights
        is_placed = isinstance(event, InsightAgendasRouted)
        return (is_known or is_placed) and self._home_partition(event.insight_id) == partition

    def _home_partition(self, insight_id: str) -> int:
        return partition_of(self._definitions.current.routing_key(insight_id), self._partitions)

    # ---- pools ----

    def with_pool_peers(
        self, partition: int, changed: Mapping[str, OwnedInsight]
    ) -> list[OwnedInsight]:
        """The changed insights, and those that share a pool with one and have ready agendas.

        All are of one partition: no rows of another may be written while its record is handled.
        """
        shared = {owned.backlog.insight.pool for owned in changed.values()} - {None}
        pool_peers = (
            owned
            for owned in (self._insights[partition].values() if shared else ())
            if owned.backlog.insight.pool in shared
            and owned.backlog.ready
            and owned.insight_id not in changed
        )
        return [*changed.values(), *pool_peers]

    def budget_within_pool(self, owned: OwnedInsight, most: int) -> int:
        """How many agendas a round may emit: at most `most`, and what is left of the pool."""
        slots = min(owned.scheduler.budget(), most)
        pool = self._definitions.current.pools.get(owned.backlog.insight.pool or "")
        if pool is None or slots <= 0:
            return slots
        now = self._clock.now().timestamp()
        by_customers = pool.divided_among == "customers"
        demands = [
            one.scheduler.pool_demand(now, by_customers=by_customers)
            for one in self.all_insights
            if one.backlog.insight.pool == pool.id
        ]
        shared = self._pools.setdefault(pool.id, SharedPool())
        limits = shared.limits(pool.max_in_flight, demands, now)
        return min(slots, limits[owned.insight_id] - owned.backlog.in_flight)

    def changed_divisions(self) -> Mapping[str, Mapping[str, int]]:
        """By insight, customers of whose weight it has another part than it should have.

        Only of insights whose pool is divided among customers, or was; O(their customers).
        """
        pools = self._definitions.current.pools
        active: dict[str, dict[str, Mapping[str, int]]] = {}
        changed: dict[str, Mapping[str, int]] = {}
        for owned in self.all_insights:
            pool = pools.get(owned.backlog.insight.pool or "")
            if pool is not None and pool.divided_among == "customers":
                customers = owned.scheduler.active_customers()
                active.setdefault(pool.id, {})[owned.insight_id] = customers
            elif owned.backlog.queue.is_divided:
                divided = owned.scheduler.active_customers().items()
                changed[owned.insight_id] = {one: 1 for one, parts in divided if parts > 1}
        now = self._clock.now().timestamp()
        for pool_id, customers_of in active.items():
            shared = self._pools.setdefault(pool_id, SharedPool())
            changed |= shared.changed_divisions(customers_of, now)
        return changed

    def limiting_cause(self, owned: OwnedInsight) -> EmissionLimit:
        """What limits the insight, apart from its topic's depth and its customers."""
        if not owned.backlog.ready:
            return ""
        if limit := owned.scheduler.own_limit:
            return limit
        return (
            "pool"
            if owned.scheduler.budget() > 0 and self.budget_within_pool(owned, 1) <= 0
            else ""
        )

    # ---- loading ----

    def _load(self, partition: int) -> None:
        """Load a partition from the table, with dead letters for rows that cannot be read."""
        insights: dict[str, OwnedInsight] = {}
        letters: list[Record] = []
        now = self._clock.now()
        for insight_id, rows in rows_by_insight(self._table, partition).items():
            owned = self._new_insight(partition, insight_id)
            owned.store.load(rows, owned.backlog, now.timestamp())
            insights[insight_id] = owned
            for key, reason in owned.store.unreadable.items():
                _log.error("row.unreadable", partition=partition, key=key, reason=reason)
                row = (key, rows.get(key, b""))
                letters.append(
                    row_dead_letter(self._topics, partition, row, at=now, reason=reason)
                )
            if owned.store.is_incomplete:
                _log.warning("rows.missing", partition=partition, insight_id=insight_id)
        self._insights[partition] = insights
        self._dead_letters[partition] = letters
        self._unconfirmed[partition] = [
            one for one in insights.values() if one.store.unconfirmed_round
        ]
        ready = sum(owned.backlog.ready for owned in insights.values())
        _log.info("backlog.loaded", partition=partition, insights=len(insights), ready=ready)

    def _new_insight(self, partition: int, insight_id: str) -> OwnedInsight:
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        scheduler = InsightScheduler(
            insight or Insight(id=insight_id),
            self._customer_share,
            has_definition=insight is not None,
        )
        store = BacklogStore(self._table, partition, insight_id, self._epoch())
        return OwnedInsight(InsightId(insight_id), partition, scheduler, store)

    def _customer_share(self, customer_id: CustomerId) -> Share:
        return share_of_definition(self._definitions.current, customer_id)


class PartitionOwnership:
    """Tracks assigned partitions, and whether the group still knows their owner.

    A partition is owned from its assignment until it is revoked, and only while the last
    acknowledged heartbeat is less than a session old: after that the group may have given it
    to another process. A process that was frozen for longer still has its partitions in memory,
    and learns otherwise from its next heartbeat only. Until then it must write nothing.

    Methods that Faust's consumer calls may be called from its thread; each is one assignment.

    Args:
        session: The session timeout of the group.
        now: A clock in seconds that goes on while the process is frozen.
    """

    def __init__(self, session: timedelta, now: Callable[[], float] = monotonic) -> None:
        self._session_s = session.total_seconds()
        self._now = now
        self._partitions: frozenset[int] = frozenset()
        self._acknowledged_at = now()
        self._invalidated_at = -inf

    @property
    def partitions(self) -> Set[int]:
        """What was assigned and not revoked, certainly owned or not."""
        return self._partitions

    def assign(self, partitions: Set[int]) -> None:
        """Called when the group has assigned these; counts as an acknowledged heartbeat."""
        self._partitions |= partitions
        self.heartbeat_acknowledged(self._now())

    def revoke(self, partitions: Set[int]) -> None:
        """Called when the group revokes these; those that were not assigned are ignored."""
        if self._partitions & partitions:
            self._invalidated_at = self._now()
        self._partitions -= partitions

    def expelled(self) -> None:
        """Called from any thread when the group has expelled this member: nothing is owned."""
        self._partitions = frozenset()
        self._invalidated_at = self._now()

    def heartbeat_acknowledged(self, asked_at: float) -> None:
        """Called from any thread when the group acknowledged a heartbeat sent at `asked_at`."""
        self._acknowledged_at = max(self._acknowledged_at, asked_at)

    def owns(self, partition: int) -> bool:
        """Whether no other process can have been assigned the partition by now."""
        return self._has_live_session and partition in self._partitions

    def invalidate(self) -> None:
        """Called when a record is to be handled anew: nothing begun before may be written."""
        self._invalidated_at = self._now()

    def held_since(self, since: float) -> bool | None:
        """Whether nothing was lost or invalidated since then; None while that is unknown."""
        if self._invalidated_at >= since:
            return False
        return self._has_live_session or None

    @property
    def _has_live_session(self) -> bool:
        return self._now() - self._acknowledged_at < self._session_s
