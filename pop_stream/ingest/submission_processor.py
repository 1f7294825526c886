"""What becomes of records of submissions: each agenda is accepted and routed, or refused.

Accepted: an event for the rollup, and a `RoutedAgenda` for the scheduler. Refused: an event for
whoever reads the agenda, and one dead letter for the record, with what is wrong with each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from pydantic import TypeAdapter, ValidationError

from pop_stream.ingest.sender_authentication import KafkaSubmissionQuota
from pop_stream.kafka.dead_letters import dead_letter, to_wire_issues
from pop_stream.kafka.topics import Topics
from pop_stream.model.agenda import Id, OwnId, routed_agenda
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import (
    AdmissionDeniedError,
    CapacityError,
    ForbiddenError,
    Issue,
    MissingDefinitionError,
    PopStreamError,
    QuotaError,
    SubmissionError,
    UnreadableRecordError,
)
from pop_stream.model.events.codec import MAX_EVENT_BYTES, encode
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaRefused, LifecycleEvent
from pop_stream.model.events.scheduling import Origin
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.identity import ANYONE, Principal
from pop_stream.model.tenancy import foreign_id_issue, qualified_id
from pop_stream.model.trace import Trace
from pop_stream.policy.ingress.admission import Admission, Standing, Submission
from pop_stream.policy.ingress.cloud_events import from_kafka
from pop_stream.policy.ingress.policies import BUILT_IN, AdmissionPolicy
from pop_stream.policy.ingress.rankers import RankFunction
from pop_stream.policy.ingress.signature import (
    ADMITTED_HEADER,
    DEFINITIONS_VERSION_HEADER,
    RECORD_SIGNATURE_HEADER,
)
from pop_stream.policy.splitting.periods import BUILT_IN_PERIODS, PeriodResolvers
from pop_stream.ports.publisher import Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.telemetry import tracing

if TYPE_CHECKING:
    from pop_stream.telemetry.spans import SubmitSpan

_ID: Final[TypeAdapter[str]] = TypeAdapter(Id)
_OWN_ID: Final[TypeAdapter[str]] = TypeAdapter(OwnId)


class ValidationIssues:
    """What is wrong with a record's agendas; ten in detail, as a record may hold thousands."""

    def __init__(self, of: int) -> None:
        self.count = 0
        self.issues: list[Issue] = []
        self._of = of
        self._code = SubmissionError.code

    def add(self, index: int, error: SubmissionError) -> None:
        """Add what is wrong with one of them, by its index in the record."""
        self.count += 1
        if isinstance(error, QuotaError | CapacityError | AdmissionDeniedError):
            self._code = error.code
        item = self._item(index)
        room = SubmissionError.MAX_ISSUES - len(self.issues)
        self.issues += [replace(one, field=item + one.field) for one in error.issues[:room]]

    def add_forbidden(self, index: int, error: ForbiddenError) -> None:
        """Add that the sender may not submit one of them, by its index in the record."""
        self.count += 1
        self._code = ForbiddenError.code
        if len(self.issues) < SubmissionError.MAX_ISSUES:
            field = f"{self._item(index)}customer_id"
            self.issues.append(Issue(field, "another customer", str(error)))

    def _item(self, index: int) -> str:
        return f"[{index}]." if self._of > 1 else ""

    @property
    def reason(self) -> tuple[str, str]:
        """Code and text of the dead letter."""
        found = "; ".join(map(str, self.issues))
        counts = f"{self.count} of {self._of} agendas refused: " if self._of > 1 else ""
        return self._code, counts + found


def id_from_key(record: ConsumedRecord, index: int) -> str | None:
    """The id that a record's key gives its only, or first, agenda, if the key can be one."""
    if not record.key or index:
        return None
    try:
        return _ID.validate_python(record.key.decode())
    except (ValidationError, UnicodeDecodeError):
        return None


