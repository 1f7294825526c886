"""The one check of a submission, whichever way it comes: over HTTP, or as a record of Kafka."""

from collections.abc import Callable
from dataclasses import dataclass

from pop_stream.model.agenda import Agenda, encode_agenda
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import AgendaTooLargeError, ForbiddenError
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.tenancy import display_id, qualified_id
from pop_stream.model.trace import Trace
from pop_stream.policy.ingress.routing import InsightRouter
from pop_stream.policy.ingress.submission import parse_submission


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A sound agenda with an id and an insight, as it goes on.

    Attributes:
        agenda: With its final id.
        visible_id: What its submitter calls it.
        value: The agenda as JSON, with its id.
        is_named: Whether its submitter chose its id.
    """

    agenda: Agenda
    agenda_id: str
    visible_id: str
    insight_id: str
    value: bytes
    is_named: bool

    @property
    def customer_id(self) -> str:
        """Whose it is."""
        return self.agenda.customer_id


class Admission:
    """Checks submissions by the definitions of one moment; stateless otherwise.

    Quotas are no part of it: they depend on what else is on its way, see `QuotaLedger`.

    Args:
        definitions: Whose insights an agenda must fit, and whose templates are run.
        max_agenda_bytes: Of an agenda as it is sent.

    Attributes:
        router: Over the insights of that moment.
    """

    def __init__(self, definitions: Definitions, *, max_agenda_bytes: int) -> None:
        self.router = InsightRouter(definitions.insights.values(), definitions.customers)
        self._templates = definitions.templates
        self._max_agenda_bytes = max_agenda_bytes

    def admit(
        self,
        raw: bytes | bytearray,
        principal: Principal,
        *,
        new_id: Callable[[], str],
        suggested_id: str | None = None,
        trace: Trace | None = None,
    ) -> Submission:
        """The submission that the JSON text of an agenda, or of a template's run, makes.

        Args:
            raw: What was sent.
            principal: Who sent it.
            new_id: Makes the id of an agenda for which nobody chose one.
            suggested_id: Chosen by the sender outside the text; the text's own goes first.
            trace: Where it came from, unless the text says so itself.

        Raises:
            AgendaTooLargeError: If the text is too large.
            ForbiddenError: If the sender may not submit, or not for its customer, known or not.
            MissingDefinitionError: If it fits no insight, or its template does not exist.
            SubmissionError: If it is malformed or unsound.
        """
        self.check_size(raw)
        agenda = self.parse(raw, principal)
        if agenda.trace is None and trace is not None:
            agenda = agenda.model_copy(update={"trace": trace})
        check_sender(principal, agenda.customer_id)
        return self.admit_agenda(agenda, principal, new_id=new_id, suggested_id=suggested_id)

    def parse(self, raw: bytes | bytearray, principal: Principal = ANYONE) -> Agenda:
        """The agenda that the text stands for; of a template that the sender sees.

        Raises:
            SubmissionError: If it is malformed or unsound.
        """
        return parse_submission(raw, self._templates, principal)

    def admit_agenda(
        self,
        agenda: Agenda,
        principal: Principal,
        *,
        new_id: Callable[[], str],
        suggested_id: str | None = None,
    ) -> Submission:
        """The submission that a sound agenda makes, which the sender may submit; see `admit`.

        Raises:
            MissingDefinitionError: If it fits no insight.
        """
        insight_id = self.router.route(agenda)
        named = agenda.id or suggested_id
        agenda_id = qualified_id(named, principal.customer_id) if named else new_id()
        if agenda_id != agenda.id:
            agenda = agenda.model_copy(update={"id": agenda_id})
        return Submission(
            agenda=agenda,
            agenda_id=agenda_id,
            visible_id=display_id(agenda_id, principal.customer_id),
            insight_id=insight_id,
            value=encode_agenda(agenda),
            is_named=named is not None,
        )

    def check_size(self, text: bytes | bytearray) -> None:
        """Check the JSON text of an agenda.

        Raises:
            AgendaTooLargeError: If it is too large.
        """
        if len(text) > self._max_agenda_bytes:
            raise AgendaTooLargeError(len(text), self._max_agenda_bytes)


def check_sender(sender: Principal, customer_id: str | None) -> None:
    """Check that the sender may submit, and for the customer, as far as one is named.

    Raises:
        ForbiddenError: If it may not.
    """
    if customer_id is not None and not sender.speaks_for(customer_id):
        msg = f"{sender.name} submits for customer {sender.customer_id!r} only"
        raise ForbiddenError(msg)
    if not sender.has_role(Role.SUBMIT):
        msg = f"{sender.name} submits nothing: it lacks the role {Role.SUBMIT.value!r}"
        raise ForbiddenError(msg)
