"""The reconciler: compares twice, asks Kafka for proof, and repairs what it is asked to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from pop_stream.policy.lifecycle.reconcile import (
    LedgerDiscrepancy,
    LedgerRow,
    checked_against_events,
    confirmed,
)
from pop_stream.reconciler.comparison import LedgerComparison, SummaryIndex
from pop_stream.reconciler.evidence import AgendaEvidence, ReadEvidence
from pop_stream.reconciler.progress import PartProgress
from pop_stream.reconciler.repairs import LedgerRepairs, RepairResult

RECHECK_AFTER_S: Final = 3.0
"""Between the comparisons, so that what an event leads to has happened as well."""

_PAGE: Final = 5_000
_MAX_ENDED_CHECKED: Final = 5_000
_PROVEN: Final = frozenset({"not_claimed"})
"""Kinds where Postgres and the scheduler agree: Kafka need not be asked."""


class OpenAgendas(Protocol):
    """The list of agendas that have not ended; raises UnavailableError while it is away."""

    def try_lock(self) -> AbstractAsyncContextManager[bool]:
        """Whether this process reconciles, for as long as the block runs."""
        ...

    async def scan(self, quiet: timedelta) -> int:
        """Bring the list up to date; how many agendas were scanned."""
        ...

    def listed(self, quiet: timedelta) -> AsyncIterator[Sequence[LedgerRow]]:
        """Those on it that changed nothing for so long, by pages."""
        ...


class Ledger(SummaryIndex, Protocol):
    """What summaries say of agendas; raises UnavailableError while Postgres is away."""

    def open_rows(self, quiet: timedelta, *, page: int) -> AsyncIterator[Sequence[LedgerRow]]:
        """All that has not ended and changed nothing for so long, by pages."""
        ...

    async def ended_rows(self, quiet: timedelta, *, most: int) -> Sequence[LedgerRow]:
        """The latest that ended within a day, but did not change within `quiet`."""
        ...

    async def count_recently_changed(self, quiet: timedelta) -> int:
        """How many changed within this time."""
        ...

    async def accepted_at(self, agenda_ids: Sequence[str]) -> Mapping[str, datetime]:
        """When these agendas were accepted; absent where that is not known."""
        ...


@dataclass(slots=True)
class LedgerAudit(RepairResult):
    """What was found, and what was done about it.

    Attributes:
        checked: Agendas that were compared.
        skipped: Agendas that changed too lately to be compared; counted by `audit` alone.
        behind: Events that were not folded after the first comparison; likewise.
        offsets: What is wrong between `pop.agenda-events` and how far it was folded; likewise.
        unanswered: Insights whose scheduler does not answer, with why.
        discrepancies: Confirmed ones.
    """

    checked: int = 0
    skipped: int = 0
    behind: int = 0
    offsets: list[str] = field(default_factory=list)
    unanswered: dict[str, str] = field(default_factory=dict)
    discrepancies: list[LedgerDiscrepancy] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to do for anyone."""
        left = {one.row.agenda_id for one in self.discrepancies} - {*self.repaired}
        return not (left or self.offsets or self.unanswered)


