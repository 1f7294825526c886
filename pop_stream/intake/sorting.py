"""What becomes of a batch of submissions: each is accepted and placed, or refused with why."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Final

import msgspec
from aiokafka import ConsumerRecord
from pydantic import TypeAdapter, ValidationError

from pop_stream.bus.dead_letters import dead_letter, refused_issues
from pop_stream.bus.topics import Topics
from pop_stream.core.agenda import Agenda, Id, encode_agenda, parse_agenda
from pop_stream.core.errors import Issue, SubmissionError, UnreadableRecordError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaRefused,
    LifecycleEvent,
    Origin,
    PlacedAgenda,
    encode,
)
from pop_stream.core.placement import Placement
from pop_stream.ports import Record

PART: Final = "intake"

_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ID: Final = TypeAdapter(Id)


@dataclass(frozen=True, slots=True)
class Placed:
    """An agenda on its way to the scheduler, encoded, with where it came from."""

    body: bytes
    origin: Origin


@dataclass(slots=True)
class Sorted:
    """A batch, sorted.

    Attributes:
        lifecycle: `agenda.accepted` and `agenda.refused`, in order.
        placed: By insight, in order.
        dead: Records for the dead letters.
    """

    lifecycle: list[LifecycleEvent] = field(default_factory=list)
    placed: dict[str, list[Placed]] = field(default_factory=dict)
    dead: list[Record] = field(default_factory=list)


class Sorter:
    """Sorts batches by the definitions of one moment."""

    def __init__(self, topics: Topics, placement: Placement, *, max_agenda_bytes: int) -> None:
        self._topics = topics
        self._placement = placement
        self._max_agenda_bytes = max_agenda_bytes

    def sort(self, records: Sequence[ConsumerRecord], *, now: datetime) -> Sorted:
        """Decide for every agenda of the batch; no record is passed over in silence."""
        result = Sorted()
        for record in records:
            try:
                bodies = _bodies(record.value)
            except UnreadableRecordError as error:
                reason = (error.code, str(error))
                result.dead.append(self._dead_letter(record, reason, (), now))
                continue
            for index, body in enumerate(bodies):
                self._sort_one(result, record, index, body, now)
        return result

    def _sort_one(
        self, result: Sorted, record: ConsumerRecord, index: int, body: bytes, now: datetime
    ) -> None:
        try:
            self._check_size(body)
            agenda = _with_id(parse_agenda(body), record, index)
            insight_id = self._placement.place(agenda)
        except SubmissionError as error:
            reason = (error.code, str(error))
            result.dead.append(self._dead_letter(record, reason, error.issues, now))
            refused = _refused(body, record, error, now)
            if refused is not None:
                result.lifecycle.append(refused)
            return
        encoded = msgspec.Raw(encode_agenda(agenda))
        result.lifecycle.append(_accepted(agenda, encoded, insight_id, now))
        placed = encode(_placed(agenda, encoded, now))
        origin = Origin(partition=record.partition, offset=record.offset, index=index)
        result.placed.setdefault(insight_id, []).append(Placed(placed, origin))

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


def _bodies(value: bytes | None) -> list[bytes]:
    """The agendas of a record, each as JSON; a lone one is not looked into."""
    start = (value or b"").lstrip(b" \t\r\n")[:1]
    if value is None or start not in {b"{", b"["}:
        msg = "the record is no JSON object or list; it must be an agenda or a list of agendas"
        raise UnreadableRecordError(msg)
    if start == b"{":
        return [value]
    try:
        return [bytes(one) for one in _LIST.decode(value)]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRecordError(str(error)) from None


def _with_id(agenda: Agenda, record: ConsumerRecord, index: int) -> Agenda:
    """The agenda with an identity that a repeated read of the same record gives again."""
    if agenda.id is not None:
        return agenda
    return agenda.model_copy(update={"id": _key_id(record, index) or _made_id(record, index)})


def _key_id(record: ConsumerRecord, index: int) -> str | None:
    if not record.key or index:
        return None
    try:
        return _ID.validate_python(record.key.decode())
    except (ValidationError, UnicodeDecodeError):
        return None


def _made_id(record: ConsumerRecord, index: int) -> str:
    return f"{record.partition}-{record.offset}-{index}"


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


def _placed(agenda: Agenda, encoded: msgspec.Raw, now: datetime) -> PlacedAgenda:
    return PlacedAgenda(
        agenda_id=agenda.id or "",
        customer_id=agenda.customer_id,
        accepted_at=now,
        agenda=encoded,
        priority=agenda.priority,
        rank=agenda.rank,
        fairness_key=agenda.fairness_key,
        operation_types=tuple(one.type for one in agenda.operations),
        cost_s=agenda.cost_s,
    )


def _refused(
    body: bytes, record: ConsumerRecord, error: SubmissionError, now: datetime
) -> AgendaRefused | None:
    """An event for a refusal whose agenda can be told by an id; None for an anonymous one."""
    fields = _strings(body, "id", "customer_id")
    candidates = (fields.get("id"), (record.key or b"").decode(errors="replace"))
    agenda_id = next(filter(_is_id, chain(candidates)), None)
    if agenda_id is None:
        return None
    return AgendaRefused(
        agenda_id=agenda_id,
        at=now,
        issues=refused_issues(error.issues),
        customer_id=fields.get("customer_id"),
    )


def _strings(body: bytes, *names: str) -> dict[str, str]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {name: document[name] for name in names if isinstance(document.get(name), str)}


def _is_id(candidate: str | None) -> bool:
    try:
        _ID.validate_python(candidate)
    except ValidationError:
        return False
    return True
