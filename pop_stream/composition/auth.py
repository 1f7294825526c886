"""Composes who authenticates callers and senders, as the settings ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pop_stream.auth.jwks import Jwks, jwks_reader
from pop_stream.auth.keys import ApiKeyCache
from pop_stream.auth.tokens import CredentialVerifier, TokenRules, TokenVerifier
from pop_stream.clock import WallClock
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.postgres.keys import PostgresKeys
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncIterator[PostgresKeys]:
    """The API keys in Postgres, for a command that works without the API."""
    async with open_pool(settings) as pool:
        yield PostgresKeys(pool)


def credentials(
    settings: Settings, pool: "Pool", definitions: DefinitionFollower
) -> CredentialVerifier:
    """What verifies keys and tokens, with or without Postgres."""
    keys = ApiKeyCache(PostgresKeys(pool), WallClock(), definitions.api_key)
    return CredentialVerifier(keys, token_verifier(settings))


def token_verifier(settings: Settings) -> TokenVerifier | None:
    """What verifies tokens of the issuer that the settings name; None if they name none."""
    if settings.jwt_issuer is None or settings.jwt_jwks is None:
        return None
    rules = TokenRules(
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        algorithms=settings.jwt_algorithms,
        leeway=settings.jwt_leeway,
        customer_claim=settings.jwt_customer_claim,
        roles_claim=settings.jwt_roles_claim,
    )
    return TokenVerifier(rules, Jwks(jwks_reader(settings.jwt_jwks), WallClock()))
