"""Submissions over HTTP, checked by the definitions in force."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pop_stream.api.http.errors import TooLargeError
from pop_stream.model.agenda import Agenda
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import AgendaTooLargeError
from pop_stream.model.identity import ANYONE, Principal
from pop_stream.policy.ingress.admission import Admission, Submission
from pop_stream.policy.ingress.routing import InsightRouter
from pop_stream.ports.definitions import DefinitionSource


class SubmissionValidator:
    """Checks one agenda at a time as `Admission` does, and answers as HTTP does.

    Args:
        definitions: Whose insights an agenda must fit.
        new_id: Makes an id for an agenda that has none.
        largest: Most bytes of one agenda, as sent and as published.
        defined_only: Whether agendas of customers that are not defined are refused.
    """

    def __init__(
        self,
        definitions: DefinitionSource,
        new_id: Callable[[], str],
        *,
        largest: int,
        defined_only: bool,
    ) -> None:
        self._definitions = definitions
        self._new_id = new_id
        self._largest = largest
        self._defined_only = defined_only
        self._admission = Admission(
            Definitions(), max_agenda_bytes=largest, defined_customers_only=defined_only
        )

    def validate(
        self,
        raw: bytes | bytearray,
        principal: Principal,
        *,
        suggested_id: str | None = None,
    ) -> Submission:
        """The submission that the JSON text of an agenda, or of a template's run, makes.

        Args:
            raw: What was sent.
            principal: Who sent it.
            suggested_id: Its id, unless the text names one.

        Raises:
            ForbiddenError: If the caller does not speak for its customer, known or not.
            SubmissionError: If it is malformed, unsound or fits no insight.
            TooLargeError: If it is too large, or becomes so when its numbers are written out.
        """
        with _too_large():
            return self._current.admit(
                raw, principal, new_id=self._new_id, suggested_id=suggested_id
            )

    def read(self, raw: bytes | bytearray, principal: Principal = ANYONE) -> Agenda:
        """The agenda that the JSON text stands for; of a template that the caller sees.

        Raises:
            SubmissionError: If it is malformed or unsound.
        """
        return self._current.parse(raw, principal)

    def accept(self, agenda: Agenda, principal: Principal = ANYONE) -> Submission:
        """The submission that an agenda makes, under an id of its own.

        Args:
            agenda: Sound, and the caller's to submit.
            principal: Who chose its id, if it has one.

        Raises:
            SubmissionError: If it fits no insight.
            TooLargeError: If it is too large when written out.
        """
        with _too_large():
            return self._current.admit_agenda(agenda, principal, new_id=self._new_id)

    def check_customer(self, principal: Principal, customer_id: str) -> None:
        """Check that what the caller submits may be the customer's; see `Admission`.

        Raises:
            ForbiddenError: If it may not.
        """
        self._current.check_customer(principal, customer_id)

    @property
    def version(self) -> int:
        """Of the definitions in force, by which validation goes now."""
        return self._definitions.current.version

    @property
    def router(self) -> InsightRouter:
        """The router of the definitions in force."""
        return self._current.router

    @property
    def _current(self) -> Admission:
        current = self._definitions.current
        if current is not self._admission.definitions:
            self._admission = Admission(
                current,
                max_agenda_bytes=self._largest,
                defined_customers_only=self._defined_only,
                before=self._admission,
            )
        return self._admission


@contextmanager
def _too_large() -> Iterator[None]:
    """Answers 413 for what Kafka's dead letter calls an unsound submission."""
    try:
        yield
    except AgendaTooLargeError as error:
        msg = f"an agenda may hold {error.limit:,} bytes at most, not {error.size:,}"
        raise TooLargeError(msg, limit=error.limit) from None
