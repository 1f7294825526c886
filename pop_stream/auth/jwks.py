"""The public keys that sign bearer tokens, from a URL or a file, read again in time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import jwt
import structlog
from jwt import PyJWK

from pop_stream.model.errors import UnauthenticatedError, UnavailableError
from pop_stream.ports.clock import Clock

FRESH_FOR: Final = timedelta(minutes=10)
"""After so long the set is read again, so that a key its issuer withdrew ends here too."""

STALE_FOR: Final = timedelta(hours=24)
"""How long a set serves whose source no longer answers."""

RETRY_AFTER: Final = timedelta(seconds=10)
"""Between two readings at least: tokens with made-up key ids must not flood the issuer."""

_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
_MAX_BYTES: Final = 1024 * 1024

Read = Callable[[], Awaitable[bytes]]

_log = structlog.get_logger()


class Jwks:
    """A JSON Web Key Set that follows its source.

    Args:
        read: Brings its JSON; any exception counts as a source that does not answer.
        clock: For how old the set is.
    """

    def __init__(self, read: Read, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._keys: dict[str | None, PyJWK] = {}
        self._read_at: datetime | None = None
        self._tried_at: datetime | None = None
        self._is_failing = False
        self._reading = asyncio.Lock()

    async def key(self, key_id: str | None) -> PyJWK:
        """The key with this id; without one, the only key there is.

        Raises:
            UnauthenticatedError: If the set has no such key.
            UnavailableError: If the set cannot be read, and was not lately.
        """
        if self._is_needed(key_id) and not self._can_serve_stale(key_id):
            await self._refresh(key_id)
        if self._age() > STALE_FOR:
            msg = "the keys that sign tokens cannot be read"
            raise UnavailableError(msg)
        key = self._keys.get(key_id)
        if key is None and self._tried_at != self._read_at:
            msg = "the keys that sign tokens cannot be read, and the token's is not known yet"
            raise UnavailableError(msg)
        if key is None:
            msg = "the token is signed by a key that is not known"
            raise UnauthenticatedError(msg)
        return key

    def _age(self) -> timedelta:
        return self._clock.now() - self._read_at if self._read_at else timedelta.max

    async def _refresh(self, key_id: str | None) -> None:
        async with self._reading:
            now = self._clock.now()
            if not self._is_needed(key_id) or (
                self._tried_at and now - self._tried_at < RETRY_AFTER
            ):
                return
            self._tried_at = now
            try:
                self._keys = _usable(await self._read())
                self._read_at = now
                self._is_failing = False
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                self._is_failing = True
                _log.warning("jwks.unreadable", reason=str(error) or type(error).__name__)

    def _is_needed(self, key_id: str | None) -> bool:
        return self._age() > FRESH_FOR or key_id not in self._keys

    def _can_serve_stale(self, key_id: str | None) -> bool:
        """While a failing source is being read, only the caller that reads it waits."""
        return self._is_failing and self._reading.locked() and key_id in self._keys


def jwks_reader(where: str) -> Read:
    """A reader of a key set.

    Args:
        where: A URL that begins with http:// or https://, or the path of a file.
    """
    if urlsplit(where).scheme in {"http", "https"}:
        return lambda: _fetch(where)
    return lambda: asyncio.to_thread(Path(where).read_bytes)


async def _fetch(url: str) -> bytes:
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT) as session,
        session.get(url, allow_redirects=False) as response,
    ):
        if response.status != HTTPStatus.OK:
            msg = f"{url} answered {response.status}"
            raise ValueError(msg)
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > _MAX_BYTES:
                msg = f"{url} sent more than {_MAX_BYTES} bytes"
                raise ValueError(msg)
        return bytes(content)


def _usable(content: bytes) -> dict[str | None, PyJWK]:
    """The public signing keys by id; the only one is also found without an id.

    Raises:
        ValueError: If there is none, or it is no key set.
    """
    try:
        found = jwt.PyJWKSet.from_json(content.decode()).keys
    except (jwt.PyJWTError, UnicodeDecodeError, AttributeError, TypeError) as error:
        msg = f"this is no key set: {error}"
        raise ValueError(msg) from None
    # A secret in a public document signs for everyone who reads it.
    public = [
        one for one in found if one.key_type != "oct" and one.public_key_use in {None, "sig"}
    ]
    if not public:
        msg = "the key set holds no public signing key"
        raise ValueError(msg)
    by_id: dict[str | None, PyJWK] = {one.key_id: one for one in public}
    if len(public) == 1:
        by_id[None] = public[0]
    return by_id