def id_from_position(record: ConsumedRecord, index: int) -> str:
    """An id made of the place of an agenda in the topic."""
    return f"{record.partition}-{record.offset}-{index}"


_ISSUES_BYTES: Final = 100_000
"""More than a refusal has beside the agenda."""


def refusal_events(
    body: bytes,
    error: SubmissionError,
    *,
    found: tuple[ConsumedRecord, int],
    sender: Principal,
    now: datetime,
) -> Iterator[AgendaRefused]:
    """An event for a refusal; none for an anonymous agenda that can never be accepted.

    Args:
        body: What was submitted.
        error: What is wrong with it.
        found: Its record, and its place there.
        sender: Who may submit, and for the customer that is named.
        now: The present instant.
    """
    fields = string_fields(body, "id", "customer_id")
    customer_id = fields.get("customer_id", sender.customer_id)
    agenda_id = _refused_id(fields.get("id"), customer_id) or id_from_key(*found)
    is_resubmittable = (
        isinstance(error, MissingDefinitionError | QuotaError | CapacityError)
        and len(body) <= MAX_EVENT_BYTES - _ISSUES_BYTES
    )
    if is_resubmittable and agenda_id is None:
        agenda_id = id_from_position(*found)
    if agenda_id is not None:
        yield AgendaRefused(
            agenda_id=qualified_id(agenda_id, sender.customer_id),
            at=now,
            issues=to_wire_issues(error.issues),
            customer_id=customer_id if _is_valid(_ID, customer_id) else None,
            agenda=msgspec.Raw(body) if is_resubmittable else msgspec.UNSET,
        )


def string_fields(body: bytes, *names: str) -> dict[str, str]:
    """Those of these fields that hold texts; none if the body is no object."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {name: document[name] for name in names if isinstance(document.get(name), str)}


def _refused_id(named: str | None, customer_id: str | None) -> str | None:
    """The id that a refused agenda gave, unless it can be none, or another customer's."""
    is_sound = _is_valid(_OWN_ID, named) and foreign_id_issue(named, customer_id) is None
    return named if is_sound else None


def _is_valid(kind: TypeAdapter[str], candidate: str | None) -> bool:
    try:
        kind.validate_python(candidate)
    except ValidationError:
        return False
    return True


PART: Final = "ingest"

MAX_AGENDAS_PER_RECORD: Final = 10_000
"""Agendas of one record: each costs time, and all are decided in one go."""

_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OF_THE_API: Final = frozenset({RECORD_SIGNATURE_HEADER, ADMITTED_HEADER[0]})


class EncodedAgenda(NamedTuple):
    """An agenda on its way to the scheduler, encoded, with where it came from."""

    body: bytes
    origin: Origin


@dataclass(slots=True)
class BatchResult:
    """What became of a batch.

    Attributes:
        lifecycle: `agenda.accepted` and `agenda.refused`, in order.
        routed: By insight, in order.
        dead_letters: Records for the dead letters.
        spans: Of records that are traced, with why something of each was refused; to be ended
            once all is published.
    """

    lifecycle: list[LifecycleEvent] = field(default_factory=list)
    routed: dict[str, list[EncodedAgenda]] = field(default_factory=dict)
    dead_letters: list[Record] = field(default_factory=list)
    spans: "list[tuple[SubmitSpan, str]]" = field(default_factory=list)


