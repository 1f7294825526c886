"""Where recorded rounds can be chosen again from: whole checkpoints, and their pages."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.backlog.checkpoint import PageSource, RoundCheckpoint
from pop_stream.core.events import (
    InsightAgendasRouted,
    RoutedAgenda,
    RoundDecided,
    decode_routed,
)
from pop_stream.core.values.ids import CustomerId

_NO_BODY: Final = Raw(b"null")


@dataclass(frozen=True, slots=True)
class ReplayStart:
    """The state that a round was chosen from.

    Attributes:
        round: That round.
        begins: Whether the scheduler had just read the insight from its table.
    """

    round: int
    begins: bool
    parts: Sequence[RoundCheckpoint]
    pages: Sequence[tuple[int, Sequence[RoutedAgenda]]]

    def restore_into(self, backlog: Backlog) -> None:
        """Bring a new backlog into this state."""
        now = self.parts[0].at.timestamp()
        deltas = [part.delta for part in self.parts if part.delta is not None]
        for part in self.parts:  # who has none left is given no turn
            for name, left in part.tokens.items():
                flow = backlog.queue.flow(CustomerId(name))
                flow.tokens, flow.refilled_at = left.tokens, left.at
        backlog.restore(self.pages, deltas, now)
        backlog.attempts.leases.restore(
            (note.ref, note.last_heartbeat_at, note.by_http)
            for part in self.parts
            for note in part.leases
        )
        backlog.emitted_offsets.restore(
            (
                (note.ref, note.partition, note.number, note.at)
                for part in self.parts
                for note in part.sent
            ),
            {int(where): count for where, count in self.parts[0].counts.items()},
        )


def beginnings(
    parts: Iterable[RoundCheckpoint],
    placings: Iterable[tuple[int, InsightAgendasRouted]],
    decisions: Iterable[RoundDecided],
) -> list[ReplayStart]:
    """The checkpoints that can be begun with, oldest first.

    Those are left out that lack a part, whose round was decided at another instant in the
    end, or of whose agendas one was placed longer ago than is on record. Takes memory for
    the pages that they name, not for all that was placed.

    Args:
        parts: Of all checkpoints of an insight.
        placings: All on record, by offset; looked at twice at most.
        decisions: The rounds that counted.
    """
    decided = {decision.round: decision for decision in decisions}
    by_try: dict[tuple[int, datetime], dict[int, RoundCheckpoint]] = defaultdict(dict)
    for part in parts:
        by_try[part.round, part.at][part.part] = part
    whole = [
        (decided[number].offset, [known[one] for one in sorted(known)])
        for (number, at), known in sorted(by_try.items())
        if number in decided and decided[number].at == at
        if len(known) == next(iter(known.values())).parts
    ]
    sources = (one for _, some in whole for part in some for one in part.pages)
    pages = _RecordedPages(placings, {one.agenda_id: one.agendas for one in sources})
    found: list[ReplayStart] = []
    for offset, some in whole:
        wanted = [one for part in some for one in part.pages]
        agendas = [(one.number, pages.of(one, offset)) for one in wanted]
        known_pages = [(number, page) for number, page in agendas if page is not None]
        if len(known_pages) == len(wanted):
            found.append(ReplayStart(some[0].round, some[0].begins, some, known_pages))
    return found


class _RecordedPages:
    """The pages that placings became, found by one of their agendas.

    Args:
        placings: By offset; a second look is needed where a placing has more agendas than
            the page that it became.
        wanted: By agenda that is looked for, how many its page has.
    """

    def __init__(
        self, placings: Iterable[tuple[int, InsightAgendasRouted]], wanted: Mapping[str, int]
    ) -> None:
        self._found: dict[str, list[tuple[int, Sequence[RoutedAgenda]]]] = defaultdict(list)
        self._first: dict[tuple[str, int], int] = {}
        for offset, event in placings if wanted else ():
            agendas = [decode_routed(body) for body in event.agendas]
            named = [one.agenda_id for one in agendas if one.agenda_id in wanted]
            if named:
                without_bodies = [replace(one, agenda=_NO_BODY) for one in agendas]
                for agenda_id in named:
                    self._found[agenda_id].append((offset, without_bodies))
        doubtful = {
            (one.agenda_id, one.attempt)
            for name, some in self._found.items()
            for _, agendas in some
            if len(agendas) > wanted[name]
            for one in agendas
        }
        for offset, event in placings if doubtful else ():
            for one in map(decode_routed, event.agendas):
                if (one.agenda_id, one.attempt) in doubtful:
                    self._first.setdefault((one.agenda_id, one.attempt), offset)

    def of(self, source: PageSource, before: int) -> Sequence[RoutedAgenda] | None:
        """The agendas of a page, placed at this offset or before; None if not on record.

        What came a second time is not in a page, unless the first had been lost.
        """
        for offset, agendas in reversed(self._found.get(source.agenda_id, ())):
            fresh = [one for one in agendas if self._first_at(one, offset) == offset]
            for candidate in (fresh, agendas) if offset <= before else ():
                if len(candidate) == source.agendas and _contains(candidate, source):
                    return candidate
        return None

    def _first_at(self, agenda: RoutedAgenda, offset: int) -> int:
        return self._first.get((agenda.agenda_id, agenda.attempt), offset)


def _contains(agendas: Sequence[RoutedAgenda], source: PageSource) -> bool:
    return agendas[source.slot].agenda_id == source.agenda_id
