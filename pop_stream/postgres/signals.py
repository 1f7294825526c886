"""Signals of customers, and the operations that they, or completions from outside, end."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pop_stream.model.errors import RateLimitError
from pop_stream.model.signal import MAX_KEPT_SIGNALS, AnsweredOperation, Signal
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

_SQL: Final = load_queries("signals")
_COMPLETIONS: Final = load_queries("completions")

_RETRY_AFTER_S: Final = 60


@dataclass(frozen=True, slots=True)
class PostgresSignals:
    """Several processes may share it; every method raises UnavailableError while it is away."""

    pool: "Pool"

    async def give(self, signal: Signal) -> None:
        """Keep a signal; one that was given before under its name is replaced.

        Raises:
            RateLimitError: If the customer has as many as are kept of one.
        """
        async with acquire_connection(self.pool) as connection, connection.transaction():
            kept = await connection.fetchval(
                _SQL["count_signals"], signal.customer_id, signal.name, signal.given_at
            )
            if kept >= MAX_KEPT_SIGNALS:
                raise RateLimitError(
                    signal.customer_id,
                    "signals kept",
                    MAX_KEPT_SIGNALS,
                    "keep_s",
                    retry_after_s=_RETRY_AFTER_S,
                )
            await connection.execute(
                _SQL["give_signal"],
                signal.customer_id,
                signal.name,
                signal.payload or None,
                signal.given_at,
                signal.given_by,
                signal.expires_at,
            )

    async def kept_of(self, customer_id: str | None, now: datetime, limit: int) -> list[Signal]:
        """Those that are kept, by name; of every customer if none is named."""
        async with acquire_connection(self.pool) as connection:
            rows = await connection.fetch(_SQL["list_signals"], customer_id, now, limit)
        return [Signal(**{**row, "payload": row["payload"] or b""}) for row in rows]

    async def answered(self, now: datetime, limit: int) -> list[AnsweredOperation]:
        """Operations whose signal is kept or whose hand-over has ended; so many of each.

        A hand-over whose time is over is decided to have timed out with this look.
        """
        async with acquire_connection(self.pool) as connection:
            await connection.execute(_COMPLETIONS["time_out_completions"], now)
            rows = await connection.fetch(_SQL["answered_operations"], now, limit)
            completed = await connection.fetch(_COMPLETIONS["completed_operations"], limit)
        return [*map(_completed, completed)] + [
            AnsweredOperation(
                agenda_id=row["agenda_id"],
                insight_id=row["insight_id"],
                attempt=row["attempt"],
                operation=row["name"],
                payload=row["payload"] or b"",
                given_by=row["given_by"],
            )
            for row in rows
        ]

    async def remove_expired(self, now: datetime) -> None:
        """Remove what is kept no more."""
        async with acquire_connection(self.pool) as connection:
            await connection.execute(_SQL["delete_expired_signals"], now)


def _completed(row: Any) -> AnsweredOperation:  # noqa: ANN401  # a row of the driver
    return AnsweredOperation(
        agenda_id=row["agenda_id"],
        insight_id=row["insight_id"],
        attempt=row["attempt"],
        operation=row["name"],
        payload=row["result"] or b"",
        given_by="",
        outcome=row["outcome"],
        reason=row["reason"],
        is_retryable=row["is_retryable"],
        since=row["since"],
    )
