"""What is done about each kind of discrepancy; every repair may be repeated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final, Protocol

from msgspec import Raw
from msgspec.structs import replace

from pop_stream.clock import WallClock
from pop_stream.kafka.lifecycle_reader import lifecycle_records, ready_record
from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import SubmissionError, UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import AgendaReady, AttemptEvent, LifecycleEvent
from pop_stream.model.events.scheduling import (
    NO_ORIGIN,
    InsightAgendasRouted,
    InsightAttemptsReported,
    Origin,
    RoutedAgenda,
    Settlement,
)
from pop_stream.policy.lifecycle.reconcile import (
    LedgerDiscrepancy,
    LedgerRow,
    placed_for_repair,
)
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.reconciler.evidence import AgendaEvidence

_MAX_BATCH: Final = 500

_FORGOTTEN: Final = (
    "Kafka does not have its acceptance any more; what follows for it is reported as ever"
)
_NO_END: Final = "Kafka has no end of it that the scheduler could be sent: wait, or cancel it"
_NO_BODY: Final = "its body is not known: submit it again"

Translate = Callable[[Iterable[LifecycleEvent]], Sequence[InsightAttemptsReported]]
"""What the relay makes of lifecycle events for the scheduler."""


class AgendaBodies(Protocol):
    """What was submitted; raises UnavailableError while Postgres is away."""

    async def bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, tuple[bytes, datetime]]:
        """What was submitted, and when it was accepted; absent where that is not known."""
        ...


class SummaryRebuilder(Protocol):
    """Where summaries are kept."""

    async def rebuild(
        self,
        events_by_agenda: Mapping[str, Sequence[LifecycleEvent]],
        versions: Mapping[str, int],
    ) -> None:
        """Make summaries what these events add up to, whatever they say.

        Raises:
            UnavailableError: If one changed since it had its version; nothing was done.
        """
        ...


@dataclass(slots=True)
class RepairResult:
    """What became of repairs.

    Attributes:
        repaired: Agendas that were placed again, folded anew, or whose end was sent again.
        unrepairable: Those for which nothing could be done, with why.
    """

    repaired: list[str] = field(default_factory=list)
    unrepairable: dict[str, str] = field(default_factory=dict)


class LedgerRepairs:
    """Writes what puts discrepancies right; each method raises UnavailableError half way.

    Args:
        topics: Names of topics.
        bodies: What was submitted.
        summaries: Where they are folded anew.
        publisher: For what is placed or sent again.
        definitions: Where an insight is at home.
        translate: As the relay does it.
    """

    def __init__(
        self,
        topics: Topics,
        *,
        bodies: AgendaBodies,
        summaries: SummaryRebuilder,
        publisher: Publisher,
        definitions: DefinitionSource,
        translate: Translate,
    ) -> None:
        self._topics = topics
        self._bodies = bodies
        self._summaries = summaries
        self._publisher = publisher
        self._definitions = definitions
        self._translate = translate

    async def refold(
        self,
        wrong: Sequence[LedgerDiscrepancy],
        evidence: Mapping[str, AgendaEvidence],
        result: RepairResult,
    ) -> Sequence[str]:
        """Fold summaries anew from what Kafka has of their agendas; the ids of those done."""
        known = [one.row for one in wrong if one.row.agenda_id in evidence]
        for one in wrong:
            if one.row.agenda_id not in evidence:
                result.unrepairable[one.row.agenda_id] = _FORGOTTEN
        refolded: list[str] = []
        waiting = iter(known)
        while some := list(islice(waiting, _MAX_BATCH)):
            ids = [row.agenda_id for row in some]
            try:
                await self._summaries.rebuild(
                    {one: evidence[one].lifecycle for one in ids},
                    {row.agenda_id: row.version for row in some},
                )
            except UnavailableError as error:
                result.unrepairable |= dict.fromkeys(ids, str(error))
            else:
                refolded += ids
        result.repaired += refolded
        return refolded

    async def requeue(self, rows: Sequence[LedgerRow], result: RepairResult) -> None:
        """Place again what no scheduler holds, with the attempt that outdates any other.

        That a next attempt waits is published before it is placed: nobody else reports it.
        """
        routed = await self._routed(rows, result)
        next_attempts: list[LifecycleEvent] = [
            AgendaReady(
                agenda_id=row.agenda_id,
                at=WallClock().now(),
                insight_id=row.insight_id,
                attempt=agenda.attempt,
            )
            for row, agenda in routed
            if agenda.attempt > row.attempt
        ]
        if next_attempts:
            await publish_writable(
                self._publisher,
                await lifecycle_records(
                    self._publisher, self._topics.agenda_events, next_attempts
                ),
            )
        waiting = iter(routed)
        while some := list(islice(waiting, _MAX_BATCH)):
            await self._publish_ready([_placement(*one) for one in some])
            result.repaired += [row.agenda_id for row, _ in some]

    async def resend_ends(
        self,
        ended: Sequence[LedgerDiscrepancy],
        evidence: Mapping[str, AgendaEvidence],
        result: RepairResult,
    ) -> None:
        """Send schedulers again how agendas ended that they still hold.

        A scheduler may have gone on to a later attempt, not having learnt how the last one
        ended; so the end is sent as that of the attempt that it has.
        """
        for one in ended:
            row = one.row
            events = evidence[row.agenda_id].lifecycle if row.agenda_id in evidence else ()
            last = [
                event
                for event in events
                if isinstance(event, AttemptEvent) and event.attempt == row.attempt
            ]
            ends = [
                replace(
                    report, settlements=_of_attempt(report.settlements, one.scheduler_attempt)
                )
                for report in self._translate(last)
                if report.settlements
            ]
            if ends:
                await self._publish_ready(ends)
                result.repaired.append(row.agenda_id)
            else:
                result.unrepairable[row.agenda_id] = _NO_END

    async def _routed(
        self, rows: Sequence[LedgerRow], result: RepairResult
    ) -> list[tuple[LedgerRow, RoutedAgenda]]:
        routed: list[tuple[LedgerRow, RoutedAgenda]] = []
        bodies = await self._bodies.bodies([row.agenda_id for row in rows])
        for row in rows:
            if row.agenda_id not in bodies:
                result.unrepairable[row.agenda_id] = _NO_BODY
                continue
            try:
                routed.append((row, placed_for_repair(row, *bodies[row.agenda_id])))
            except SubmissionError as error:
                result.unrepairable[row.agenda_id] = str(error)
        return routed

    async def _publish_ready(
        self, events: Sequence[InsightAgendasRouted | InsightAttemptsReported]
    ) -> None:
        partitions = await self._publisher.partitions(self._topics.ready)
        definitions = self._definitions.current
        records: list[Record] = [
            ready_record(self._topics, definitions, event, partitions=partitions)
            for event in events
        ]
        await publish_writable(self._publisher, records)


def _placement(row: LedgerRow, agenda: RoutedAgenda) -> InsightAgendasRouted:
    return InsightAgendasRouted(
        insight_id=row.insight_id,
        agendas=(Raw(encode(agenda)),),
        origins=(Origin(partition=NO_ORIGIN, offset=0),),
    )


def _of_attempt(settlements: Sequence[Settlement], attempt: int) -> tuple[Settlement, ...]:
    return tuple(replace(one, attempt=attempt) for one in settlements)
