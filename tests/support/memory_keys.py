"""API keys and the audit log in memory; the contract suite holds them to their ports."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from pop_stream.model.api_keys import ApiKey, rotate
from pop_stream.model.errors import NotFoundError, UnavailableError
from pop_stream.model.revisions import DEFAULT_LIMITS, AuditRecord, Author, CustomerLimits
from pop_stream.ports.audit import AuditEntry, AuditFilter


class MemoryKeys:
    """Both ports; `is_away` makes every call fail."""

    def __init__(self, limits: CustomerLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.stored: dict[str, ApiKey] = {}
        self.log: list[AuditEntry] = []
        self.is_away = False

    async def find(self, key_id: str) -> ApiKey | None:
        self._expect_answer()
        return self.stored.get(key_id)

    async def keys(
        self, *, customer_id: str | None, after: str = "", limit: int
    ) -> Sequence[ApiKey]:
        self._expect_answer()
        found = sorted(self.stored.values(), key=lambda one: one.id)
        return [
            one for one in found if one.id > after and customer_id in {None, one.customer_id}
        ][:limit]

    async def create(self, key: ApiKey, author: Author) -> None:
        self._expect_answer()
        self._check(key, author, before=self.stored)
        self._put("created", key, author)

    async def rotate(
        self, key_id: str, to: ApiKey, author: Author, *, grace: timedelta
    ) -> ApiKey:
        old = self._known(key_id)
        new, ending = rotate(old, to, grace=grace)
        self._check(new, author, before={**self.stored, ending.id: ending})
        self._put("created", new, author)
        self._put("rotated", ending, author)
        return new

    async def revoke(self, key_id: str, author: Author, *, at: datetime) -> ApiKey:
        old = self._known(key_id)
        if old.revoked_at is not None:
            return old
        revoked = old.model_copy(update={"revoked_at": at})
        self._put("revoked", revoked, author)
        return revoked

    async def record(self, entry: AuditRecord) -> None:
        self._expect_answer()
        self._check_rate(entry.author)
        self.log.append(
            AuditEntry(
                entry_id=len(self.log) + 1,
                at=datetime.now(UTC),  # noqa: TID251  # the database's clock
                principal=entry.author.principal.name,
                customer_id=entry.author.principal.customer_id,
                request_id=entry.author.request_id,
                action=entry.action,
                kind=entry.kind,
                object_id=entry.object_id,
                before=None if entry.before is None else msgspec.json.encode(entry.before),
                after=None if entry.after is None else msgspec.json.encode(entry.after),
                reason=entry.author.reason,
            )
        )

    async def entries(
        self, wanted: AuditFilter, *, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        self._expect_answer()
        return [
            one
            for one in reversed(self.log)
            if (before is None or one.entry_id < before)
            and wanted.kind in {None, one.kind}
            and wanted.object_id in {None, one.object_id}
            and wanted.principal in {None, one.principal}
        ][:limit]

    def _check(self, new: ApiKey, author: Author, *, before: Mapping[str, ApiKey]) -> None:
        self._check_rate(author)
        if author.principal.customer_id is None:
            return
        if new.customer_id is not None:
            active = [
                one
                for one in before.values()
                if one.customer_id == new.customer_id and one.state(new.created_at) == "active"
            ]
            self.limits.check_keys(new.customer_id, len(active) + 1)

    def _check_rate(self, author: Author) -> None:
        customer_id = author.principal.customer_id
        if customer_id is not None:
            made = sum(one.customer_id == customer_id for one in self.log)
            self.limits.check_changes(customer_id, made)

    def _known(self, key_id: str) -> ApiKey:
        self._expect_answer()
        if key_id not in self.stored:
            kind = "key"
            raise NotFoundError(kind, key_id)
        return self.stored[key_id]

    def _put(self, action: str, key: ApiKey, author: Author) -> None:
        before = self.stored.get(key.id)
        self.stored[key.id] = key
        entry = AuditEntry(
            entry_id=len(self.log) + 1,
            at=datetime.now(UTC),  # noqa: TID251  # the database's clock
            principal=author.principal.name,
            customer_id=author.principal.customer_id,
            request_id=author.request_id,
            action=action,
            kind="key",
            object_id=key.id,
            before=_shown(before) if before else None,
            after=_shown(key),
        )
        self.log.append(entry)

    def _expect_answer(self) -> None:
        if self.is_away:
            msg = "postgresql://pop:secret@db:5432 refused"
            raise UnavailableError(msg)


def _shown(key: ApiKey) -> bytes:
    return msgspec.json.encode(
        key.model_dump(mode="json", exclude={"secret_sha256"}, exclude_none=True)
    )
