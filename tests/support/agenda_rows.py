"""Agendas written straight into Postgres, as old as a test wants them."""

from datetime import UTC, datetime, timedelta

from pop_stream.policy.lifecycle.states import State

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ROW = """
insert into agendas (
    agenda_id, version, state, attempt, insight_id, customer_id, title, priority,
    operation_names, percent, message, puller_id, lease_ms, accepted_at, ended_at
) values ($1, 1, $2, 1, 'media', 'anna', '', 5, '[]', 0, '', '', 0, $3, $4)
"""


async def keep(pool, agenda_id, state, *, ended=None, accepted=timedelta(days=100)):
    accepted_at = None if state is State.REFUSED else NOW - accepted
    ended_at = None if ended is None else NOW - ended
    await pool.execute(ROW, agenda_id, state.value, accepted_at, ended_at)
    await pool.execute(
        "insert into operations (agenda_id, name, state, percent, message) "
        "values ($1, 'o', 'succeeded', 100, '')",
        agenda_id,
    )
