"""Calls for API keys and the audit log."""

from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta
from typing import Final

from pop_stream.api_models.keys import AuditEntryView, AuditList, KeyList, KeyView, NewKey
from pop_stream.client.content import to_json
from pop_stream.client.transport import Calls, Query
from pop_stream.model.identity import Role

_PAGE: Final = 500


class KeyCalls(Calls):
    """API keys."""

    async def all(self, *, customer_id: str | None = None) -> AsyncIterator[KeyView]:
        """All keys that the caller sees, revoked ones too, by id; never their secrets.

        Args:
            customer_id: Only this customer's; all of them if None.

        Raises:
            ApiError: If there is no answer.
        """
        after: str | None = None
        while True:
            page = await self.page(customer_id=customer_id, after=after)
            for key in page.keys:
                yield key
            after = page.next
            if after is None:
                return

    async def page(
        self,
        *,
        customer_id: str | None = None,
        limit: int = _PAGE,
        after: str | None = None,
    ) -> KeyList:
        """One page of these.

        Args:
            customer_id: Only this customer's; all of them if None.
            limit: 1 to 500.
            after: `next` of the page before.

        Raises:
            ApiError: If there is no answer.
        """
        query = _query(customer_id=customer_id, limit=limit, after=after)
        return await self._transport.read(KeyList, "keys", query=query)

    async def get(self, key_id: str) -> KeyView:
        """A key, without its secret.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._transport.read(KeyView, "keys", key_id)

    async def create(
        self,
        roles: Collection[Role],
        *,
        customer_id: str | None = None,
        title: str = "",
        expires_at: datetime | None = None,
    ) -> NewKey:
        """Make a key; its token is shown here and nowhere again.

        Args:
            roles: None that the caller has not.
            customer_id: Whom it speaks for. None is a customer's own, or an operator's.
            title: What it is for.
            expires_at: When it ends.

        Raises:
            ForbiddenError: If the caller may not make such a key.
            ApiRefusedError: If a field is wrong; `issues` say which.
            ApiError: If there is no answer.
        """
        wish = {
            "roles": sorted(roles),
            "customer_id": customer_id,
            "title": title,
            "expires_at": expires_at,
        }
        return await self._transport.post(
            NewKey, "keys", body=to_json(wish), is_repeatable=False
        )

    async def rotate(self, key_id: str, *, grace: timedelta = timedelta(hours=1)) -> NewKey:
        """Make a key with the same powers; the old one goes on for a while.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiRefusedError: If it has ended.
            ApiError: If there is no answer.
        """
        wish = {"grace_s": int(grace.total_seconds())}
        return await self._transport.post(
            NewKey, "keys", key_id, "rotate", body=to_json(wish), is_repeatable=False
        )

    async def revoke(self, key_id: str) -> KeyView:
        """End a key at once.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._transport.post(KeyView, "keys", key_id, "revoke", is_repeatable=True)


class AuditCalls(Calls):
    """The audit log, which admins read."""

    async def all(
        self,
        *,
        kind: str | None = None,
        object_id: str | None = None,
        principal: str | None = None,
    ) -> AsyncIterator[AuditEntryView]:
        """Who changed what, newest first; for the arguments see `page`.

        Raises:
            ApiError: If there is no answer.
        """
        before: int | None = None
        while True:
            page = await self.page(
                kind=kind, object_id=object_id, principal=principal, before=before
            )
            for entry in page.entries:
                yield entry
            before = page.next
            if before is None:
                return

    async def page(
        self,
        *,
        kind: str | None = None,
        object_id: str | None = None,
        principal: str | None = None,
        limit: int = _PAGE,
        before: int | None = None,
    ) -> AuditList:
        """One page of the log.

        Args:
            kind: Of objects of this kind, such as `insight`.
            object_id: Of objects with this id.
            principal: By this principal.
            limit: 1 to 500.
            before: `next` of the page before.

        Raises:
            ApiError: If there is no answer.
        """
        query = _query(
            kind=kind, object_id=object_id, principal=principal, limit=limit, before=before
        )
        return await self._transport.read(AuditList, "audit", query=query)


def _query(**values: str | int | None) -> Query:
    return [(name, str(value)) for name, value in values.items() if value is not None]
