"""What was counted of agendas by hour, added up by whatever is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from pop_stream.policy.lifecycle.stats import Measures

StatsGroup = Literal[
    "hour", "day", "month", "insight_id", "customer_id", "template_id", "operation_type"
]
"""By what rows are kept apart; hours, days and months are those of UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsQuery:
    """What to add up; a filter that is empty matches all.

    Attributes:
        from_at: Hours that begin at this instant or later.
        before_at: Hours that begin before this instant.
        groups: At most one of them a time. With `operation_type`, or a filter by it, rows
            are about operation types, else about whole agendas.
    """

    from_at: datetime
    before_at: datetime
    groups: tuple[StatsGroup, ...] = ()
    customer_ids: tuple[str, ...] = ()
    insight_ids: tuple[str, ...] = ()
    template_ids: tuple[str, ...] = ()
    operation_types: tuple[str, ...] = ()
    limit: int = 100
    offset: int = 0


class StatsSum(NamedTuple):
    """One group, its values in the order of the query's groups, and its sums."""

    values: Sequence[datetime | str]
    measures: Measures


class StatsReader(Protocol):
    """Reads stats; raises UnavailableError while the database is away."""

    async def sums(self, query: StatsQuery) -> Sequence[StatsSum]:
        """The groups in order of their values, those of one page."""
        ...
