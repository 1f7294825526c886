"""What an occurrence becomes on Kafka: a submission, or a refusal that says why."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from pop_stream.kafka.dead_letters import to_wire_issues
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import ForbiddenError, Issue, SubmissionError
from pop_stream.model.events.lifecycle import AgendaCommanded, AgendaRefused, LifecycleEvent
from pop_stream.model.events.occasions import OpenOccurrence
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.references import find as find_references
from pop_stream.model.schedule import Occurrence, Schedule, nominal_of
from pop_stream.model.series import series_partition
from pop_stream.model.trace import Trace
from pop_stream.policy.ingress.admission import Admission, Submission
from pop_stream.policy.ingress.signature import HELD_TO_QUOTAS_HEADER, RecordSigner
from pop_stream.policy.rules import RuleFiring
from pop_stream.policy.schedules.keeper import Firing
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class Sourced:
    """What a schedule or a rule wants submitted.

    Attributes:
        agenda_id: The same whenever it is submitted.
        series_id: In which it has a position.
        body: Makes the submission; raises `SubmissionError` if that cannot be.
        sender: In whose name.
        named: The customer, as the definition says, which may be a token.
        trace: Of the agenda.
    """

    agenda_id: str
    series_id: str
    body: Callable[[], Mapping[str, object]]
    sender: Principal
    named: object
    trace: Trace | None = None

    @staticmethod
    def of_occurrence(one: Occurrence) -> "Sourced":
        """An instant of a schedule."""
        named = one.schedule.submission.get("customer_id")
        sender = sender_of(one.schedule)
        return Sourced(one.agenda_id, one.series.id, one.body, sender, named)

    @staticmethod
    def of_firing(one: RuleFiring) -> "Sourced":
        """A record that fits a rule."""
        named = one.rule.does.get("customer_id")
        return Sourced(one.agenda_id, one.series.id, one.body, one.sender, named, one.trace)


class OccurrenceRecords:
    """Makes the records of decisions, by the definitions in force when they are made.

    Args:
        settings: Names of topics, and secrets.
        publisher: Knows the partitions of topics.
        definitions: Whose templates are run, and whose insights agendas must fit.
        admission: The rules for all submissions.
    """

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        definitions: DefinitionSource,
        admission: Admission,
    ) -> None:
        self._topics = Topics(settings.topic_prefix)
        self._signer = RecordSigner(settings.signing_keys)
        self._publisher = publisher
        self._definitions = definitions
        self._admission = admission

    async def of(self, firing: Firing, now: datetime) -> list[Record]:
        """Submissions in the order of their series, refusals and cancels."""
        sourced = map(Sourced.of_occurrence, firing.occurrences)
        return await self.of_all(sourced, now, lambda: self._cancels(firing, now))

    async def of_all(
        self,
        sourced: Iterable[Sourced],
        now: datetime,
        commands: Callable[[], Iterable[AgendaCommanded]] = tuple,
        on_refused: Callable[[str, SubmissionError], None] = lambda *_: None,
    ) -> list[Record]:
        """Submissions in their order, a refusal for each that is not admitted, and commands.

        Args:
            sourced: What is wanted.
            now: Dates refusals.
            commands: Made after them.
            on_refused: Called with the id of each agenda that is not admitted, and why.
        """
        self._admission = self._admission.following(self._definitions.current)
        partitions = await self._publisher.partitions(self._topics.submissions)
        submissions: list[Record] = []
        lifecycle: list[LifecycleEvent] = []
        for one in sourced:
            try:
                submission = self._admit(one)
            except SubmissionError as error:
                on_refused(one.agenda_id, error)
                lifecycle.append(_refused(one, error, now))
            else:
                submissions.append(self._submission(one, submission, partitions))
        lifecycle += commands()
        events = await lifecycle_records(
            self._publisher, self._topics.agenda_events, lifecycle, signer=self._signer
        )
        return [*submissions, *events]

    def _admit(self, one: Sourced) -> Submission:
        """By the rules for whoever submits it.

        Raises:
            SubmissionError: If it is not admitted.
        """
        raw = msgspec.json.encode(one.body())
        try:
            return self._admission.admit(
                raw, one.sender, new_id=lambda: one.agenda_id, trace=one.trace
            )
        except ForbiddenError as error:
            issue = Issue("customer_id", one.sender.customer_id or "", str(error))
            raise SubmissionError([issue]) from None

    def _submission(self, one: Sourced, submission: Submission, partitions: int) -> Record:
        topic, key = self._topics.submissions, submission.agenda_id.encode()
        partition = series_partition(submission.customer_id, one.series_id, partitions)
        signed = self._signer.headers(topic, key=key, value=submission.value)
        headers = (*signed, HELD_TO_QUOTAS_HEADER)
        return Record(topic, key, submission.value, partition, headers=headers)

    def _cancels(self, firing: Firing, now: datetime) -> Iterator[AgendaCommanded]:
        for schedule, one in firing.cancels:
            insight_id = self._insight_of(schedule, one)
            if insight_id is not None:
                yield AgendaCommanded(
                    agenda_id=one.agenda_id,
                    at=now,
                    insight_id=insight_id,
                    action="cancel",
                    by=f"schedule:{schedule.name}",
                    reason="the next occurrence is due",
                )

    def _insight_of(self, schedule: Schedule, one: OpenOccurrence) -> str | None:
        """Where an occurrence was routed, as far as definitions are what they were."""
        try:
            occurrence = Occurrence(schedule, nominal_of(one.position), None, None)
            return self._admit(Sourced.of_occurrence(occurrence)).insight_id
        except SubmissionError:
            return None


def sender_of(schedule: Schedule) -> Principal:
    """Who submits a schedule's occurrences: its owner, or whoever may for any customer."""
    if schedule.owner is None:
        return ANYONE
    return Principal(f"schedule:{schedule.name}", schedule.owner, frozenset({Role.SUBMIT}))


def _refused(one: Sourced, error: SubmissionError, now: datetime) -> AgendaRefused:
    is_known = isinstance(one.named, str) and not find_references(one.named)
    return AgendaRefused(
        agenda_id=one.agenda_id,
        at=now,
        issues=to_wire_issues(error.issues),
        customer_id=str(one.named) if is_known else one.sender.customer_id,
    )
