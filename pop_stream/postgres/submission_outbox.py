"""The outbox of a service: a table of its own database, from which agendas are submitted.

It is not in the schema of pop_stream: `sql/outbox.sql` makes it, in any database.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pop_stream.postgres.pool import acquire_connection, load_queries
from pop_stream.resources import resource_folder

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_SQL: Final = load_queries("outbox")
_CHANNEL: Final = "pop_outbox"


@dataclass(frozen=True, slots=True)
class OutboxAgenda:
    """An agenda that is committed and not yet submitted.

    Attributes:
        position: In the order of insertion, which is not that of commits.
        agenda: As JSON, with its id.
    """

    position: int
    agenda_id: str
    customer_id: str
    agenda: bytes
    created_at: datetime


class LockedAgendas:
    """Rows that no other reader has, while the transaction lasts that locks them."""

    def __init__(self, connection: "Connection", rows: Sequence[OutboxAgenda]) -> None:
        self.rows = rows
        self._connection = connection

    async def delete(self, positions: Sequence[int]) -> None:
        """Remove rows that were submitted."""
        await self._connection.execute(_SQL["delete_sent"], positions)

    async def refuse(self, reasons: Mapping[int, str]) -> None:
        """Keep rows that are refused, by position, with the reasons; no reader tries them."""
        await self._connection.execute(_SQL["mark_refused"], [*reasons], [*reasons.values()])


@dataclass(slots=True)
class OutboxListener:
    """Whether the database still notifies of commits; not once the connection broke."""

    is_open: bool = True


class SubmissionOutbox:
    """Several readers may share it; every method raises UnavailableError while it is away."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def create(self) -> None:
        """Make the table where there is none."""
        async with acquire_connection(self._pool) as connection:
            await connection.execute(outbox_sql())

    @asynccontextmanager
    async def batch(
        self, most: int, *, without: Collection[str] = ()
    ) -> AsyncIterator[LockedAgendas]:
        """The rows that wait, oldest first; what is done to them is committed at the end.

        A block that fails, or a reader that dies, leaves them as they were.

        Args:
            most: So many rows at most.
            without: Customers whose rows are left out.
        """
        async with acquire_connection(self._pool) as connection, connection.transaction():
            rows = await connection.fetch(_SQL["lock_waiting"], most, [*without])
            yield LockedAgendas(connection, [OutboxAgenda(**row) for row in rows])

    @asynccontextmanager
    async def listening(self, wake: Callable[[], None]) -> AsyncIterator[OutboxListener]:
        """Call `wake` after each commit that added rows, and once if the connection breaks.

        Where the trigger is left out, and behind a pooler that gives a connection only for a
        transaction, it is never called.
        """
        async with acquire_connection(self._pool) as connection:
            listener = OutboxListener()

            def notified(*_: object) -> None:
                wake()

            def lost(_: object) -> None:
                listener.is_open = False
                wake()

            connection.add_termination_listener(lost)
            await connection.add_listener(_CHANNEL, notified)
            try:
                yield listener
            finally:
                # The pool takes back by itself a connection that broke.
                if listener.is_open:
                    connection.remove_termination_listener(lost)
                    await connection.remove_listener(_CHANNEL, notified)


def outbox_sql() -> str:
    """The statements that make the table, the same whether it is there or not."""
    return (resource_folder("sql") / "outbox.sql").read_text()
