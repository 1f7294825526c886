"""Reads summaries for those who watch them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pop_stream.model.errors import UnstorableError
from pop_stream.policy.lifecycle.states import AttemptStatus, State
from pop_stream.policy.lifecycle.summary import LinkSummary, Summary
from pop_stream.ports.summaries import AcceptedBody, Callback, LinkScope, ReusableIds
from pop_stream.postgres.pool import acquire_connection, load_queries
from pop_stream.postgres.summaries import read_offsets
from pop_stream.postgres.summary_rows import operation_of, summary_of

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

_SQL: Final = load_queries("reads")


class PostgresSummaryReader:
    """The port `SummaryReader`."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def agenda(self, agenda_id: str) -> Summary | None:
        """One agenda's summary, its operations in the agenda's order; see the port."""
        try:
            async with (
                acquire_connection(self._pool) as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                row = await connection.fetchrow(_SQL["agenda"], agenda_id)
                if row is None:
                    return None
                rows = await connection.fetch(_SQL["operations"], agenda_id)
        except UnstorableError:
            return None  # an id that no row can hold
        summary = summary_of(row, {}, row["body"] or b"")
        place = {name: index for index, name in enumerate(summary.operation_names)}
        rows.sort(key=lambda one: (place.get(one["name"], len(place)), one["name"]))
        return summary_of(row, {one["name"]: operation_of(one) for one in rows}, summary.body)

    async def attempt_status(self, agenda_id: str) -> AttemptStatus | None:
        """How far the agenda is; see the port."""
        try:
            async with acquire_connection(self._pool) as connection:
                row = await connection.fetchrow(_SQL["attempt_status"], agenda_id)
        except UnstorableError:
            return None  # an id that no row can hold
        return None if row is None else AttemptStatus(row["attempt"], State(row["state"]))

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """How far summaries have come; see the port."""
        async with acquire_connection(self._pool) as connection:
            return await read_offsets(connection, topic)

    async def link(self, link: LinkScope) -> LinkSummary | None:
        """The roll-up of the link's agendas; see the port."""
        try:
            async with acquire_connection(self._pool) as connection:
                rows = await connection.fetch(_SQL["link"], link.link_id, link.customer_id)
        except UnstorableError:
            return None  # an id that no row can hold
        if not rows:
            return None
        counts = {State(row["state"]): row["agendas"] for row in rows}
        percent = sum(row["percents"] for row in rows) / sum(counts.values())
        return LinkSummary(link_id=link.link_id, counts=counts, percent=percent)

    async def callbacks(self, agenda_id: str, *, limit: int) -> Sequence[Callback]:
        """The newest reports of the agenda's ends; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["callbacks"], agenda_id, limit)
        return [Callback(**row) for row in rows]

    async def agenda_owners(self, agenda_ids: Sequence[str]) -> Mapping[str, str]:
        """Each agenda's customer; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["agenda_owners"], agenda_ids)
        return {row["agenda_id"]: row["customer_id"] for row in rows}

    async def find_by_name(self, named: str) -> Sequence[str]:
        """Ids of agendas that someone calls so; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["agenda_ids_of"], named)
        return [row["agenda_id"] for row in rows]

    async def accepted_bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, AcceptedBody]:
        """What was accepted under these ids; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["accepted_bodies"], agenda_ids)
        return {row["agenda_id"]: AcceptedBody(row["customer_id"], row["body"]) for row in rows}

    async def reusable_ids(self, agenda_ids: Sequence[str]) -> ReusableIds:
        """Which of these ids are free again; see the port."""
        async with acquire_connection(self._pool) as connection:
            [row] = await connection.fetch(_SQL["freed_ids"], agenda_ids)
        return ReusableIds(frozenset(row["refused"]), row["deleted_until"])

    async def agenda_versions(self, agenda_ids: Sequence[str]) -> Mapping[str, int]:
        """A number per agenda that grows with every change; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["agenda_versions"], agenda_ids)
        return {row["agenda_id"]: row["version"] for row in rows}

    async def link_versions(self, links: Sequence[LinkScope]) -> Mapping[LinkScope, int]:
        """A number per link that grows with every change of its agendas; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(
                _SQL["link_versions"],
                [link.link_id for link in links],
                [link.customer_id for link in links],
            )
        return {LinkScope(row["link_id"], row["customer_id"]): row["version"] for row in rows}

    async def ping(self) -> None:
        """Answer, or raise UnavailableError."""
        async with acquire_connection(self._pool) as connection:
            await connection.execute(_SQL["ping"])
