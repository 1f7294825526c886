"""Reports how many agendas of each customer are ready here, and the nearness of capacity.

Whoever admits agendas adds up these reports to hold customers to their quotas. A report names
only what changed since the one before. A complete one follows every few seconds while there is
anything to report, and after a failed publication.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.quota import BacklogUsage, CapacityLimit
from pop_stream.policy.ingress.quotas import FULL_REPORT_INTERVAL_S
from pop_stream.policy.ingress.usage import (
    MemoryLoad,
    UsageDelta,
    capacity_limits,
    chunks,
    insight_account,
)
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.insight import OwnedInsight

REPORT_EVERY_S: Final = 0.25
"""Between two reports; by so much a quota's count may be behind."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _ReportedUsage:
    """What was reported of an insight.

    Attributes:
        owned: The object that was reported. One that was loaded since has counted no changes.
        changes: By customer, what was reported.
        others: Up to which offsets of submissions the counts reach, and the capacity limit.
        full_report_at: When the last complete report was made, in seconds since the epoch.
    """

    owned: OwnedInsight
    changes: UsageDelta = field(default_factory=UsageDelta)
    others: tuple[dict[str, tuple[int, int]], CapacityLimit | None] = field(
        default_factory=lambda: ({}, None)
    )
    full_report_at: float | None = None

    @property
    def capacity_limit(self) -> CapacityLimit | None:
        """What was reported of it."""
        return self.others[1]


class UsageReporter:
    """Reports four times a second what changed.

    Nothing is reported while nobody has a quota and the process is far from its limit.

    Args:
        handler: Whose insights.
        publisher: Of the reports.
        definitions: Which customers and insights have a quota.
        clock: For instants.
        topics: Names of topics.
        limit: Most agendas and bytes that the process takes.
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
        self._accounts_with_quota: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Report until cancelled; after a failed publication the next reports are complete."""
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            records = [
                Record(self._topics.quota_usage, one.insight_id.encode(), encode(one))
                for one in self.drain_reports()
            ]
            if not records:
                continue
            try:
                await publish_writable(self._publisher, records)
            except UnavailableError as error:
                _log.info("usage.postponed", error=str(error))
                self._reported = {}

    def drain_reports(self) -> list[BacklogUsage]:
        """The reports that are due; they count as published."""
        self._apply_definitions()
        insights = self._handler.owned_insights()
        limits = capacity_limits({one.insight_id: _load(one) for one in insights}, self._limit)
        self._reported = {
            owned.insight_id: known
            for owned in insights
            if (known := self._reported.get(owned.insight_id)) is not None
            and known.owned is owned
        }
        return [
            one
            for owned in insights
            for one in self._usage_of(owned, limits.get(owned.insight_id))
        ]

    def _usage_of(
        self, owned: OwnedInsight, capacity_limit: CapacityLimit | None
    ) -> Sequence[BacklogUsage]:
        reported = self._reported.get(owned.insight_id)
        if reported is None:
            if capacity_limit is None and not self._accounts_with_quota:
                return []
            reported = self._reported[owned.insight_id] = _ReportedUsage(owned)
        now = self._clock.now()
        is_complete = self._is_full_report_due(reported, now.timestamp())
        if is_complete:
            reported.full_report_at = now.timestamp()
        counts = self._counts_to_report(owned, reported, is_complete=is_complete)
        has_quotas = bool(self._accounts_with_quota)
        placed_offsets = dict(owned.backlog.placed_offsets) if has_quotas else {}
        others = (placed_offsets, capacity_limit)
        if not (is_complete or counts) and others == reported.others:
            return []
        reported.others = others
        return [
            BacklogUsage(
                insight_id=owned.insight_id,
                at=now,
                customers=part,
                is_complete=is_complete and number == 0,
                placed=placed_offsets,
                capacity_limit=capacity_limit,
            )
            for number, part in enumerate(chunks(counts))
        ]

    def _counts_to_report(
        self, owned: OwnedInsight, reported: _ReportedUsage, *, is_complete: bool
    ) -> Mapping[str, int]:
        """By account with a quota, how many agendas are ready: all, or what changed."""
        index, account = owned.backlog.index, insight_account(owned.insight_id)
        changed = index.drain_moved()
        if is_complete:
            changed = {*index.pending_by_customer}
        named = self._accounts_with_quota & (changed | {account})
        counts = {one: index.pending_by_customer.get(one, 0) for one in named}
        if account in named:
            counts[account] = index.pending
        if is_complete:
            return reported.changes.complete(counts)
        return reported.changes.take_changed(counts, named)

    def _is_full_report_due(self, reported: _ReportedUsage, now: float) -> bool:
        if reported.full_report_at is None:
            return True
        has_any = bool(reported.changes) or reported.capacity_limit is not None
        return has_any and not 0 <= now - reported.full_report_at < FULL_REPORT_INTERVAL_S

    def _apply_definitions(self) -> None:
        current = self._definitions.current
        applied = self._applied_definitions
        if applied is not None and current.schedules_like(applied):
            return
        self._applied_definitions = current
        customers, insights = current.customers.values(), current.insights.values()
        with_quota = frozenset(
            [one.id for one in customers if one.max_ready is not None]
            + [insight_account(one.id) for one in insights if one.max_ready is not None]
        )
        if with_quota != self._accounts_with_quota:
            self._accounts_with_quota, self._reported = with_quota, {}


def _load(owned: OwnedInsight) -> MemoryLoad:
    return MemoryLoad(agendas=owned.backlog.index.total, size=owned.store.size)
