"""Dead letters in memory; the contract suite holds them to their port."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pop_stream.policy.lifecycle.dead_letters import DeadLetter, LetterState
from pop_stream.ports.dead_letters import (
    MAX_COUNTED,
    LetterFilter,
    ReasonCount,
    StoredLetter,
)

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def dead_letter(letter_id: str = "a" * 20, **changes: Any) -> DeadLetter:
    """An exhausted agenda's letter, with changes."""
    known: dict[str, Any] = {
        "letter_id": letter_id,
        "kind": "exhausted",
        "code": "attempts_exhausted",
        "reason": "attempt 3: no such file",
        "part": "scheduler",
        "at": AT,
        "customer_id": "acme",
        "insight_id": "files",
        "agenda_id": "a1",
        "topic": "pop.insight.files",
    }
    return DeadLetter(**(known | changes))


class MemoryDeadLetters:
    """The port; `webhooks` are the ids of those that are due anew."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredLetter] = {}
        self.webhooks: list[str] = []

    async def add(self, letters: Sequence[DeadLetter]) -> None:
        for one in letters:
            number = len(self.stored) + 1
            self.stored.setdefault(one.letter_id, StoredLetter(number=number, letter=one))

    async def page(
        self, wanted: LetterFilter, *, before: int | None, limit: int
    ) -> Sequence[StoredLetter]:
        found = [
            replace(one, letter=replace(one.letter, key=None, value=b"", issues=()))
            for one in reversed(self.stored.values())
            if _fits(one, wanted) and (before is None or one.number < before)
        ]
        return found[:limit]

    async def reasons(self, wanted: LetterFilter) -> Sequence[ReasonCount]:
        groups: dict[tuple[str, str], list[DeadLetter]] = {}
        for one in await self.page(wanted, before=None, limit=MAX_COUNTED):
            letter = one.letter
            groups.setdefault((letter.kind, letter.code), []).append(letter)
        counts = [
            ReasonCount(
                kind=many[0].kind,
                code=many[0].code,
                letters=len(many),
                oldest_at=min(one.at for one in many),
                newest_at=max(one.at for one in many),
                example=many[0].reason,
            )
            for many in groups.values()
        ]
        return sorted(counts, key=lambda one: (-one.letters, one.kind, one.code))

    async def find(self, letter_id: str) -> StoredLetter | None:
        return self.stored.get(letter_id)

    async def settle(
        self, letter: DeadLetter, state: LetterState, *, by: str, reason: str
    ) -> bool:
        known = self.stored.get(letter.letter_id)
        if known is None or known.state != "open":
            return False
        self.stored[letter.letter_id] = replace(
            known,
            state=state,
            settled_at=datetime.now(UTC),  # noqa: TID251  # the database's clock
            settled_by=by,
            settled_reason=reason,
        )
        if letter.webhook_id is not None and state == "redriven":
            self.webhooks.append(letter.webhook_id)
        return True


def _fits(stored: StoredLetter, wanted: LetterFilter) -> bool:
    letter = stored.letter
    return (
        all(
            not allowed or value in allowed
            for allowed, value in (
                (wanted.ids, letter.letter_id),
                (wanted.kinds, letter.kind),
                (wanted.codes, letter.code),
                (wanted.customer_ids, letter.customer_id),
                (wanted.insight_ids, letter.insight_id),
                (wanted.agenda_ids, letter.agenda_id),
                (wanted.states, stored.state),
            )
        )
        and (wanted.from_at is None or letter.at >= wanted.from_at)
        and (wanted.before_at is None or letter.at < wanted.before_at)
    )
