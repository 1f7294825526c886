"""Tells the doors how much of each customer is ready here, and how full this worker is."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.quota import BacklogUsage, CapacityLimit
from pop_stream.policy.ingress.quotas import FULL_REPORT_INTERVAL_S
from pop_stream.policy.ingress.usage import MemoryLoad, UsageDelta, capacity_limits, chunks
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.insight import OwnedInsight

REPORT_EVERY_S: Final = 0.25
"""Between two looks; so much later a door knows."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _ReportedUsage:
    """What the doors know of a desk.

    Attributes:
        owned: A new one of the same insight was read from the table, and knows no changes.
    """

    owned: OwnedInsight
    changes: UsageDelta = field(default_factory=UsageDelta)
    placed: dict[str, tuple[int, int]] = field(default_factory=dict)
    capacity_limit: CapacityLimit | None = None
    full_report_at: float | None = None


class UsageReporter:
    """Counts four times a second, and tells what changed; nothing while nobody has a quota.

    Args:
        handler: Whose desks.
        publisher: For the statements.
        definitions: Which customers have a quota.
        clock: For instants.
        topics: Names of topics.
        limit: Most that the worker takes.
    """

    def __init__(  # every port it needs, named once
        self,
        handler: ReadyEventHandler,
        *,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        limit: MemoryLoad,
    ) -> None:
        self._handler = handler
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._topics = topics
        self._limit = limit
        self._reported: dict[str, _ReportedUsage] = {}
        self._applied_definitions: Definitions | None = None
        self._customers_with_quota: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Tell until cancelled; what could not be told is told as a whole later."""
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            records = [
                Record(self._topics.quota_usage, one.insight_id.encode(), encode(one))
                for one in self.drain_reports()
            ]
            if not records:
                continue
            try:
                await self._publisher.publish(records)
            except UnavailableError as error:
                _log.info("usage.postponed", error=str(error))
                self._reported = {}

    def drain_reports(self) -> list[BacklogUsage]:
        """What the doors are to be told now; it counts as told."""
        self._apply_definitions()
        insights = self._handler.owned_insights()
        near = capacity_limits({one.insight_id: _load(one) for one in insights}, self._limit)
        self._reported = {
            owned.insight_id: known
            for owned in insights
            if (known := self._reported.get(owned.insight_id)) is not None
            and known.owned is owned
        }
        return [
            one
            for owned in insights
            for one in self._usage_of(owned, near.get(owned.insight_id))
        ]

    def _usage_of(
        self, owned: OwnedInsight, near: CapacityLimit | None
    ) -> Sequence[BacklogUsage]:
        reported = self._reported.get(owned.insight_id)
        if reported is None:
            if near is None and not self._customers_with_quota:
                return []
            reported = self._reported[owned.insight_id] = _ReportedUsage(owned)
        now = self._clock.now()
        slots = owned.backlog.slots
        changed = slots.drain_moved()
        placed = dict(owned.backlog.placed_offsets) if self._customers_with_quota else {}
        is_complete = self._is_full_report_due(reported, now.timestamp())
        if is_complete:
            reported.full_report_at = now.timestamp()
            counts = {
                one: slots.pending_by_customer.get(one, 0)
                for one in self._customers_with_quota & {*slots.pending_by_customer}
            }
            named = reported.changes.complete(counts)
        else:
            named = reported.changes.take_changed(
                slots.pending_by_customer, changed & self._customers_with_quota
            )
        if not (
            is_complete or named or placed != reported.placed or near != reported.capacity_limit
        ):
            return []
        reported.placed, reported.capacity_limit = placed, near
        return [
            BacklogUsage(
                insight_id=owned.insight_id,
                at=now,
                customers=part,
                is_complete=is_complete and number == 0,
                placed=placed,
                capacity_limit=near,
            )
            for number, part in enumerate(chunks(named))
        ]

    def _is_full_report_due(self, reported: _ReportedUsage, now: float) -> bool:
        if reported.full_report_at is None:
            return True
        has_any = bool(reported.changes) or reported.capacity_limit is not None
        return has_any and not 0 <= now - reported.full_report_at < FULL_REPORT_INTERVAL_S

    def _apply_definitions(self) -> None:
        current = self._definitions.current
        if current is self._applied_definitions:
            return
        self._applied_definitions = current
        with_quota = frozenset(
            one.id for one in current.customers.values() if one.max_ready is not None
        )
        if with_quota != self._customers_with_quota:
            self._customers_with_quota, self._reported = with_quota, {}


def _load(owned: OwnedInsight) -> MemoryLoad:
    return MemoryLoad(agendas=owned.backlog.slots.total, size=owned.store.size)
