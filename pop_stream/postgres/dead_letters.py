"""Dead letters in Postgres; `PostgresRetention` bounds how many there are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from pop_stream.model.errors import UnstorableError
from pop_stream.model.events.base import RefusedIssue
from pop_stream.policy.lifecycle.dead_letters import DeadLetter, LetterState
from pop_stream.ports.dead_letters import (
    MAX_COUNTED,
    LetterFilter,
    ReasonCount,
    StoredLetter,
)
from pop_stream.postgres.pool import acquire_connection, load_queries
from pop_stream.postgres.summaries import affected

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

_SQL: Final = load_queries("dead_letters")
_BEFORE_ALL: Final = 2**63 - 1
_STATES: Final = frozenset(get_args(LetterState))


class PostgresDeadLetters:
    """The port `DeadLetterStore`."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def add(self, letters: Sequence[DeadLetter]) -> None:
        """Store letters; see the port."""
        rows = [_row(one) for one in letters]
        async with acquire_connection(self._pool) as connection, connection.transaction():
            await connection.executemany(_SQL["add"], rows)

    async def page(
        self, wanted: LetterFilter, *, before: int | None, limit: int
    ) -> Sequence[StoredLetter]:
        """A page of letters; see the port."""
        try:
            async with acquire_connection(self._pool) as connection:
                rows = await connection.fetch(
                    _SQL["page"],
                    _BEFORE_ALL if before is None else before,
                    *_values(wanted),
                    limit,
                )
        except UnstorableError:
            return []  # asked for what no row can hold
        return [_stored(dict(row)) for row in rows]

    async def reasons(self, wanted: LetterFilter) -> Sequence[ReasonCount]:
        """Counts by kind and code; see the port."""
        try:
            async with acquire_connection(self._pool) as connection:
                rows = await connection.fetch(_SQL["reasons"], *_values(wanted), MAX_COUNTED)
        except UnstorableError:
            return []  # asked for what no row can hold
        return [ReasonCount(**dict(row)) for row in rows]

    async def find(self, letter_id: str) -> StoredLetter | None:
        """One letter; see the port."""
        async with acquire_connection(self._pool) as connection:
            row = await connection.fetchrow(_SQL["find"], letter_id)
        return None if row is None else _stored(dict(row))

    async def settle(
        self, letter: DeadLetter, state: LetterState, *, by: str, reason: str
    ) -> bool:
        """Settle a letter; see the port."""
        async with acquire_connection(self._pool) as connection, connection.transaction():
            status = await connection.execute(
                _SQL["settle"], letter.letter_id, state, by, reason
            )
            if not affected(status):
                return False
            if letter.webhook_id is not None and state == "redriven":
                facts = (letter.webhook_id, letter.agenda_id, letter.customer_id, letter.url)
                await connection.execute(_SQL["revive_webhook"], *facts, letter.value.decode())
            if letter.webhook_id is not None and state == "discarded":
                await connection.execute(_SQL["drop_webhook"], letter.webhook_id)
        return True


def _values(wanted: LetterFilter) -> Sequence[object]:
    """The filter as parameters of a statement; null for a field that is not set."""
    # All states are none in particular: an index by state would read each of them.
    states = () if set(wanted.states) == _STATES else wanted.states
    many = (
        wanted.ids, wanted.kinds, wanted.codes, wanted.customer_ids, wanted.insight_ids,
        wanted.agenda_ids, states,
    )  # fmt: skip
    return (*(list(one) or None for one in many), wanted.from_at, wanted.before_at)


def _row(letter: DeadLetter) -> Sequence[object]:
    return (
        letter.letter_id, letter.kind, letter.code, letter.reason, letter.part, letter.at,
        letter.customer_id, letter.insight_id, letter.agenda_id, letter.webhook_id,
        letter.sender_id, letter.url, letter.topic, letter.partition, letter.offset,
        letter.key, letter.value, letter.truncated,
        msgspec.json.encode(letter.issues) if letter.issues else None,
    )  # fmt: skip


def _stored(row: dict[str, Any]) -> StoredLetter:
    settled = {name: row.pop(name) for name in ("settled_at", "settled_by", "settled_reason")}
    number, state = row.pop("number"), row.pop("state")
    issues = row.pop("issues", None)
    letter = DeadLetter(
        offset=row.pop("record_offset"),
        key=row.pop("record_key", None),
        issues=msgspec.json.decode(issues, type=tuple[RefusedIssue, ...]) if issues else (),
        **row,
    )
    return StoredLetter(number=number, letter=letter, state=state, **settled)
