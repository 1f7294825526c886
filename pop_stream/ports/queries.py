"""Queries to the scheduler."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pop_stream.model.events.base import DedupeRule
from pop_stream.model.events.scheduling import QueueDescribed


class QueueQueries(Protocol):
    """Queries the scheduler's view of an insight."""

    async def ask(
        self,
        insight_id: str,
        agenda_id: str = "",
        agenda_ids: Sequence[str] = (),
        tracked_after: int | None = None,
        weights: Mapping[str, float] | None = None,
        dedupe: Sequence[DedupeRule] = (),
    ) -> QueueDescribed:
        """The state of an insight's queue, and of an agenda in it if one is named.

        Args:
            insight_id: Of any insight.
            agenda_id: The agenda whose position is wanted; empty for none.
            agenda_ids: Agendas of which the reply says whether the scheduler holds them; at
                most `MAX_QUERIED_AGENDAS`.
            tracked_after: The reply also lists agendas that the scheduler holds after this
                place, as many as fit; -1 begins with the first, None lists none.
            weights: Other weights of some customers, for a forecast of who would start when.
            dedupe: The reply says for which of these an agenda that came now would be a
                duplicate; at most `MAX_QUERIED_AGENDAS`.

        Raises:
            UnavailableError: If no scheduler answers in time.
        """
        ...
