"""What summaries say of agendas, against what schedulers hold, in both directions."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Protocol

from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.scheduling import MAX_QUERIED_AGENDAS, TrackedAgenda
from pop_stream.policy.lifecycle.reconcile import (
    LedgerDiscrepancy,
    LedgerRow,
    find_discrepancies,
    missing_summary,
)
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.queries import QueueQueries


class SummaryIndex(Protocol):
    """Looks summaries up; every method raises UnavailableError while Postgres is away."""

    async def states(self, agenda_ids: Sequence[str]) -> Mapping[str, object]:
        """Those of the agendas that have a summary."""
        ...

    async def rows_of(self, agenda_ids: Sequence[str]) -> list[LedgerRow]:
        """The rows of these agendas, as they are now."""
        ...


class LedgerComparison:
    """Compares once; what is on its way at that moment looks wrong.

    A scheduler that did not answer is not asked again by the same comparison: each question
    would wait for its timeout. Use a new one to ask again.

    Args:
        summaries: What Postgres says.
        queries: Asks schedulers.
        definitions: Which insights there are.

    Attributes:
        checked: How many agendas were compared.
        unanswered: Insights whose scheduler does not answer, with why.
    """

    def __init__(
        self, summaries: SummaryIndex, queries: QueueQueries, definitions: DefinitionSource
    ) -> None:
        self.checked = 0
        self.unanswered: dict[str, str] = {}
        self._summaries = summaries
        self._queries = queries
        self._definitions = definitions

    async def compare(self, rows: Sequence[LedgerRow]) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong with these summaries, by agenda id."""
        found: dict[str, LedgerDiscrepancy] = {}
        self.checked += len(rows)
        for insight_id, some in _by_insight(rows):
            if insight_id in self.unanswered:
                continue
            try:
                held = await self._query_held(insight_id, [row.agenda_id for row in some])
            except UnavailableError as error:
                self.unanswered[insight_id] = str(error)
            else:
                found |= find_discrepancies(some, held)
        return found

    async def compare_now(self, agenda_ids: Iterable[str]) -> Mapping[str, LedgerDiscrepancy]:
        """What is wrong by now with these agendas; nothing with one that has no summary."""
        return await self.compare(await self._summaries.rows_of([*agenda_ids]))

    async def find_unsummarised(self) -> Mapping[str, LedgerDiscrepancy]:
        """What schedulers hold that has no summary, by agenda id.

        Raises:
            UnavailableError: If Postgres is away before the first answer of a scheduler came.
        """
        found: dict[str, LedgerDiscrepancy] = {}
        for insight_id in sorted(self._definitions.current.insights):
            if insight_id in self.unanswered:
                continue
            try:
                async for some in self._pages_unsummarised(insight_id):
                    found |= some
            except UnavailableError as error:
                self.unanswered[insight_id] = str(error)
        return found

    async def _query_held(
        self, insight_id: str, agenda_ids: Iterable[str]
    ) -> Mapping[str, TrackedAgenda]:
        """Which of these agendas the scheduler of an insight holds.

        Its answer comes after everything that was on its way to it when it was asked.
        """
        held: dict[str, TrackedAgenda] = {}
        waiting = iter(agenda_ids)
        while some := list(islice(waiting, MAX_QUERIED_AGENDAS)):
            answer = await self._queries.ask(insight_id, agenda_ids=some)
            held |= {one.agenda_id: one for one in answer.holds}
        return held

    async def _pages_unsummarised(
        self, insight_id: str
    ) -> AsyncIterator[Mapping[str, LedgerDiscrepancy]]:
        after: int | None = -1
        while after is not None:
            answer = await self._queries.ask(insight_id, tracked_after=after)
            known = await self._summaries.states([one.agenda_id for one in answer.holds])
            yield {
                one.agenda_id: missing_summary(insight_id, one)
                for one in answer.holds
                if one.agenda_id not in known
            }
            after = answer.tracked_up_to


def _by_insight(rows: Iterable[LedgerRow]) -> Iterator[tuple[str, list[LedgerRow]]]:
    ordered = sorted(rows, key=lambda row: row.insight_id)
    for insight_id, some in groupby(ordered, key=lambda row: row.insight_id):
        yield insight_id, list(some)
