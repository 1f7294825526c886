"""Who pulls: what is known of pullers by what they claimed and how they renewed it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPuller:
    """A puller in one insight, by its last sign of life there.

    Attributes:
        puller_id: As it calls itself.
        last_claim_at: None if it never claimed by itself: workers over HTTP do not.
        idle: Runners without an agenda when it last claimed; None for a worker over HTTP.
        last_agenda_id: What its last sign was about.
    """

    insight_id: str
    puller_id: str
    first_seen_at: datetime
    last_sign_at: datetime
    last_claim_at: datetime | None
    idle: int | None
    last_agenda_id: str


@dataclass(frozen=True, slots=True)
class PullerCursor:
    """Where a page ends."""

    insight_id: str
    puller_id: str


class PullerReader(Protocol):
    """Every method raises UnavailableError while the database is away."""

    async def page(
        self, *, insight_id: str | None, after: PullerCursor | None, limit: int
    ) -> Sequence[SeenPuller]:
        """Pullers of all insights or of one, by insight and id."""
        ...
