"""Bearer tokens of an issuer elsewhere, what their claims mean here, and who a header names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import jwt
from pydantic import TypeAdapter, ValidationError

from pop_stream.auth.jwks import Jwks
from pop_stream.auth.keys import ApiKeyCache
from pop_stream.model.agenda import Id
from pop_stream.model.api_keys import parse_token
from pop_stream.model.errors import UnauthenticatedError
from pop_stream.model.identity import Principal, Role

ALL_CUSTOMERS: Final = "*"
"""As the customer claim's value: the token is an operator's."""

_MAX_CHARACTERS: Final = 16 * 1024
_ID: Final = TypeAdapter(Id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must fulfil.

    Attributes:
        issuer: Of its claim `iss`.
        audience: Among its claim `aud`.
        algorithms: Those that may sign it; only such with a public key.
        leeway: By how much its issuer's clock may differ from ours.
        customer_claim: Name of the claim with the customer's id, or `*` for an operator.
        roles_claim: Name of the claim with the roles: a list, or a text with blanks between.
    """

    issuer: str
    audience: str
    algorithms: Sequence[str]
    leeway: timedelta
    customer_claim: str
    roles_claim: str


class TokenVerifier:
    """Identifies the principal of a token."""

    def __init__(self, rules: TokenRules, keys: Jwks) -> None:
        self._rules = rules
        self._keys = keys

    async def identify(self, token: str) -> Principal:
        """The principal of the token.

        Raises:
            UnauthenticatedError: If its form, signature, times or claims do not hold.
            UnavailableError: If the keys of its issuer cannot be read.
        """
        if len(token) > _MAX_CHARACTERS:
            msg = f"a token may have {_MAX_CHARACTERS} characters at most"
            raise UnauthenticatedError(msg)
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in self._rules.algorithms:
                msg = f"a token must be signed with one of {', '.join(self._rules.algorithms)}"
                raise UnauthenticatedError(msg)
            key = await self._keys.key(header.get("kid"))
            claims = self._claims(token, key)
        except jwt.PyJWTError as error:
            msg = f"the token does not hold: {error}"
            raise UnauthenticatedError(msg) from None
        return _principal(claims, self._rules)

    def _claims(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(self._rules.algorithms),
            audience=self._rules.audience,
            issuer=self._rules.issuer,
            leeway=self._rules.leeway,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims


def _principal(claims: Mapping[str, Any], rules: TokenRules) -> Principal:
    customer_id = claims.get(rules.customer_claim)
    if customer_id == ALL_CUSTOMERS:
        return Principal(_name(claims), None, _roles(claims, rules))
    try:
        customer_id = _ID.validate_python(customer_id, strict=True)
    except ValidationError:
        msg = f"the token's claim {rules.customer_claim!r} names no customer"
        raise UnauthenticatedError(msg) from None
    return Principal(_name(claims), customer_id, _roles(claims, rules))


def _name(claims: Mapping[str, Any]) -> str:
    return f"jwt:{claims['sub']}"[:200]


def _roles(claims: Mapping[str, Any], rules: TokenRules) -> frozenset[Role]:
    """The roles that are ours; a token may carry others for other services."""
    named = claims.get(rules.roles_claim, ())
    if isinstance(named, str):
        named = named.split()
    if not isinstance(named, list | tuple):
        msg = f"the token's claim {rules.roles_claim!r} must be a list of roles, or a text"
        raise UnauthenticatedError(msg)
    known = {role.value: role for role in Role}
    return frozenset(known[one] for one in named if isinstance(one, str) and one in known)


_SCHEME: Final = "bearer"


class CredentialVerifier:
    """Takes API keys, and tokens of an issuer if there is one; both as `Bearer`."""

    def __init__(self, keys: ApiKeyCache, tokens: TokenVerifier | None = None) -> None:
        self._keys = keys
        self._tokens = tokens

    async def identify(self, authorization: str | None) -> Principal:
        """Who the header belongs to.

        Raises:
            UnauthenticatedError: If it identifies nobody.
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
    if not token.isascii():
        msg = "a key or a token is plain ASCII; send it as it was given out"
        raise UnauthenticatedError(msg)
    return token.strip()
