"""What agendas wait for, and which of it has come."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pop_stream.model.agenda import Agenda, parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.retry import DEFAULT_WAIT_S
from pop_stream.model.signal import DecidedWait
from pop_stream.policy.lifecycle.states import OUTCOMES, State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_SQL: Final = load_queries("conditions")
_MARK: Final = b'"wait_for"'
_ENDED: Final = [state.value for state in OUTCOMES]


@dataclass(frozen=True, slots=True)
class PostgresConditions:
    """Several processes may share it; every method raises UnavailableError while it is away."""

    pool: "Pool"

    async def decided(self, now: datetime, limit: int) -> list[DecidedWait]:
        """Agendas whose wait is over, met or not; those commanded lately are left out."""
        async with acquire_connection(self.pool) as connection:
            await connection.execute(_SQL["forget_waits"], _ENDED)
            succeeded = [State.SUCCEEDED.value]
            await connection.execute(_SQL["meet_conditions"], now, succeeded, _ENDED)
            rows = await connection.fetch(_SQL["decided_waits"], now, limit)
        return [DecidedWait(**{**row, "unmet": row["unmet"] or ""}) for row in rows]

    async def mark_commanded(self, agenda_ids: Sequence[str], now: datetime) -> None:
        """Leave them out for a few seconds."""
        async with acquire_connection(self.pool) as connection:
            await connection.execute(_SQL["mark_commanded"], agenda_ids, now)


async def add_waits(connection: "Connection", accepted: Sequence[Summary]) -> None:
    """Keep what agendas wait for, in the caller's transaction; repeats change nothing.

    Args:
        connection: In a transaction.
        accepted: Summaries of agendas that were accepted in it.
    """
    waits: list[tuple[Any, ...]] = []
    conditions: list[tuple[Any, ...]] = []
    for summary in accepted:
        if _MARK not in summary.body or summary.accepted_at is None:
            continue
        try:
            agenda = parse_agenda(summary.body, is_accepted=True)
        except SubmissionError:
            continue  # of a version that this one does not understand
        if not agenda.wait_for or agenda.hold:
            continue  # what an admission policy deferred waits for its release alone
        waits.append(_wait_row(summary.agenda_id, agenda, summary.accepted_at))
        conditions += [
            (summary.agenda_id, number, one.kind, one.key, one.at, one.ended == "succeeded")
            for number, one in enumerate(agenda.wait_for)
        ]
    if waits:
        await connection.execute(_SQL["add_waits"], *zip(*waits, strict=True))
        await connection.execute(_SQL["add_conditions"], *zip(*conditions, strict=True))


def _wait_row(agenda_id: str, agenda: Agenda, since: datetime) -> tuple[Any, ...]:
    within = timedelta(seconds=agenda.wait_within_s or DEFAULT_WAIT_S)
    return agenda_id, agenda.customer_id, agenda.on_timeout, since, since + within
