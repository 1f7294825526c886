"""What the summaries say of many agendas, for those who check them against Kafka."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from pop_stream.core.lifecycle import State
from pop_stream.store.pool import borrow
from pop_stream.store.queries import load_queries

if TYPE_CHECKING:
    from pop_stream.store.pool import Pool

_SQL: Final = load_queries("ledger")
_IDS_AT_ONCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one agenda stands by its summary."""

    agenda_id: str
    state: State
    attempt: int
    insight_id: str


class PostgresLedger:
    """Reads summaries past the API.

    Every method raises UnavailableError while the database is away.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def entries(self, agenda_ids: Sequence[str]) -> Mapping[str, Entry]:
        """Those of the agendas that have a summary."""
        found: dict[str, Entry] = {}
        async with borrow(self._pool) as connection:
            for some in _portions(agenda_ids):
                for row in await connection.fetch(_SQL["entries"], some):
                    found[row["agenda_id"]] = Entry(
                        agenda_id=row["agenda_id"],
                        state=State(row["state"]),
                        attempt=row["attempt"],
                        insight_id=row["insight_id"],
                    )
        return found


def _portions(agenda_ids: Sequence[str]) -> Iterator[list[str]]:
    waiting = iter(agenda_ids)
    while some := list(islice(waiting, _IDS_AT_ONCE)):
        yield some
