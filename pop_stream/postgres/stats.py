"""Stats in Postgres; the fold of summaries writes them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pop_stream.model.errors import UnstorableError
from pop_stream.policy.lifecycle.stats import Measures
from pop_stream.ports.stats import StatsGroup, StatsQuery, StatsSum
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

_SUMS: Final = load_queries("stats")["sums"]
_COLUMNS: Final[Mapping[StatsGroup, str]] = {
    "hour": "hour",
    "day": "date_trunc('day', hour, 'UTC')",
    "month": "date_trunc('month', hour, 'UTC')",
    "insight_id": "insight_id",
    "customer_id": "customer_id",
    "template_id": "template_id",
    "operation_type": "operation_type",
}


class PostgresStats:
    """The port `StatsReader`."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def sums(self, query: StatsQuery) -> Sequence[StatsSum]:
        """A page of groups; see the port. Costs the rows of the range."""
        columns = [_COLUMNS[one] for one in query.groups]
        places = ", ".join(str(place + 1) for place in range(len(columns)))
        # Nothing but the columns above gets into the text.
        statement = _SUMS.replace("/* groups */", "".join(f"{one}, " for one in columns))
        statement += f"\ngroup by {places}\norder by {places}" if columns else ""
        statement += "\nlimit $8 offset $9"
        filters = (
            query.customer_ids,
            query.insight_ids,
            query.template_ids,
            query.operation_types,
        )
        is_by_type = bool(query.operation_types) or "operation_type" in query.groups
        try:
            async with acquire_connection(self._pool) as connection:
                rows = await connection.fetch(
                    statement,
                    query.from_at,
                    query.before_at,
                    is_by_type,
                    *([*one] or None for one in filters),
                    query.limit,
                    query.offset,
                )
        except UnstorableError:
            return []  # asked for what no row can hold
        width = len(columns)
        return [_sum(tuple(row), width) for row in rows if row["rows"]]


def _sum(row: tuple, width: int) -> StatsSum:  # type: ignore[type-arg]  # a record of the driver
    _, *ends, attempts, worker_us, wait_us, run_us, waits, runs = row[width:]
    return StatsSum(
        row[:width],
        Measures(ends, attempts, worker_us, wait_us, run_us, [*waits], [*runs]),
    )
