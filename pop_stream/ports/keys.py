"""API keys."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from pop_stream.model.api_keys import ApiKey
from pop_stream.model.revisions import Author


class KeyStore(Protocol):
    """API keys; every method raises UnavailableError while the database is away."""

    async def find(self, key_id: str) -> ApiKey | None:
        """The key, whatever its state; None if there is none."""
        ...

    async def keys(
        self, *, customer_id: str | None, after: str = "", limit: int
    ) -> Sequence[ApiKey]:
        """A page of keys, revoked ones too, by id.

        Args:
            customer_id: Whose; None lists everyone's.
            after: Id of the last one of the page before.
            limit: Most on the page.
        """
        ...

    async def create(self, key: ApiKey, author: Author) -> None:
        """Store a new key."""
        ...

    async def rotate(
        self, key_id: str, to: ApiKey, author: Author, *, grace: timedelta
    ) -> ApiKey:
        """Store a key with the powers and expiry of another, which ends after the grace period.

        Returns:
            The new key, as stored.

        Raises:
            NotFoundError: If there is no key to rotate.
            KeyStateError: If it has ended, or was rotated before.
        """
        ...

    async def revoke(self, key_id: str, author: Author, *, at: datetime) -> ApiKey:
        """End a key at once; one that was revoked before stays as it is.

        Raises:
            NotFoundError: If there is no such key.
        """
        ...
