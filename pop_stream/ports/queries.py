"""Asking the scheduler."""

from collections.abc import Sequence
from typing import Protocol

from pop_stream.model.events.scheduling import QueueDescribed


class QueueQueries(Protocol):
    """Asks the scheduler about what waits with it."""

    async def ask(
        self,
        insight_id: str,
        agenda_id: str = "",
        agenda_ids: Sequence[str] = (),
        tracked_after: int | None = None,
    ) -> QueueDescribed:
        """What the scheduler says of an insight, and of an agenda if one is named.

        Args:
            insight_id: Any insight.
            agenda_id: Whose place is wanted; empty for none.
            agenda_ids: Of which it is wanted whether the scheduler holds them; at most
                `MAX_QUERIED_AGENDAS`.
            tracked_after: Behind which place it is wanted what else the scheduler holds; -1 from
                the first, None for nothing.

        Raises:
            UnavailableError: If no scheduler answers in time.
        """
        ...
