"""What becomes of a batch of submissions: each is accepted and placed, or refused with why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from aiokafka import ConsumerRecord

from pop_stream.bus.dead_letters import dead_letter
from pop_stream.bus.topics import Topics
from pop_stream.core.agendas.agenda import Agenda, encode_agenda
from pop_stream.core.agendas.placing import routed_agenda
from pop_stream.core.definitions.definitions import VersionedTemplate
from pop_stream.core.doors.placement import InsightRouter
from pop_stream.core.doors.submission import parse_submission
from pop_stream.core.errors import (
    ForbiddenError,
    Issue,
    PopStreamError,
    SubmissionError,
    UnreadableRecordError,
)
from pop_stream.core.events import (
    AgendaAccepted,
    LifecycleEvent,
    Origin,
    encode,
    checked_value,
)
from pop_stream.core.values.identity import ANYONE, Principal
from pop_stream.core.values.own_ids import qualified_id
from pop_stream.core.values.trace import Trace
from pop_stream.intake.entry import KafkaAdmission
from pop_stream.intake.refusals import (
    ValidationIssues,
    check_sender,
    id_from_key,
    id_from_position,
    refusal_events,
    string_fields,
)
from pop_stream.ports.wire import Record

PART: Final = "intake"

MAX_EVENT_BYTES: Final = 900_000
"""Largest event of one agenda: with all that goes round it, it must fit a record."""

MAX_AGENDAS_PER_RECORD: Final = 10_000
"""Agendas of one record: each costs time, and all are decided in one go."""

_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


class RoutedAgenda(NamedTuple):
    """An agenda on its way to the scheduler, encoded, with where it came from."""

    body: bytes
    origin: Origin


@dataclass(slots=True)
class BatchResult:
    """A batch, sorted.

    Attributes:
        lifecycle: `agenda.accepted` and `agenda.refused`, in order.
        placed: By insight, in order.
        dead: Records for the dead letters.
    """

    lifecycle: list[LifecycleEvent] = field(default_factory=list)
    placed: dict[str, list[RoutedAgenda]] = field(default_factory=dict)
    dead: list[Record] = field(default_factory=list)


class SubmissionProcessor:
    """Sorts batches by the definitions of one moment.

    Args:
        topics: Names of topics.
        router: Of that moment.
        max_agenda_bytes: Of an agenda as it was submitted.
        callback_urls: By customer: what an agenda gets that names none.
        templates: Of which runs are made.
        admission: Asked for every sound agenda; None lets all in.
    """

    def __init__(
        self,
        topics: Topics,
        router: InsightRouter,
        *,
        max_agenda_bytes: int,
        callback_urls: Mapping[str, str] | None = None,
        templates: Mapping[str, VersionedTemplate] | None = None,
        admission: KafkaAdmission | None = None,
    ) -> None:
        self._admission = admission
        self._templates = templates or {}
        self._topics = topics
        self._callback_urls = callback_urls or {}
        self._router = router
        self._max_agenda_bytes = max_agenda_bytes

    def sort(self, records: Iterable[ConsumerRecord], *, now: datetime) -> BatchResult:
        """Decide for every agenda of the batch; no record is passed over in silence."""
        result = BatchResult()
        for record in records:
            self.add(result, record, now=now)
        return result

    def add(
        self,
        result: BatchResult,
        record: ConsumerRecord,
        *,
        now: datetime,
        sender: Principal | PopStreamError = ANYONE,
    ) -> None:
        """Decide for every agenda of one record.

        Args:
            result: Where the decisions go.
            record: One submission, or a list of them.
            now: The present instant.
            sender: Who sent it, or why that cannot be told: then all of it is refused.
        """
        try:
            if isinstance(sender, PopStreamError):
                raise sender
            bodies = _bodies(checked_value(record))
        except PopStreamError as error:
            reason = (error.code, str(error))
            result.dead.append(self._dead_letter(record, reason, (), now))
            return
        issues_found = ValidationIssues(of=len(bodies))
        for index, body in enumerate(bodies):
            try:
                self._accept(result, record, index, (body, sender), now)
            except ForbiddenError as error:
                # No event: it would stand in the agenda of the one who was named.
                issues_found.add_forbidden(index, error)
            except SubmissionError as error:
                issues_found.add(index, error)
                told = refusal_events(
                    body, error, found=(record, index), sender=sender, now=now
                )
                result.lifecycle.extend(told)
        if issues_found.count:
            letter = self._dead_letter(record, issues_found.reason, issues_found.issues, now)
            result.dead.append(letter)

    def _accept(
        self,
        result: BatchResult,
        record: ConsumerRecord,
        index: int,
        sent: tuple[bytes, Principal],
        now: datetime,
    ) -> None:
        body, sender = sent
        if sender is not ANYONE:
            check_sender(sender, string_fields(body, "customer_id").get("customer_id"))
        self._check_size(body)
        parsed = _with_trace(parse_submission(body, self._templates, sender), record)
        agenda = _with_id(parsed, record, index, sender)
        check_sender(sender, agenda.customer_id)
        insight_id = self._router.route(agenda)
        encoded = msgspec.Raw(encode_agenda(agenda))
        accepted = _accepted(agenda, encoded, insight_id, now)
        if url := agenda.callback_url or self._callback_urls.get(agenda.customer_id):
            accepted = msgspec.structs.replace(accepted, callback_url=url)
        placed = encode(
            routed_agenda(agenda, encoded, agenda_id=agenda.id or "", accepted_at=now)
        )
        _check_events(accepted, placed)
        if self._admission is not None:
            customer_id = agenda.customer_id
            self._admission.admit(
                record, index, customer_id=customer_id, insight_id=insight_id, now=now
            )
        result.lifecycle.append(accepted)
        origin = Origin(partition=record.partition, offset=record.offset, index=index)
        result.placed.setdefault(insight_id, []).append(RoutedAgenda(placed, origin))

    def _check_size(self, body: bytes) -> None:
        if len(body) > self._max_agenda_bytes:
            message = f"larger than the {self._max_agenda_bytes} bytes allowed; store large "
            issue = Issue("agenda", f"{len(body)} bytes", f"{message}inputs and refer to them")
            raise SubmissionError([issue])

    def _dead_letter(
        self,
        record: ConsumerRecord,
        error: tuple[str, str],
        issues: Sequence[Issue],
        now: datetime,
    ) -> Record:
        return dead_letter(self._topics, record, part=PART, at=now, error=error, issues=issues)


def _check_events(accepted: AgendaAccepted, placed: bytes) -> None:
    """Refuse what no record could carry: events list names and types beside the agenda."""
    size = len(placed)
    if 2 * size > MAX_EVENT_BYTES:
        size = max(size, len(encode(accepted)))
    if size > MAX_EVENT_BYTES:
        message = f"grows beyond {MAX_EVENT_BYTES} bytes in an event; split it in several"
        raise SubmissionError([Issue("agenda", f"{size} bytes", message)])


def _bodies(value: bytes | None) -> list[bytes]:
    """The agendas of a record, each as JSON; a lone one is not looked into."""
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


def _with_trace(agenda: Agenda, record: ConsumerRecord) -> Agenda:
    """The agenda with what its record's headers tell of where it came from."""
    if agenda.trace is not None or not record.headers:
        return agenda
    told = {name.lower(): (value or b"").decode("latin-1") for name, value in record.headers}
    trace = Trace.of(told)
    return agenda if trace is None else agenda.model_copy(update={"trace": trace})


def _with_id(agenda: Agenda, record: ConsumerRecord, index: int, sender: Principal) -> Agenda:
    """The agenda with an identity that a repeated read of the same record gives again."""
    named = agenda.id or id_from_key(record, index)
    known = (
        qualified_id(named, sender.customer_id) if named else id_from_position(record, index)
    )
    return agenda if agenda.id == known else agenda.model_copy(update={"id": known})


def _accepted(
    agenda: Agenda, encoded: msgspec.Raw, insight_id: str, now: datetime
) -> AgendaAccepted:
    return AgendaAccepted(
        agenda_id=agenda.id or "",
        at=now,
        insight_id=insight_id,
        customer_id=agenda.customer_id,
        title=agenda.title,
        link_id=agenda.link_id,
        priority=agenda.priority,
        operations=tuple(one.name for one in agenda.operations),
        agenda=encoded,
    )
