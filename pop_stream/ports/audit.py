"""The audit log: who changed what, when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pop_stream.model.revisions import AuditRecord


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change.

    Attributes:
        entry_id: Grows with time, roughly.
        before: JSON; None if the object did not exist.
        after: JSON; None if it was deleted.
        reason: In the words of whoever made it; may be empty.
    """

    entry_id: int
    at: datetime
    principal: str
    customer_id: str | None
    request_id: str
    action: str
    kind: str
    object_id: str
    before: bytes | None
    after: bytes | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects changes; None matches any."""

    kind: str | None = None
    object_id: str | None = None
    principal: str | None = None


class AuditLog(Protocol):
    """Reads the audit log; writes what is no part of a change of a row."""

    async def record(self, entry: AuditRecord) -> None:
        """Write an entry, before what it says is done.

        Raises:
            RateLimitError: If a customer made as many changes lately as it may.
            UnavailableError: If the database is away.
        """
        ...

    async def entries(
        self, wanted: AuditFilter, *, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        """A page of changes, newest first, older than the entry `before` if one is given.

        Raises:
            UnavailableError: If the database is away.
        """
        ...
