"""What `pop-stream doctor --ledger --repair` does about each kind of fault."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.cli.ledger.looks import LedgerAudit, LedgerChecks
from pop_stream.clock import WallClock
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import AttemptEvent, Settlement
from pop_stream.core.lifecycle.reconcile import LedgerDiscrepancy
from pop_stream.intake.notes import translate
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.wire import Publisher
from pop_stream.rollup.missing import plan_requeue
from pop_stream.rollup.told import AgendaEvidence
from pop_stream.store.ledger import PostgresSummaryScan
from pop_stream.store.summaries import PostgresSummaries

_AT_ONCE: Final = 500

_FORGOTTEN: Final = (
    "Kafka does not tell of its acceptance any more; what follows for it is told as ever"
)
_NO_END: Final = (
    "Kafka tells of no end of it that the scheduler could be told: wait, or cancel it"
)


class LedgerRepairs:
    """Summaries first, from what Kafka tells, for what else is wrong follows from them.

    A summary that is not what Kafka tells, or that is not there, is made anew. Then what nobody
    has is placed again; and of what has ended, the scheduler that still holds it is told.

    Args:
        topics: Names of topics.
        checks: Both sides, once more.
        ledger: What was submitted.
        summaries: Where they are made anew.
        publisher: For what is placed or told again.
        definitions: Tell where an insight is at home.
    """

    def __init__(  # every port it needs, named once
        self,
        *,
        topics: Topics,
        checks: LedgerChecks,
        ledger: PostgresSummaryScan,
        summaries: PostgresSummaries,
        publisher: Publisher,
        definitions: DefinitionSource,
    ) -> None:
        self._topics = topics
        self._looks = checks
        self._ledger = ledger
        self._summaries = summaries
        self._publisher = publisher
        self._definitions = definitions

    async def do(self, audit: LedgerAudit, evidence: Mapping[str, AgendaEvidence]) -> None:
        """Repair what was found, and note what became of it.

        Args:
            audit: Of two looks.
            evidence: What Kafka tells of agendas with a fault.

        Raises:
            UnavailableError: If Postgres or Kafka is away; some may have been repaired.
        """
        summaries = [one for one in audit.faults if one.kind in ("summary", "no_summary")]
        left = [one for one in audit.faults if one not in summaries]
        anew = await self._refold(summaries, audit, evidence)
        left += (await self._looks.now(anew)).values()
        await self._place([one for one in left if one.is_repairable], audit)
        await self._resend_ends([one for one in left if one.kind == "ended"], audit, evidence)

    async def _refold(
        self,
        wrong: Sequence[LedgerDiscrepancy],
        audit: LedgerAudit,
        evidence: Mapping[str, AgendaEvidence],
    ) -> Sequence[str]:
        known = [one for one in wrong if one.row.agenda_id in evidence]
        for one in wrong:
            if one.row.agenda_id not in evidence:
                audit.unrepairable[one.row.agenda_id] = _FORGOTTEN
        anew: list[str] = []
        waiting = iter(known)
        while some := [one.row for one in islice(waiting, _AT_ONCE)]:
            ids = [row.agenda_id for row in some]
            try:
                await self._summaries.rebuild(
                    {one: evidence[one].lifecycle for one in ids},
                    {row.agenda_id: row.version for row in some},
                )
            except UnavailableError as error:
                audit.unrepairable |= dict.fromkeys(ids, str(error))
            else:
                anew += ids
        audit.repaired += anew
        return anew

    async def _place(self, missing: Sequence[LedgerDiscrepancy], audit: LedgerAudit) -> None:
        found = await plan_requeue(
            self._topics,
            self._ledger,
            self._publisher,
            self._definitions,
            [one.row for one in missing],
            now=WallClock().now(),
        )
        audit.unrepairable |= found.beyond
        await self._publisher.publish(found.waits)
        for agenda_id, record in found.records.items():
            await self._publisher.publish([record])
            audit.repaired.append(agenda_id)

    async def _resend_ends(
        self,
        ended: Sequence[LedgerDiscrepancy],
        audit: LedgerAudit,
        evidence: Mapping[str, AgendaEvidence],
    ) -> None:
        """Carry again what the relay carries of them, as the end of what the scheduler has.

        It may have gone on to a later attempt, not having heard how the last one ended.
        """
        partitions = await self._publisher.partitions(self._topics.ready)
        for one in ended:
            row = one.row
            events = evidence[row.agenda_id].lifecycle if row.agenda_id in evidence else ()
            last = [
                event
                for event in events
                if isinstance(event, AttemptEvent) and event.attempt == row.attempt
            ]
            notes = [
                replace(note, settlements=_of_attempt(note.settlements, one.scheduler_attempt))
                for note in translate(last)
                if note.settlements
            ]
            if not notes:
                audit.unrepairable[row.agenda_id] = _NO_END
                continue
            definitions = self._definitions.current
            await self._publisher.publish(
                [
                    ready_record(self._topics, definitions, note, partitions=partitions)
                    for note in notes
                ]
            )
            audit.repaired.append(row.agenda_id)


def _of_attempt(settlements: Sequence[Settlement], attempt: int) -> tuple[Settlement, ...]:
    return tuple(replace(one, attempt=attempt) for one in settlements)