class Reconciler:
    """Safe beside everything that runs, and beside others of its kind.

    Args:
        agendas: What has not ended.
        ledger: What summaries say.
        comparison: Makes a new one.
        progress: How far the parts between them have come.
        repairs: Writes what puts things right.
        read_evidence: What Kafka has of agendas, those accepted since an instant.
    """

    def __init__(
        self,
        *,
        agendas: OpenAgendas,
        ledger: Ledger,
        comparison: Callable[[], LedgerComparison],
        progress: PartProgress,
        repairs: LedgerRepairs,
        read_evidence: ReadEvidence,
    ) -> None:
        self._agendas = agendas
        self._ledger = ledger
        self._comparison = comparison
        self._progress = progress
        self._repairs = repairs
        self._read_evidence = read_evidence

    async def reconcile(self, quiet: timedelta) -> LedgerAudit | None:
        """Place again what has not ended and nobody has; None if another process is at it.

        Args:
            quiet: Agendas that changed within this time are left out.

        Raises:
            UnavailableError: If Postgres or Kafka is away, or a part is far behind; nothing
                was done.
        """
        async with self._agendas.try_lock() as is_locked:
            if not is_locked:
                return None
            # Else what is accepted may appear behind the scan, and only the next round sees it.
            await self._progress.wait_until_folded()
            await self._agendas.scan(quiet)
            audit, first = LedgerAudit(), dict[str, LedgerDiscrepancy]()
            comparison = self._comparison()
            async for page in self._agendas.listed(quiet):
                found = await comparison.compare(page)
                first |= {one: error for one, error in found.items() if error.is_repairable}
            audit.checked, audit.unanswered = comparison.checked, comparison.unanswered
            if not first:
                return audit
            await self._progress.wait_until_arrived()
            await self._confirm(first, audit, may_read_all=False)
            for one in audit.discrepancies:
                if not one.is_repairable:
                    # Its summary is wrong, and placed again it might be done twice.
                    audit.unrepairable[one.row.agenda_id] = one.detail
            await self._requeue(audit.discrepancies, audit)
            return audit

    async def audit(self, quiet: timedelta, *, repair: bool) -> LedgerAudit:
        """Compare all that is open, what ended lately, and what schedulers hold besides.

        Args:
            quiet: Agendas that changed within this time are left out.
            repair: Whether to repair what can be.

        Raises:
            UnavailableError: If Postgres or Kafka is away, or the rollup does not keep up; some
                may have been repaired.
        """
        audit, comparison = LedgerAudit(), self._comparison()
        first: dict[str, LedgerDiscrepancy] = {}
        async for page in self._ledger.open_rows(quiet, page=_PAGE):
            first |= await comparison.compare(page)
        ended = await self._ledger.ended_rows(quiet, most=_MAX_ENDED_CHECKED)
        first |= await comparison.compare(ended)
        first |= await comparison.find_unsummarised()
        audit.checked, audit.unanswered = comparison.checked, comparison.unanswered
        audit.skipped = await self._ledger.count_recently_changed(quiet)
        audit.behind, audit.offsets = await self._progress.check_folding()
        if first:
            evidence = await self._confirm(first, audit, may_read_all=True)
            if repair:
                await self._repair(audit, evidence)
        return audit

    async def _confirm(
        self, first: Mapping[str, LedgerDiscrepancy], audit: LedgerAudit, *, may_read_all: bool
    ) -> Mapping[str, AgendaEvidence]:
        """Note what is still wrong, in the light of Kafka; what Kafka has of those agendas.

        A summary that someone changed by hand, or that lost what it was, may take for open
        what has ended: placed again it would be done twice.
        """
        await asyncio.sleep(RECHECK_AFTER_S)
        comparison = self._comparison()
        second = {**await comparison.compare_now(first)}
        if any(one.kind == "no_summary" for one in first.values()):
            second |= await comparison.find_unsummarised()
        both = confirmed(first, second)
        doubted = [one.row.agenda_id for one in both if one.kind not in _PROVEN]
        accepted_at = await self._ledger.accepted_at(doubted)
        if not may_read_all:  # what has no acceptance has no body either: it cannot be placed
            doubted = [one for one in doubted if one in accepted_at]
        is_known = len(accepted_at) == len(doubted)
        since = min(accepted_at.values(), default=None) if is_known else None
        evidence = await self._read_evidence(doubted, since)
        audit.discrepancies = [
            checked_against_events(one, evidence[one.row.agenda_id].summary)
            if one.row.agenda_id in evidence
            else one
            for one in both
        ]
        return evidence

    async def _repair(self, audit: LedgerAudit, evidence: Mapping[str, AgendaEvidence]) -> None:
        """Summaries first, for what else is wrong follows from them."""
        kinds = ("summary", "no_summary")
        summaries = [one for one in audit.discrepancies if one.kind in kinds]
        left = [one for one in audit.discrepancies if one.kind not in kinds]
        refolded = await self._repairs.refold(summaries, evidence, audit)
        left += (await self._comparison().compare_now(refolded)).values()
        await self._requeue(left, audit)
        ended = [one for one in left if one.kind == "ended"]
        await self._repairs.resend_ends(ended, evidence, audit)

    async def _requeue(
        self, discrepancies: Sequence[LedgerDiscrepancy], audit: LedgerAudit
    ) -> None:
        rows = [one.row for one in discrepancies if one.is_repairable]
        await self._repairs.requeue(rows, audit)
