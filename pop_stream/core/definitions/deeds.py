"""What the audit log keeps of what was done: who, what, before and after."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pop_stream.core.values.identity import Principal

AuditAction = Literal["created", "replaced", "changed", "deleted", "rotated", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who does it, and in which request.

    Attributes:
        request_id: The correlation id; what the log can be searched for.
    """

    principal: Principal
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One change of one object, as the audit log keeps it; never holds a secret.

    Attributes:
        kind: Of the object, such as `insight` or `key`.
        before: As JSON-like values; None if there was none.
        after: Likewise; None if there is none any more.
    """

    author: Author
    action: AuditAction
    kind: str
    object_id: str
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
