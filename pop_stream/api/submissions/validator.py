"""The judge: whether an agenda's text may go on, and where it would."""

from collections.abc import Callable
from dataclasses import dataclass

from pop_stream.api.http.errors import TooLargeError
from pop_stream.model.agenda import Agenda, encode_agenda
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import ForbiddenError
from pop_stream.model.identity import ANYONE, Principal
from pop_stream.model.tenancy import display_id, qualified_id
from pop_stream.policy.ingress.routing import InsightRouter
from pop_stream.policy.ingress.submission import parse_submission
from pop_stream.ports.definitions import DefinitionSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """An agenda that passed, ready to publish.

    Attributes:
        visible_id: What its submitter calls it.
        value: The agenda as JSON, with its id.
        is_named: Whether it brought its id along.
    """

    agenda_id: str
    visible_id: str
    insight_id: str
    value: bytes
    customer_id: str
    is_named: bool


class SubmissionValidator:
    """Decides on one agenda at a time, by the definitions in force.

    Args:
        definitions: Whose insights an agenda must fit.
        new_id: Makes an id for an agenda that has none.
        largest: Most bytes of one agenda, as sent and as published.
    """

    def __init__(
        self, definitions: DefinitionSource, new_id: Callable[[], str], *, largest: int
    ) -> None:
        self._definitions = definitions
        self._new_id = new_id
        self._largest = largest
        self._routed_by: Definitions | None = None
        self._router = InsightRouter(())

    def judge(self, raw: bytes | bytearray, principal: Principal) -> Submission:
        """The submission that the JSON text of an agenda, or of a template's run, makes.

        Raises:
            ForbiddenError: If the caller does not speak for its customer, known or not.
            SubmissionError: If it is malformed, unsound or fits no insight.
            TooLargeError: If it is too large, or becomes so when its numbers are written out.
        """
        self._check_size(raw)
        agenda = self.read(raw, principal)
        if not principal.speaks_for(agenda.customer_id):
            msg = f"this caller submits for customer {principal.customer_id!r} only"
            raise ForbiddenError(msg)
        return self.accept(agenda, principal)

    def read(self, raw: bytes | bytearray, principal: Principal = ANYONE) -> Agenda:
        """The agenda that the JSON text stands for; of a template that the caller sees.

        Raises:
            SubmissionError: If it is malformed or unsound.
        """
        return parse_submission(raw, self._definitions.current.templates, principal)

    def accept(self, agenda: Agenda, principal: Principal = ANYONE) -> Submission:
        """The submission that an agenda makes, under an id of its own.

        Args:
            agenda: Sound, and the caller's to submit.
            principal: Who chose its id, if it has one.

        Raises:
            SubmissionError: If it fits no insight.
            TooLargeError: If it is too large when written out.
        """
        insight_id = self.placement.route(agenda)
        named = agenda.id
        agenda_id = (
            self._new_id() if named is None else qualified_id(named, principal.customer_id)
        )
        if agenda_id != named:
            agenda = agenda.model_copy(update={"id": agenda_id})
        value = encode_agenda(agenda)
        self._check_size(value)
        return Submission(
            agenda_id=agenda_id,
            visible_id=display_id(agenda_id, principal.customer_id),
            insight_id=insight_id,
            value=value,
            customer_id=agenda.customer_id,
            is_named=named is not None,
        )

    @property
    def version(self) -> int:
        """Of the definitions in force, by which what is judged now is judged."""
        return self._definitions.current.version

    @property
    def placement(self) -> InsightRouter:
        """By the definitions in force."""
        current = self._definitions.current
        if current is not self._routed_by:
            self._routed_by = current
            self._router = InsightRouter(current.insights.values(), current.customers)
        return self._router

    def _check_size(self, value: bytes | bytearray) -> None:
        if len(value) > self._largest:
            msg = f"an agenda may hold {self._largest:,} bytes at most, not {len(value):,}"
            raise TooLargeError(msg, limit=self._largest)
