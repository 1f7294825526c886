"""Delivers claimed agendas to workers that poll over HTTP."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

from pop_stream.model.events.lifecycle import StopReason
from pop_stream.model.events.scheduling import EmittedAgenda


class HttpDeliveries(Protocol):
    """Delivers agendas to workers over HTTP, whichever process of the API they poll."""

    async def poll(
        self, insight_id: str, count: int, wait: timedelta, *, is_connected: Callable[[], bool]
    ) -> Sequence[EmittedAgenda]:
        """Claimed agendas of an insight; none only if the wait ends first.

        Calls may overlap. Agendas that arrive for a call that has ended go to another one.

        Args:
            insight_id: Of any insight.
            count: At most so many, at least 1.
            wait: How long to wait for the first; zero does not wait.
            is_connected: Whether the caller still waits; called twice a second.

        Raises:
            UnavailableError: If Kafka has not been reached yet, and there is no wait.
            UnservedError: If nobody can claim the insight's agendas; it names the remedy.
        """
        ...

    def return_delivery(self, emitted: EmittedAgenda) -> None:
        """Give an agenda back whose caller has gone; returns at once, and may be lost.

        A lost one comes back when its lease ends.
        """
        ...

    def stop_reason(
        self, agenda_id: str, attempt: int, accepted_at: datetime
    ) -> StopReason | Literal["outdated"] | None:
        """Why the attempt is to stop; None if it is not, or if its stop is long ago.

        Args:
            agenda_id: Of the agenda.
            attempt: Of the agenda.
            accepted_at: When the agenda was accepted: a stop of an earlier agenda with the same
                id does not apply.
        """
        ...
