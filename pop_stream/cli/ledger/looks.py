"""One look of the audit: what Postgres says against what schedulers hold, both ways."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pop_stream.core.errors import UnavailableError
from pop_stream.core.lifecycle.reconcile import LedgerDiscrepancy, LedgerRow, faults
from pop_stream.ports.questions import QueueQueries
from pop_stream.rollup.missing import by_insight, query_unsummarised, query_held
from pop_stream.store.ledger import PostgresSummaryScan


@dataclass(slots=True)
class LedgerAudit:
    """What was found, and what was done about it.

    Attributes:
        checked: Agendas.
        skipped: Agendas that changed too lately to be looked at.
        offsets: What is wrong between `pop.agenda-events` and how far it was folded.
        behind: Events that were not folded when the first look began.
        unanswered: Insights whose scheduler does not answer, with why.
        repaired: Agendas that were placed again, or are told of as they should be.
        unrepairable: Those for which nothing could be done, with why.
    """

    checked: int = 0
    skipped: int = 0
    behind: int = 0
    offsets: list[str] = field(default_factory=list)
    faults: list[LedgerDiscrepancy] = field(default_factory=list)
    unanswered: dict[str, str] = field(default_factory=dict)
    repaired: list[str] = field(default_factory=list)
    unrepairable: dict[str, str] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to do for anyone."""
        left = {one.row.agenda_id for one in self.faults} - {*self.repaired}
        return not (left or self.offsets or self.unanswered)


class LedgerChecks:
    """Asks both sides.

    Args:
        ledger: What Postgres says.
        questions: Asks schedulers.
        insights: All that are defined.
    """

    def __init__(
        self, ledger: PostgresSummaryScan, questions: QueueQueries, insights: Sequence[str]
    ) -> None:
        self._ledger = ledger
        self._questions = questions
        self._insights = insights

    async def check_rows(
        self, rows: Sequence[LedgerRow], audit: LedgerAudit
    ) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong with these summaries; notes who did not answer."""
        found: dict[str, LedgerDiscrepancy] = {}
        audit.checked += len(rows)
        for insight_id, some in by_insight(rows):
            try:
                holds = await query_held(
                    self._questions, insight_id, [row.agenda_id for row in some]
                )
            except UnavailableError as error:
                audit.unanswered[insight_id] = str(error)
            else:
                found |= faults(some, holds)
        return found

    async def check_unknown(self, audit: LedgerAudit) -> Mapping[str, LedgerDiscrepancy]:
        """What schedulers hold that has no summary; who does not answer is passed over."""
        found: dict[str, LedgerDiscrepancy] = {}
        for insight_id in self._insights:
            if insight_id in audit.unanswered:
                continue
            try:
                async for some in query_unsummarised(self._questions, self._ledger, insight_id):
                    found |= some
            except UnavailableError as error:
                audit.unanswered[insight_id] = str(error)
        return found

    async def recheck(
        self, first: Mapping[str, LedgerDiscrepancy]
    ) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong by now with agendas about which something was."""
        found = {**await self.check_rows(await self._ledger.rows_of([*first]), LedgerAudit())}
        if any(one.kind == "no_summary" for one in first.values()):
            found |= await self.check_unknown(LedgerAudit())
        return found

    async def now(self, agenda_ids: Collection[str]) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong with these agendas, by a single look at their summaries."""
        return await self.check_rows(await self._ledger.rows_of([*agenda_ids]), LedgerAudit())
