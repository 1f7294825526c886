"""Keys as callers show them: looked up, then remembered for a moment.

A key is asked for anew once what is known of it is `FRESH_FOR` old, so a revocation acts
within that time. While Postgres is away, what `pop.definitions` last told of it counts, for
nobody can make or revoke a key then; else a key seen within `USABLE_FOR` goes on as it was. One
that is not known either way cannot be judged, which is no reason to call it wrong.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pop_stream.core.definitions import keys
from pop_stream.core.definitions.keys import ApiKey
from pop_stream.core.errors import UnavailableError
from pop_stream.core.values.identity import Principal
from pop_stream.ports.clock import Clock
from pop_stream.ports.keys import KeyStore

FRESH_FOR: Final = timedelta(seconds=2)
USABLE_FOR: Final = timedelta(minutes=15)

_MOST_KNOWN: Final = 10_000
_ANSWERS_WITHIN_S: Final = 2.0
_REST: Final = timedelta(seconds=1)
"""After Postgres did not answer, it is left alone for so long."""


@dataclass(frozen=True, slots=True)
class _Known:
    key: ApiKey
    at: datetime


class KeyBook:
    """Tells whose key it is; at most `_MOST_KNOWN` keys are remembered, the latest used.

    Args:
        store: The truth.
        clock: For how old an answer is.
        told: What was last told of a key, for when the truth cannot be asked.
    """

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        told: Callable[[str], ApiKey | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._told = told
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._looks: dict[str, asyncio.Task[ApiKey | None]] = {}
        self._away_until: datetime | None = None

    async def identify(self, key_id: str, secret: str) -> Principal:
        """Who sends this secret for this key.

        Raises:
            UnauthenticatedError: If nobody does.
            UnavailableError: If the key is not known and Postgres is away.
        """
        return keys.authenticate(await self._key(key_id), secret, now=self._clock.now())

    async def _key(self, key_id: str) -> ApiKey | None:
        now, known = self._clock.now(), self._known.get(key_id)
        if known is not None:
            self._known.move_to_end(key_id)
            if now - known.at < FRESH_FOR:
                return known.key
        try:
            return await self._look(key_id, now)
        except UnavailableError:
            remembered = known.key if known and now - known.at <= USABLE_FOR else None
            found = [one for one in (remembered, self._told(key_id)) if one is not None]
            if not found:
                raise
            # Either may be the older one; a revocation that is known of counts.
            return next((one for one in found if one.revoked_at is not None), found[-1])

    async def _look(self, key_id: str, now: datetime) -> ApiKey | None:
        """Ask Postgres; callers who want to know the same at the same time share the answer."""
        if self._away_until is not None and now < self._away_until:
            msg = "the database of keys does not answer"
            raise UnavailableError(msg)
        look = self._looks.get(key_id)
        if look is None:
            look = self._looks[key_id] = asyncio.create_task(self._ask(key_id))
            look.add_done_callback(lambda _: self._looks.pop(key_id, None))
        # Shielded: a caller who leaves must not take the answer from the others.
        return await asyncio.shield(look)

    async def _ask(self, key_id: str) -> ApiKey | None:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                key = await self._store.find(key_id)
        except (TimeoutError, UnavailableError) as error:
            self._away_until = self._clock.now() + _REST
            msg = "the database of keys does not answer"
            raise UnavailableError(msg) from error
        self._remember(key_id, key)
        return key

    def _remember(self, key_id: str, key: ApiKey | None) -> None:
        if key is None:
            self._known.pop(key_id, None)
            return
        self._known[key_id] = _Known(key, self._clock.now())
        self._known.move_to_end(key_id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
