"""API keys and the audit log, as they are requested and shown."""

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.model.agenda import Id
from pop_stream.model.api_keys import MAX_GRACE
from pop_stream.model.identity import Role
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField

MAX_PAGE_SIZE: Final = 500
"""Most keys or entries of one page."""

Json = Annotated[msgspec.Raw, Meta(description="Any JSON; null if there was none.")]


def _allow_duplicates(schema: dict[str, Any]) -> None:
    schema.pop("uniqueItems")


class KeyRequest(BaseModel):
    """A request for a new key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    customer_id: Id | None = Field(
        default=None,
        description="Whom it speaks for. Left out by a customer, itself; by an operator, "
        "everyone.",
    )
    roles: frozenset[Role] = Field(
        min_length=1,
        description="None that the caller has not; one given twice counts once.",
        json_schema_extra=_allow_duplicates,
    )
    title: Annotated[str, StringConstraints(max_length=200)] = ""
    expires_at: InstantField | None = None


class Rotation(BaseModel):
    """How a key is replaced."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grace_s: Annotated[int, Field(ge=0, le=int(MAX_GRACE.total_seconds())), WHOLE_NUMBER] = (
        Field(
            default=int(timedelta(hours=1).total_seconds()),
            description="How long the old key goes on beside the new one.",
        )
    )


class CallerView(ResponseModel, frozen=True):
    """Who the API takes the caller for.

    Attributes:
        name: Of its key, or the subject of its token.
        customer_id: Whom it speaks for; null is an operator.
        roles: Those that it has, `admin` written out.
    """

    name: str
    customer_id: str | None
    roles: tuple[Role, ...]


class KeyView(ResponseModel, frozen=True):
    """A key, without its secret.

    Attributes:
        customer_id: Whom it speaks for; null is an operator.
        replaced_by: The key it was rotated to.
    """

    id: str
    customer_id: str | None
    roles: tuple[Role, ...]
    title: str
    state: Literal["active", "expired", "revoked"]
    created_at: Instant
    created_by: str
    expires_at: Instant | None
    revoked_at: Instant | None
    replaced_by: str | None


class NewKey(KeyView, frozen=True):
    """A key that was made just now.

    Attributes:
        token: What its owner sends; shown here, once, and nowhere again.
    """

    token: str


class KeyList(ResponseModel, frozen=True):
    """A page of keys, by id.

    Attributes:
        next: The `after` of the next page; null on the last.
    """

    keys: list[KeyView]
    next: str | None


class AuditEntryView(ResponseModel, frozen=True):
    """Who changed what, when.

    Attributes:
        id: Of the entry; newer ones have higher ids.
        customer_id: Whom the principal speaks for; null is an operator.
        request_id: The correlation id of the request; finds it in the log.
        reason: In the words of whoever made the change; may be empty.
    """

    id: int
    at: Instant
    principal: str
    customer_id: str | None
    request_id: str
    action: str
    kind: str
    object_id: str
    before: Json
    after: Json
    reason: str


class AuditList(ResponseModel, frozen=True):
    """A page of the audit log, newest first.

    Attributes:
        next: The `before` of the next page; null on the last.
    """

    entries: list[AuditEntryView]
    next: int | None
