"""Pullers by their last signs of life, kept beside the summaries by the fold.

A puller that works all the time would be written with every batch, so it is written at most
once in `EVERY`; ids that nobody knows yet are few in a span of time, whoever makes them up.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pop_stream.model.events.lifecycle import AgendaClaimed, AgendaHeartbeat, LifecycleEvent
from pop_stream.model.ids import HTTP_PULLER, ID_LENGTH
from pop_stream.ports.pullers import PullerCursor, SeenPuller
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_SQL: Final = load_queries("pullers")

EVERY: Final = timedelta(seconds=5)
"""Between two writes about one puller in one insight, by the instants of events."""

NEW_IN_A_SPAN: Final = 100
"""Pullers that are new to this process and written within `EVERY`; others wait for their next
sign."""

_MAX_KNOWN: Final = 5_000


class PullerSign(NamedTuple):
    """A sign of life; `idle` is None of one that is no claim."""

    insight_id: str
    puller_id: str
    at: datetime
    idle: int | None
    agenda_id: str


class PullerSigns:
    """Chooses which signs of life are worth writing."""

    def __init__(self) -> None:
        self._written_at: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._span_from: datetime | None = None
        self._new = 0

    def due(self, lifecycle: Iterable[LifecycleEvent]) -> Sequence[PullerSign]:
        """The last sign of each puller that is to be written now, in order of their keys."""
        found: dict[tuple[str, str], PullerSign] = {}
        for event in lifecycle:
            if not isinstance(event, AgendaClaimed | AgendaHeartbeat):
                continue
            if event.puller_id == HTTP_PULLER or not _is_storable(event.puller_id):
                continue
            key = event.insight_id, event.puller_id
            if key in found or self._is_due(key, event.at):
                idle = event.idle if isinstance(event, AgendaClaimed) else None
                known = found.get(key)
                if known is not None and idle is None:
                    idle = known.idle
                found[key] = PullerSign(*key, event.at, idle, event.agenda_id)
        return [found[key] for key in sorted(found)]

    def _is_due(self, key: tuple[str, str], at: datetime) -> bool:
        last = self._written_at.get(key)
        if last is not None:
            if at - last < EVERY:
                return False
        elif not self._may_be_new(at):
            return False
        self._written_at[key] = at
        self._written_at.move_to_end(key)
        while len(self._written_at) > _MAX_KNOWN:
            self._written_at.popitem(last=False)
        return True

    def _may_be_new(self, at: datetime) -> bool:
        if self._span_from is None or abs(at - self._span_from) >= EVERY:
            self._span_from, self._new = at, 0
        self._new += 1
        return self._new <= NEW_IN_A_SPAN


async def record_pullers(connection: "Connection", signs: Sequence[PullerSign]) -> None:
    """Write signs of life, in the caller's transaction; sorted, so that none deadlock."""
    if signs:
        await connection.execute(_SQL["record"], *zip(*signs, strict=True))


class PostgresPullers:
    """The port `PullerReader`."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def page(
        self, *, insight_id: str | None, after: PullerCursor | None, limit: int
    ) -> Sequence[SeenPuller]:
        """A page of pullers; see the port."""
        place = ("", "") if after is None else (after.insight_id, after.puller_id)
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["page"], insight_id, *place, limit)
        return [SeenPuller(**dict(row)) for row in rows]


def _is_storable(puller_id: str) -> bool:
    return 0 < len(puller_id) <= ID_LENGTH and puller_id.isprintable()
