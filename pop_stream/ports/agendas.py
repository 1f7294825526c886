"""Agendas by filter: listed, counted, deleted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary


@dataclass(frozen=True, slots=True)
class AgendaFilter:
    """Selects agendas: those that match every field that is set.

    Attributes:
        ids: Matches any of these; empty matches all, in every field.
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
    """The position in a list of agendas: after this one.

    Attributes:
        accepted_at: None for an agenda that was never accepted; it sorts as the oldest.
    """

    accepted_at: datetime | None
    agenda_id: str


@dataclass(frozen=True, slots=True)
class AgendaListItem:
    """An agenda of a list.

    Attributes:
        summary: Without its operations and body.
        percent: As `Summary.percent`, which would need the operations.
        external_id: Its submitter's own name for it; None without one.
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
        """At most `limit` agendas in the order of acceptance, without operations and bodies."""
        ...

    async def page(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> Sequence[AgendaListItem]:
        """The same agendas, each with its progress."""
        ...

    async def count(self, wanted: AgendaFilter) -> int:
        """How many agendas match; exact."""
        ...

    async def load_details(self, summaries: Sequence[Summary]) -> Sequence[Summary]:
        """The same summaries in the same order, with their bodies and operations."""
        ...

    async def delete(self, agenda_ids: Sequence[str]) -> Sequence[str]:
        """Delete those of the agendas that have ended; returns the ids of the deleted."""
        ...
