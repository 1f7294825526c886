"""What an occurrence becomes on Kafka: a submission, or a refusal that says why."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from pop_stream.kafka.dead_letters import to_wire_issues
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import ForbiddenError, Issue, SubmissionError
from pop_stream.model.events.lifecycle import AgendaCommanded, AgendaRefused, LifecycleEvent
from pop_stream.model.events.occasions import OpenOccurrence
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.schedule import Occurrence, Schedule, nominal_of
from pop_stream.model.series import series_partition
from pop_stream.policy.ingress.admission import Admission, Submission
from pop_stream.policy.ingress.signature import HELD_TO_QUOTAS_HEADER, RecordSigner
from pop_stream.policy.schedules.keeper import Firing
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.settings import Settings


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
        self._admission = self._admission.following(self._definitions.current)
        partitions = await self._publisher.partitions(self._topics.submissions)
        submissions: list[Record] = []
        lifecycle: list[LifecycleEvent] = []
        for one in firing.occurrences:
            try:
                submission = self._admit(one)
            except SubmissionError as error:
                lifecycle.append(_refused(one, error, now))
            else:
                submissions.append(self._submission(one, submission, partitions))
        lifecycle += self._cancels(firing, now)
        events = await lifecycle_records(
            self._publisher, self._topics.agenda_events, lifecycle, signer=self._signer
        )
        return [*submissions, *events]

    def _admit(self, occurrence: Occurrence) -> Submission:
        """By the rules for whoever's schedule it is.

        Raises:
            SubmissionError: If it is not admitted.
        """
        raw = msgspec.json.encode(occurrence.body())
        sender = sender_of(occurrence.schedule)
        try:
            return self._admission.admit(raw, sender, new_id=lambda: occurrence.agenda_id)
        except ForbiddenError as error:
            issue = Issue("customer_id", occurrence.schedule.owner or "", str(error))
            raise SubmissionError([issue]) from None

    def _submission(
        self, occurrence: Occurrence, submission: Submission, partitions: int
    ) -> Record:
        topic, key = self._topics.submissions, submission.agenda_id.encode()
        partition = series_partition(submission.customer_id, occurrence.series.id, partitions)
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
            return self._admit(occurrence).insight_id
        except SubmissionError:
            return None


def sender_of(schedule: Schedule) -> Principal:
    """Who submits a schedule's occurrences: its owner, or whoever may for any customer."""
    if schedule.owner is None:
        return ANYONE
    return Principal(f"schedule:{schedule.name}", schedule.owner, frozenset({Role.SUBMIT}))


def _refused(occurrence: Occurrence, error: SubmissionError, now: datetime) -> AgendaRefused:
    named = occurrence.schedule.submission.get("customer_id")
    return AgendaRefused(
        agenda_id=occurrence.agenda_id,
        at=now,
        issues=to_wire_issues(error.issues),
        customer_id=named if isinstance(named, str) else occurrence.schedule.owner,
    )
