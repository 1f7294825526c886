"""How operations ended that were handed over: once for each hand-over."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pop_stream.model.signal import OperationCompletion
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_SQL: Final = load_queries("completions")


@dataclass(frozen=True, slots=True)
class PostgresCompletions:
    """Several processes may share it; every method raises UnavailableError while it is away."""

    pool: "Pool"

    async def find(self, agenda_id: str, operation: str) -> OperationCompletion | None:
        """What has been kept last for an operation; None if nothing has."""
        async with acquire_connection(self.pool) as connection:
            return await _find(connection, agenda_id, operation)

    async def decide(self, completion: OperationCompletion) -> OperationCompletion | None:
        """Keep a completion unless its hand-over has been decided, or a later one has.

        Of several at once, the first counts, whichever process they come to.

        Returns:
            What is kept for the operation then; None if its agenda is there no more.
        """
        async with acquire_connection(self.pool) as connection:
            await connection.execute(
                _SQL["decide_completion"],
                completion.agenda_id,
                completion.operation,
                completion.token,
                completion.attempt,
                completion.outcome,
                completion.result or None,
                completion.reason,
                completion.is_retryable,
                completion.completed_at,
            )
            return await _find(connection, completion.agenda_id, completion.operation)


async def _find(
    connection: "Connection", agenda_id: str, operation: str
) -> OperationCompletion | None:
    row = await connection.fetchrow(_SQL["find_completion"], agenda_id, operation)
    return (
        None if row is None else OperationCompletion(**{**row, "result": row["result"] or b""})
    )
