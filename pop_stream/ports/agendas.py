"""Agendas by filter: listed, counted, deleted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from pop_stream.model.events.lifecycle import StopReason, WaitReason
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary

MAX_COUNTED: Final = 10_000
"""Agendas that are counted; more are not."""


@dataclass(frozen=True, slots=True)
class PayloadMatch:
    """Selects agendas of which an operation's payload has one of these values at a path.

    Attributes:
        path: Names of fields, or numbers of items.
        values: Texts as they are; numbers, true and false as JSON writes them.
    """

    path: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgendaFilter:
    """Selects agendas: those that match every field that is set.

    Attributes:
        ids: Matches any of these; empty matches all, in every field.
        external_ids: By what its submitter calls it.
        correlation_ids: By the request it came from.
        template_ids: By the template it was made from.
        attempts: By the number of the attempt it is in, or ended in.
        puller_ids: By who has, or had, its latest attempt.
        payload: Each must match. Bodies that take more than 64 KiB in the database, or that
            hold text it cannot, match nothing. Lists and counts look at fewer agendas with it.
        accepted_from: Accepted at this instant or later; the other instants likewise.
        accepted_before: Accepted before this instant; the other instants likewise.
    """

    ids: tuple[str, ...] = ()
    customer_ids: tuple[str, ...] = ()
    insight_ids: tuple[str, ...] = ()
    link_ids: tuple[str, ...] = ()
    template_ids: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    external_ids: tuple[str, ...] = ()
    correlation_ids: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    priorities: tuple[int, ...] = ()
    attempts: tuple[int, ...] = ()
    puller_ids: tuple[str, ...] = ()
    waiting_for: tuple[WaitReason, ...] = ()
    stopping: tuple[StopReason, ...] = ()
    payload: tuple[PayloadMatch, ...] = ()
    accepted_from: datetime | None = None
    accepted_before: datetime | None = None
    emitted_from: datetime | None = None
    emitted_before: datetime | None = None
    started_from: datetime | None = None
    started_before: datetime | None = None
    ended_from: datetime | None = None
    ended_before: datetime | None = None


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
        template_id: Of the template it was made from; None for none.
    """

    summary: Summary
    percent: float
    external_id: str | None = None
    correlation_id: str | None = None
    template_id: str | None = None


@dataclass(frozen=True, slots=True)
class AgendaPage:
    """A page of a list.

    Attributes:
        next: The position that the next page begins after; None on the last page. A page may
            have fewer agendas than were asked for, or none, and still not be the last.
    """

    agendas: Sequence[AgendaListItem]
    next: AgendaCursor | None


@dataclass(frozen=True, slots=True)
class AgendaCount:
    """How many agendas match.

    Attributes:
        agendas: At most `MAX_COUNTED`.
        is_capped: Whether there may be more.
    """

    agendas: int
    is_capped: bool


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
        """At most `limit` agendas in the order of acceptance, without operations and bodies.

        Fewer only if there are no more, however long that takes to find out.
        """
        ...

    async def page(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> AgendaPage:
        """The same agendas, each with its progress; at a bounded cost, so it may be short."""
        ...

    async def count(self, wanted: AgendaFilter) -> AgendaCount:
        """How many agendas match, at a bounded cost: exact, or the least there are."""
        ...

    async def load_details(self, summaries: Sequence[Summary]) -> Sequence[Summary]:
        """The same summaries in the same order, with their bodies and operations."""
        ...

    async def delete(self, agenda_ids: Sequence[str]) -> Sequence[str]:
        """Delete those of the agendas that have ended; returns the ids of the deleted."""
        ...
