"""Work for pullers that speak HTTP."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
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

    def lease(self, agenda_id: str) -> EmittedAgenda | None:
        """The newest attempt of an agenda that was handed out, if it is remembered."""
        ...

    def stop(self, agenda_id: str, attempt: int) -> StopReason | Literal["outdated"] | None:
        """Why the attempt is to stop, if it is."""
        ...


class Hearsay(Protocol):
    """Passes on what a worker says of an attempt that nobody can look up now."""

    def pass_on(self, agenda_id: str, attempt: int, insights: Collection[str]) -> None:
        """Let the schedulers judge a sign of life; returns at once, and nothing is promised.

        Args:
            agenda_id: Of the agenda, as far as its worker can say.
            attempt: Its number.
            insights: Of which the agenda may be: all that the worker may pull from.
        """
        ...