class SubmissionProcessor:
    """Decides on records of submissions by the definitions of one moment.

    Args:
        topics: Names of topics.
        definitions: Of that moment.
        max_agenda_bytes: Of an agenda as it was submitted.
        defined_customers_only: Whether those of other customers are refused.
        quota: Asked for every sound agenda; None lets all in.
        resolvers: Of periods, for templates that divide their runs.
        policies: Asked about every sound agenda before that.
        rankers: The operator's own, by name.
    """

    def __init__(  # noqa: PLR0913  # by what it decides, named once
        self,
        topics: Topics,
        definitions: Definitions,
        *,
        max_agenda_bytes: int,
        defined_customers_only: bool = False,
        quota: KafkaSubmissionQuota | None = None,
        resolvers: PeriodResolvers = BUILT_IN_PERIODS,
        policies: Sequence[AdmissionPolicy] = BUILT_IN,
        rankers: Mapping[str, RankFunction] = MappingProxyType({}),
    ) -> None:
        self._topics = topics
        self._admission = Admission(
            definitions,
            max_agenda_bytes=max_agenda_bytes,
            defined_customers_only=defined_customers_only,
            resolvers=resolvers,
            policies=policies,
            rankers=rankers,
        )
        self._quota = quota

    def follow(self, definitions: Definitions) -> None:
        """Decide by these from now on; a template that changed costs nothing more."""
        self._admission = self._admission.following(definitions)

    def process(self, records: Iterable[ConsumedRecord], *, now: datetime) -> BatchResult:
        """Decide for every agenda of the batch; no record goes unanswered."""
        result = BatchResult()
        for record in records:
            self.add(result, record, now=now)
        return result

    def add(
        self,
        result: BatchResult,
        record: ConsumedRecord,
        *,
        now: datetime,
        sender: Principal | PopStreamError = ANYONE,
    ) -> None:
        """Decide for every agenda of one record.

        Args:
            result: Where the decisions go.
            record: One submission, or a list of them.
            now: The present instant.
            sender: Who sent it, or why that is not known: then all of it is refused.
        """
        trace, submit = _trace_of(record), None
        if (spans := tracing.active()) is not None and not _has_span(record):
            attributes = partial(_attributes_of, record)
            submit = spans.begin_submit(trace, attributes, over_http=False)
            trace = submit.trace if submit else trace
        refused = self._add(result, record, trace, now=now, sender=sender)
        if submit is not None:
            result.spans.append((submit, refused))

    def _add(
        self,
        result: BatchResult,
        record: ConsumedRecord,
        trace: Trace | None,
        *,
        now: datetime,
        sender: Principal | PopStreamError,
    ) -> str:
        """As `add`, by a trace; why of what was refused of it, empty if nothing was."""
        try:
            if isinstance(sender, PopStreamError):
                raise sender
            bodies = _bodies(_unwrapped(record, sender.customer_id))
        except PopStreamError as error:
            reason = (error.code, str(error))
            issues = error.issues if isinstance(error, SubmissionError) else ()
            result.dead_letters.append(self._dead_letter(record, reason, issues, now))
            return error.code
        issues_found = ValidationIssues(of=len(bodies))
        for index, body in enumerate(bodies):
            try:
                self._accept(result, record, index, (body, sender, trace), now)
            except ForbiddenError as error:
                # No event: it would stand in the agenda of the one who was named.
                issues_found.add_forbidden(index, error)
            except SubmissionError as error:
                issues_found.add(index, error)
                result.lifecycle.extend(
                    refusal_events(body, error, found=(record, index), sender=sender, now=now)
                )
        if issues_found.count:
            letter = self._dead_letter(
                record, issues_found.reason, issues_found.issues, now, sender.customer_id
            )
            result.dead_letters.append(letter)
            return issues_found.reason[0]
        return ""

    def _accept(
        self,
        result: BatchResult,
        record: ConsumedRecord,
        index: int,
        sent: tuple[bytes, Principal, Trace | None],
        now: datetime,
    ) -> None:
        body, sender, trace = sent
        if sender is not ANYONE:
            # First, for any other refusal becomes an event of the customer that is named.
            named = string_fields(body, "customer_id").get("customer_id")
            self._admission.check_sender(sender, named)
        submission = self._admission.admit(
            body,
            sender,
            new_id=lambda: id_from_position(record, index),
            suggested_id=id_from_key(record, index),
            trace=trace,
            standing=self._standing(record),
            at=now,
        )
        insight_id, encoded = submission.insight_id, msgspec.Raw(submission.value)
        accepted = self._accepted(submission, encoded, now)
        agenda, agenda_id = submission.agenda, submission.agenda_id
        routed = encode(routed_agenda(agenda, encoded, agenda_id=agenda_id, accepted_at=now))
        if self._quota is not None:
            self._quota.admit(
                record,
                index,
                customer_id=submission.customer_id,
                insight_id=insight_id,
                is_urgent=submission.is_urgent,
                now=now,
            )
        result.lifecycle.append(accepted)
        origin = Origin(partition=record.partition, offset=record.offset, index=index)
        result.routed.setdefault(insight_id, []).append(EncodedAgenda(routed, origin))

    def _standing(self, record: ConsumedRecord) -> Standing:
        if not self._admission.has_policies:
            return "admitted"  # there is nothing to ask about
        return "new" if self._quota is None else self._quota.standing(record)

    def _accepted(
        self, submission: Submission, encoded: msgspec.Raw, now: datetime
    ) -> AgendaAccepted:
        agenda = submission.agenda
        customer = self._admission.customer_of(agenda)
        return AgendaAccepted(
            agenda_id=submission.agenda_id,
            at=now,
            insight_id=submission.insight_id,
            customer_id=agenda.customer_id,
            title=agenda.title,
            link_id=agenda.link_id,
            priority=agenda.priority,
            operations=tuple(one.name for one in agenda.operations),
            agenda=encoded,
            callback_url=agenda.callback_url or customer.callback_url,
            callback_format=agenda.callback_format or customer.callback_format,
        )

    def _dead_letter(
        self,
        record: ConsumedRecord,
        error: tuple[str, str],
        issues: Sequence[Issue],
        now: datetime,
        sender_customer_id: str | None = None,
    ) -> Record:
        return dead_letter(
            self._topics,
            record,
            part=PART,
            at=now,
            error=error,
            issues=issues,
            sender_customer_id=sender_customer_id,
        )


