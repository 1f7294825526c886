"""What the audit log keeps of a change: who, what, before and after."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pop_stream.core.identity import Principal

Action = Literal["created", "replaced", "changed", "deleted", "rotated", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who makes a change, and in which request.

    Attributes:
        request_id: The correlation id; what the log can be searched for.
    """

    principal: Principal
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one object; never holds a secret.

    Attributes:
        kind: Of the object, such as `insight` or `key`.
        before: As JSON-like values; None if there was none.
        after: Likewise; None if there is none any more.
    """

    author: Author
    action: Action
    kind: str
    object_id: str
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
