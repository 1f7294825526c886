"""The judge: whether an agenda's text may go on, and where it would."""

from collections.abc import Callable
from dataclasses import dataclass

from pop_stream.api.problems import TooLargeError
from pop_stream.core.agenda import Agenda, encode_agenda
from pop_stream.core.definitions import Definitions
from pop_stream.core.placement import Placement
from pop_stream.core.submission import parse_submission
from pop_stream.ports import DefinitionSource


@dataclass(frozen=True, slots=True)
class Submission:
    """An agenda that passed, ready to publish.

    Attributes:
        value: The agenda as JSON, with its id.
    """

    agenda_id: str
    insight_id: str
    value: bytes


class Judge:
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
        self._seen: Definitions | None = None
        self._placement = Placement(())

    def judge(self, raw: bytes | bytearray) -> Submission:
        """The submission that the JSON text of an agenda, or of a template's run, makes.

        Raises:
            SubmissionError: If it is malformed, unsound or fits no insight.
            TooLargeError: If it is too large, or becomes so when its numbers are written out.
        """
        self._check_size(raw)
        return self.accept(self.read(raw))

    def read(self, raw: bytes | bytearray) -> Agenda:
        """The agenda that the JSON text stands for.

        Raises:
            SubmissionError: If it is malformed or unsound.
        """
        return parse_submission(raw, self._definitions.current.templates)

    def accept(self, agenda: Agenda) -> Submission:
        """The submission that an agenda makes, under an id of its own.

        Raises:
            SubmissionError: If it fits no insight.
            TooLargeError: If it is too large when written out.
        """
        insight_id = self.placement.place(agenda)
        agenda_id = agenda.id
        if agenda_id is None:
            agenda_id = self._new_id()
            agenda = agenda.model_copy(update={"id": agenda_id})
        value = encode_agenda(agenda)
        self._check_size(value)
        return Submission(agenda_id, insight_id, value)

    @property
    def placement(self) -> Placement:
        """By the definitions in force."""
        current = self._definitions.current
        if current is not self._seen:
            self._seen = current
            self._placement = Placement(current.insights.values(), current.customers)
        return self._placement

    def _check_size(self, value: bytes | bytearray) -> None:
        if len(value) > self._largest:
            msg = f"an agenda may hold {self._largest:,} bytes at most, not {len(value):,}"
            raise TooLargeError(msg, limit=self._largest)
