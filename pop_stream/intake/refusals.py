"""What is refused of a record: for the dead letters, and for whoever reads the agenda."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec
from aiokafka import ConsumerRecord
from pydantic import TypeAdapter, ValidationError

from pop_stream.bus.dead_letters import to_wire_issues
from pop_stream.core.agendas.agenda import Id, OwnId
from pop_stream.core.errors import (
    ForbiddenError,
    CapacityError,
    Issue,
    MissingDefinitionError,
    QuotaError,
    SubmissionError,
)
from pop_stream.core.events import AgendaRefused
from pop_stream.core.values.identity import Principal, Role
from pop_stream.core.values.own_ids import foreign_id_issue, qualified_id

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
        """Note what is wrong with one of them."""
        self.count += 1
        if isinstance(error, QuotaError | CapacityError):
            self._code = error.code
        item = self._item(index)
        room = SubmissionError.MAX_ISSUES - len(self.issues)
        self.issues += [replace(one, field=item + one.field) for one in error.issues[:room]]

    def add_forbidden(self, index: int, error: ForbiddenError) -> None:
        """Note that the sender may not submit one of them."""
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


def check_sender(sender: Principal, customer_id: str | None) -> None:
    """Check that the sender may submit, and for the customer, as far as one is named.

    Raises:
        ForbiddenError: If it may not.
    """
    if customer_id is not None and not sender.speaks_for(customer_id):
        msg = f"{sender.name} does not submit for customer {customer_id!r}"
        raise ForbiddenError(msg)
    if not sender.has_role(Role.SUBMIT):
        msg = f"{sender.name} submits nothing: it lacks the role {Role.SUBMIT.value!r}"
        raise ForbiddenError(msg)


def id_from_key(record: ConsumerRecord, index: int) -> str | None:
    """The id that a record's key gives its only, or first, agenda, if the key can be one."""
    if not record.key or index:
        return None
    try:
        return _ID.validate_python(record.key.decode())
    except (ValidationError, UnicodeDecodeError):
        return None


def id_from_position(record: ConsumerRecord, index: int) -> str:
    """An id made of the place of an agenda in the topic."""
    return f"{record.partition}-{record.offset}-{index}"


def refusal_events(
    body: bytes,
    error: SubmissionError,
    *,
    found: tuple[ConsumerRecord, int],
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
    is_resubmittable = isinstance(error, MissingDefinitionError | QuotaError | CapacityError)
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
