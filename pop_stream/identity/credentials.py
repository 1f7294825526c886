"""Who sends a request, from the value of its header `Authorization`."""

from typing import Final

from pop_stream.core.definitions.keys import parse_token
from pop_stream.core.errors import UnauthenticatedError
from pop_stream.core.values.identity import Principal
from pop_stream.identity.key_book import ApiKeyCache
from pop_stream.identity.tokens import TokenVerifier

_SCHEME: Final = "bearer"


class CredentialVerifier:
    """Takes API keys, and tokens of an issuer if there is one; both as `Bearer`."""

    def __init__(self, keys: ApiKeyCache, tokens: TokenVerifier | None = None) -> None:
        self._keys = keys
        self._tokens = tokens

    async def identify(self, authorization: str | None) -> Principal:
        """Who the header belongs to.

        Raises:
            UnauthenticatedError: If nobody can be told from it.
            UnavailableError: If that cannot be found out now.
        """
        token = bearer_token(authorization)
        if key := parse_token(token):
            return await self._keys.identify(*key)
        if self._tokens is None or token.count(".") != 2:  # noqa: PLR2004  # header.claims.signature
            msg = "the token is neither a key (`pop_...`) nor a token of a known issuer"
            raise UnauthenticatedError(msg)
        return await self._tokens.identify(token)


def bearer_token(authorization: str | None) -> str:
    """The token in a header's value.

    Raises:
        UnauthenticatedError: If there is none.
    """
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() != _SCHEME or not token.strip():
        msg = "send `Authorization: Bearer <key or token>`; `pop-stream key create` makes a key"
        raise UnauthenticatedError(msg)
    return token.strip()
