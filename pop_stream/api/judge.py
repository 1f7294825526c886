"""The judge: whether an agenda's text may go on, and where it would."""

from collections.abc import Callable
from dataclasses import dataclass

from pop_stream.api.problems import TooLargeError
from pop_stream.core.agenda import encode_agenda, parse_agenda
from pop_stream.core.placement import Placement
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
        self._insights = definitions.current.insights
        self._placement = Placement(self._insights.values())

    def judge(self, raw: bytes | bytearray) -> Submission:
        """The submission that an agenda's JSON text makes.

        Raises:
            SubmissionError: If it is malformed, unsound or fits no insight.
            TooLargeError: If it is too large, or becomes so when its numbers are written out.
        """
        self._check_size(raw)
        agenda = parse_agenda(raw)
        insight_id = self._current_placement().place(agenda)
        agenda_id = agenda.id
        if agenda_id is None:
            agenda_id = self._new_id()
            agenda = agenda.model_copy(update={"id": agenda_id})
        value = encode_agenda(agenda)
        self._check_size(value)
        return Submission(agenda_id, insight_id, value)

    def _current_placement(self) -> Placement:
        insights = self._definitions.current.insights
        if insights is not self._insights:
            self._insights = insights
            self._placement = Placement(insights.values())
        return self._placement

    def _check_size(self, value: bytes | bytearray) -> None:
        if len(value) > self._largest:
            msg = f"an agenda may hold {self._largest:,} bytes at most, not {len(value):,}"
            raise TooLargeError(msg, limit=self._largest)