def _unwrapped(record: ConsumedRecord, customer_id: str | None) -> bytes | None:
    """The value of a record, or what it submits if it is a CloudEvent.

    What the API has written is none: its signature covers the value alone, so with headers that
    were added to it, it could be made to say something else.

    Raises:
        SubmissionError: If it is a CloudEvent that is not sound.
    """
    value, headers = checked_value(record), record.headers or ()
    if value is None or any(name in _OF_THE_API for name, _ in headers):
        return value
    submitted = from_kafka(headers, value, customer_id)
    return value if submitted is None else submitted


def _bodies(value: bytes | None) -> list[bytes]:
    """The agendas of a record, each as JSON; a single one is not parsed yet."""
    start = (value or b"").lstrip(b" \t\r\n")[:1]
    if value is None or start not in {b"{", b"["}:
        msg = "the record is no JSON object or list; it must be an agenda or a list of agendas"
        raise UnreadableRecordError(msg)
    if start == b"{":
        return [value]
    try:
        bodies = _LIST.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRecordError(str(error)) from None
    if len(bodies) > MAX_AGENDAS_PER_RECORD:
        msg = (
            f"a list of {len(bodies)}; at most {MAX_AGENDAS_PER_RECORD} agendas fit one record"
        )
        raise UnreadableRecordError(msg)
    return [bytes(body) for body in bodies]


def _has_span(record: ConsumedRecord) -> bool:
    """Whether the API had it first, which made its span if it was to have one."""
    return any(name == DEFINITIONS_VERSION_HEADER for name, _ in record.headers or ())


def _attributes_of(record: ConsumedRecord) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.operation.name": "submit",
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
        "messaging.message.body.size": len(record.value or b""),
    }


def _trace_of(record: ConsumedRecord) -> Trace | None:
    """What the record's headers say of where its agendas came from."""
    if not record.headers:
        return None
    headers = {name.lower(): (value or b"").decode("latin-1") for name, value in record.headers}
    return Trace.of(headers)
