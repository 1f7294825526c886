"""Dead letters by filter: listed, counted by reason, settled once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from pop_stream.policy.lifecycle.dead_letters import DeadLetter, LetterKind, LetterState

MAX_COUNTED: Final = 10_000
"""Letters that are counted; more are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Selects letters: those that match every field that is set; empty matches all.

    Attributes:
        from_at: Of letters written at this instant or later.
        before_at: Of letters written before this instant.
    """

    ids: tuple[str, ...] = ()
    kinds: tuple[LetterKind, ...] = ()
    codes: tuple[str, ...] = ()
    customer_ids: tuple[str, ...] = ()
    insight_ids: tuple[str, ...] = ()
    agenda_ids: tuple[str, ...] = ()
    states: tuple[LetterState, ...] = ()
    from_at: datetime | None = None
    before_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """A letter, and what has become of it.

    Attributes:
        number: Grows in the order in which letters were stored.
        letter: Of a list, without key, value and issues.
        settled_by: Who redrove or discarded it.
    """

    number: int
    letter: DeadLetter
    state: LetterState = "open"
    settled_at: datetime | None = None
    settled_by: str | None = None
    settled_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """Letters of one kind with the same code.

    Attributes:
        example: The reason of the newest.
    """

    kind: LetterKind
    code: str
    letters: int
    oldest_at: datetime
    newest_at: datetime
    example: str


class DeadLetterStore(Protocol):
    """Every method raises UnavailableError while the database is away."""

    async def add(self, letters: Sequence[DeadLetter]) -> None:
        """Store letters, in order; one that is stored already is left as it is.

        Raises:
            UnstorableError: If one holds what no row can; then none is stored.
        """
        ...

    async def page(
        self, wanted: LetterFilter, *, before: int | None, limit: int
    ) -> Sequence[StoredLetter]:
        """Letters that fit, newest first, with lower numbers than `before` if it is given."""
        ...

    async def reasons(self, wanted: LetterFilter) -> Sequence[ReasonCount]:
        """The newest `MAX_COUNTED` that fit, by kind and code, most letters first."""
        ...

    async def find(self, letter_id: str) -> StoredLetter | None:
        """One letter, whole."""
        ...

    async def settle(
        self, letter: DeadLetter, state: LetterState, *, by: str, reason: str
    ) -> bool:
        """Settle a letter that is open; False if it is not.

        A webhook that is redriven is due anew, one that is discarded is forgotten, in the same
        transaction.
        """
        ...
