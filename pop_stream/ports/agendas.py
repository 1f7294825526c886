"""Agendas by the many: lists and bulk commands."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary


@dataclass(frozen=True, slots=True)
class AgendaFilter:
    """Which agendas are meant: those that fit every field that is set.

    Attributes:
        ids: One of these; as with the others, empty means any.
        accepted_from: Accepted at this instant or later.
        accepted_before: Accepted before this instant.
    """

    ids: tuple[str, ...] = ()
    customer_ids: tuple[str, ...] = ()
    insight_ids: tuple[str, ...] = ()
    link_ids: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    external_ids: tuple[str, ...] = ()
    correlation_ids: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    accepted_from: datetime | None = None
    accepted_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class AgendaCursor:
    """Where a list of agendas goes on: after this one.

    Attributes:
        accepted_at: None for an agenda that was never accepted; it comes as the oldest.
    """

    accepted_at: datetime | None
    agenda_id: str


@dataclass(frozen=True, slots=True)
class AgendaListItem:
    """An agenda of a list.

    Attributes:
        summary: Without its operations and body.
        percent: As `Summary.percent`, which takes the operations to tell.
        external_id: What its submitter calls it; None if it does not say.
        correlation_id: Of the request it came from; None if it came without one.
    """

    summary: Summary
    percent: float
    external_id: str | None = None
    correlation_id: str | None = None


class AgendaStore(Protocol):
    """Finds and removes agendas; every method raises UnavailableError as `SummaryReader`."""

    async def find(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> Sequence[Summary]:
        """At most `limit` agendas, by acceptance, without their operations and bodies."""
        ...

    async def page(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> Sequence[AgendaListItem]:
        """The same, each with how far it is."""
        ...

    async def count(self, wanted: AgendaFilter) -> int:
        """How many agendas fit; exact."""
        ...

    async def load_details(self, summaries: Sequence[Summary]) -> Sequence[Summary]:
        """The same summaries with their bodies and operations; in order."""
        ...

    async def delete(self, agenda_ids: Sequence[str]) -> Sequence[str]:
        """Remove those of the agendas that have ended; the ids of those removed."""
        ...
