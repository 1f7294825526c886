"""Calls for stats and usage."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pop_stream.api_models.stats import StatsPage, UsagePage
from pop_stream.client.transport import Calls
from pop_stream.ports.stats import StatsGroup


class StatsCalls(Calls):
    """What was counted of agendas by hour, and what customers had of workers."""

    async def page(
        self,
        groups: Sequence[StatsGroup] = ("hour", "insight_id"),
        *,
        from_at: datetime | None = None,
        before_at: datetime | None = None,
        limit: int = 100,
        offset: int = 0,
        **filters: Sequence[str],
    ) -> StatsPage:
        """Sums by group, a page of them; the last day if no range is given.

        Args:
            groups: By what rows are kept apart.
            from_at: Beginning of the range.
            before_at: End of the range, the present if None.
            limit: Rows of the page.
            offset: `next` of the page before.
            filters: `customer_id`, `insight_id`, `template_id` and `operation_type`, each any
                of these.

        Raises:
            ApiRefusedError: If a parameter is wrong; `issues` say which.
            ApiError: If there is no answer.
        """
        query: list[tuple[str, str]] = [("group", one) for one in groups]
        query += [(name, one) for name, values in filters.items() for one in values]
        query += _page(from_at, before_at, limit, offset)
        return await self._transport.read(StatsPage, "stats", query=query)

    async def usage(
        self,
        customer_ids: Sequence[str] = (),
        *,
        per: Literal["day", "month", "all"] = "month",
        from_at: datetime | None = None,
        before_at: datetime | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> UsagePage:
        """Worker-seconds and ended agendas of customers; the last 31 days if no range is given.

        Raises:
            ApiRefusedError: If a parameter is wrong; `issues` say which.
            ApiError: If there is no answer.
        """
        query = [("per", str(per)), *(("customer_id", one) for one in customer_ids)]
        query += _page(from_at, before_at, limit, offset)
        return await self._transport.read(UsagePage, "usage", query=query)


def _page(
    from_at: datetime | None, before_at: datetime | None, limit: int, offset: int
) -> list[tuple[str, str]]:
    times = (("from_at", from_at), ("before_at", before_at))
    query = [(name, at.isoformat()) for name, at in times if at is not None]
    return [*query, ("limit", str(limit)), ("offset", str(offset))]
