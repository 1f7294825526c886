"""Makes keys; the only place where a secret comes into being."""

import base64
import secrets
from datetime import datetime

from pop_stream.core.definitions.keys import ApiKey, digest, token_of
from pop_stream.core.values.identity import Role


def make_key(
    *,
    customer_id: str | None,
    roles: frozenset[Role],
    now: datetime,
    created_by: str,
    title: str = "",
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """A new key, and its token, which must be shown to its owner and then forgotten."""
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
