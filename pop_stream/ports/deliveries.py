"""Work for pullers that speak HTTP."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

from pop_stream.model.events.lifecycle import StopReason
from pop_stream.model.events.scheduling import EmittedAgenda


class HttpDeliveries(Protocol):
    """Hands agendas to workers that pull over HTTP, whichever process they ask."""

    async def take(
        self, insight_id: str, count: int, wait: timedelta, *, is_connected: Callable[[], bool]
    ) -> Sequence[EmittedAgenda]:
        """Claimed agendas of an insight, at least one unless the wait ends before.

        Args:
            insight_id: Of which insight.
            count: At most so many.
            wait: How long to wait for the first.
            is_connected: Whether the caller still waits; asked now and then.

        Raises:
            UnavailableError: If none can be handed out.
            UnservedError: If nobody can take the insight's agendas, and what would help.
        """
        ...

    def return_delivery(self, emitted: EmittedAgenda) -> None:
        """Let another caller have an agenda whose taker has gone."""
        ...

    def stop(
        self, agenda_id: str, attempt: int, accepted_at: datetime
    ) -> StopReason | Literal["outdated"] | None:
        """Why the attempt is to stop, if it is; of the newest stops only.

        Args:
            agenda_id: Of the agenda.
            attempt: Its number.
            accepted_at: When the agenda was: a stop of an earlier one of its id is not meant.
        """
        ...
