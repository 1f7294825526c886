"""API keys: what is known of one, what its token looks like, and whether a token fits.

A token is `pop_<id>_<secret>`. The id is public: it stands in lists, logs and the audit log.
The secret is 256 random bits, shown once, and kept as its SHA-256. That is enough: slow hashes
such as bcrypt protect secrets that people choose and that can be guessed; nobody guesses 256
random bits, and a slow hash on every request would only help those who flood us.
"""

import hashlib
import hmac
import re
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pop_stream.model.agenda import Id
from pop_stream.model.errors import (
    ForbiddenError,
    Issue,
    KeyStateError,
    SubmissionError,
    UnauthenticatedError,
)
from pop_stream.model.identity import Ownership, Principal, Role
from pop_stream.model.json_types import InstantField

KEY_ID_PATTERN: Final = r"^[a-z2-7]{16}$"
"""Eighty random bits in base 32."""

MAX_GRACE: Final = timedelta(days=30)
"""How long a key that was rotated may go on at most."""

_TOKEN: Final = re.compile(r"pop_([a-z2-7]{16})_([A-Za-z0-9_-]{43})")

KeyId = Annotated[str, StringConstraints(pattern=KEY_ID_PATTERN)]


class ApiKey(BaseModel):
    """A key as it is stored: everything but its secret.

    A definition of kind `key` in `pop.definitions` has this shape too, so that parts without
    Postgres know keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: KeyId
    secret_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="Of the secret, in hexadecimal."
    )
    customer_id: Id | None = Field(
        default=None, description="Whom it speaks for; an operator's if unset."
    )
    roles: frozenset[Role] = Field(min_length=1)
    title: Annotated[str, StringConstraints(max_length=200)] = ""
    created_at: InstantField
    created_by: str = Field(default="", description="The principal that made it.")
    expires_at: InstantField | None = None
    revoked_at: InstantField | None = None
    replaced_by: KeyId | None = Field(default=None, description="The key it was rotated to.")

    @property
    def ownership(self) -> Ownership:
        """A key is seen by those it speaks for."""
        return Ownership(self.customer_id)

    @property
    def principal(self) -> Principal:
        """Who sends a token of this key."""
        return Principal(f"key:{self.id}", self.customer_id, self.roles)

    def state(self, now: datetime) -> Literal["active", "expired", "revoked"]:
        """Whether it is good for anything."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return "active"


def token_of(key_id: str, secret: str) -> str:
    """The token that a caller sends."""
    return f"pop_{key_id}_{secret}"


def parse_token(token: str) -> tuple[str, str] | None:
    """Id and secret of a key's token; None if it is no such token."""
    match = _TOKEN.fullmatch(token)
    return (match[1], match[2]) if match else None


def digest(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def authenticate(key: ApiKey | None, secret: str, *, now: datetime) -> Principal:
    """Who sends this secret for this key.

    Raises:
        UnauthenticatedError: With one text whatever is wrong: unknown, revoked, expired, or
            another secret.
    """
    known = key.secret_sha256 if key else "0" * 64
    fits = hmac.compare_digest(known, digest(secret))
    if key is None or not fits or key.state(now) != "active":
        msg = "the key is unknown, revoked or expired"
        raise UnauthenticatedError(msg)
    return key.principal


def rotate(old: ApiKey, successor: ApiKey, *, grace: timedelta) -> tuple[ApiKey, ApiKey]:
    """Put a new key in the place of another, so that nobody gains power or time by it.

    Args:
        old: The key to replace.
        successor: Made just now; its id, secret and author count, and `created_at` is now.
        grace: How long the old key goes on beside it, at most to its own end.

    Returns:
        The successor with the powers, title and expiry of the old key, and the old key as it
        is from now on.

    Raises:
        KeyStateError: If the old key has ended or was replaced before.
    """
    now = successor.created_at
    if (state := old.state(now)) != "active":
        msg = f"key {old.id} is {state}; make a new key instead"
        raise KeyStateError(msg)
    if old.replaced_by is not None:
        msg = f"key {old.id} was replaced by {old.replaced_by}; rotate that one"
        raise KeyStateError(msg)
    kept = {"customer_id", "roles", "title", "expires_at"}
    new = successor.model_copy(update={field: getattr(old, field) for field in kept})
    ends = now + grace if old.expires_at is None else min(now + grace, old.expires_at)
    return new, old.model_copy(update={"expires_at": ends, "replaced_by": new.id})


def check_grant(granter: Principal, customer_id: str | None, roles: frozenset[Role]) -> None:
    """Check that a principal may make a key with these powers: never more than its own.

    Raises:
        ForbiddenError: If it may not.
        SubmissionError: If no key can have these roles.
    """
    if customer_id is not None and Role.ADMIN in roles:
        message = "only an operator's key can be admin; leave customer_id out, or the role"
        raise SubmissionError([Issue("roles", "admin", message)])
    if granter.is_operator and not granter.has_role(Role.ADMIN):
        msg = "this needs the role 'admin', which the caller does not have"
        raise ForbiddenError(msg)
    if not granter.speaks_for(customer_id):
        msg = f"this caller makes keys for customer {granter.customer_id!r} only"
        raise ForbiddenError(msg)
    if missing := sorted(role.value for role in roles if not granter.has_role(role)):
        msg = f"nobody grants a role that it does not have: {', '.join(missing)}"
        raise ForbiddenError(msg)
