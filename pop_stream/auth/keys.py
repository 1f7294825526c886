"""API keys as callers show them: looked up, then cached for seconds; and how one is made.

A key is looked up again once what is known of it is `FRESH_FOR` old, so a revocation acts
within that time. While Postgres is away nobody can make or revoke a key, so what
`pop.definitions` last said of it counts; else a key seen within `STALE_FOR` goes on as it was.
One that is not known either way cannot be judged, which is no reason to call it wrong:
`UnavailableError`.
"""

import asyncio
import base64
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pop_stream.model import api_keys
from pop_stream.model.api_keys import ApiKey, digest, token_of
from pop_stream.model.errors import UnavailableError
from pop_stream.model.identity import Principal, Role
from pop_stream.ports.clock import Clock
from pop_stream.ports.keys import KeyStore

FRESH_FOR: Final = timedelta(seconds=2)
STALE_FOR: Final = timedelta(minutes=15)

_MAX_CACHED: Final = 10_000
_ANSWERS_WITHIN_S: Final = 2.0
_RETRY_AFTER: Final = timedelta(seconds=1)
"""After Postgres did not answer, it is left alone for so long."""


@dataclass(frozen=True, slots=True)
class _CachedKey:
    key: ApiKey
    at: datetime


class ApiKeyCache:
    """Identifies the owner of a key; caches `_MAX_CACHED` keys, least recently used first out.

    Args:
        store: The truth.
        clock: For how old an answer is.
        relayed: What `pop.definitions` last said of a key, for when Postgres is away.
    """

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        relayed: Callable[[str], ApiKey | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._relayed = relayed
        self._cached: OrderedDict[str, _CachedKey] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[ApiKey | None]] = {}
        self._unavailable_until: datetime | None = None

    async def identify(self, key_id: str, secret: str) -> Principal:
        """The principal of this key, if the secret is right.

        Raises:
            UnauthenticatedError: If nobody does.
            UnavailableError: If the key is not known and Postgres is away.
        """
        return api_keys.authenticate(await self._key(key_id), secret, now=self._clock.now())

    async def _key(self, key_id: str) -> ApiKey | None:
        now, cached = self._clock.now(), self._cached.get(key_id)
        if cached is not None:
            self._cached.move_to_end(key_id)
            if now - cached.at < FRESH_FOR:
                return cached.key
        try:
            return await self._lookup(key_id, now)
        except UnavailableError:
            remembered = cached.key if cached and now - cached.at <= STALE_FOR else None
            found = [one for one in (remembered, self._relayed(key_id)) if one is not None]
            if not found:
                raise
            # Either may be the older one; a revocation that is known of counts.
            return next((one for one in found if one.revoked_at is not None), found[-1])

    async def _lookup(self, key_id: str, now: datetime) -> ApiKey | None:
        """Ask Postgres; concurrent lookups of the same key share one query."""
        if self._unavailable_until is not None and now < self._unavailable_until:
            msg = "the database of keys does not answer"
            raise UnavailableError(msg)
        lookup = self._lookups.get(key_id)
        if lookup is None:
            lookup = self._lookups[key_id] = asyncio.create_task(self._fetch(key_id))
            lookup.add_done_callback(lambda _: self._lookups.pop(key_id, None))
        # Shielded: a caller who leaves must not take the answer from the others.
        return await asyncio.shield(lookup)

    async def _fetch(self, key_id: str) -> ApiKey | None:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                key = await self._store.find(key_id)
        except (TimeoutError, UnavailableError) as error:
            self._unavailable_until = self._clock.now() + _RETRY_AFTER
            msg = "the database of keys does not answer"
            raise UnavailableError(msg) from error
        self._store_key(key_id, key)
        return key

    def _store_key(self, key_id: str, key: ApiKey | None) -> None:
        if key is None:
            self._cached.pop(key_id, None)
            return
        self._cached[key_id] = _CachedKey(key, self._clock.now())
        self._cached.move_to_end(key_id)
        if len(self._cached) > _MAX_CACHED:
            self._cached.popitem(last=False)


def make_key(
    *,
    customer_id: str | None,
    roles: frozenset[Role],
    now: datetime,
    created_by: str,
    title: str = "",
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its token, which is shown to its owner once and stored nowhere."""
    key_id = base64.b32encode(secrets.token_bytes(10)).decode().lower()
    secret = secrets.token_urlsafe(32)
    key = ApiKey(
        id=key_id,
        secret_sha256=digest(secret),
        customer_id=customer_id,
        roles=roles,
        title=title,
        created_at=now,
        created_by=created_by,
        expires_at=expires_at,
    )
    return key, token_of(key_id, secret)
