"""Keys and the audit log, as clients see them."""

from datetime import datetime

import msgspec

from pop_stream.core.definitions.keys import ApiKey
from pop_stream.core.values.identity import Role
from pop_stream.ports.audit import AuditEntry
from pop_stream.shapes.base import NULL
from pop_stream.shapes.keys import AuditEntryView, KeyView, NewKey


def key_view(key: ApiKey, now: datetime) -> KeyView:
    """A key as clients see it."""
    return KeyView(
        id=key.id,
        customer_id=key.customer_id,
        roles=tuple(role for role in Role if role in key.roles),
        title=key.title,
        state=key.state(now),
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        replaced_by=key.replaced_by,
    )


def new_key_view(view: KeyView, token: str) -> NewKey:
    """A key that was made just now, as its owner sees it."""
    return NewKey(**msgspec.structs.asdict(view), token=token)


def entry_view(entry: AuditEntry) -> AuditEntryView:
    """An entry as clients see it."""
    return AuditEntryView(
        id=entry.entry_id,
        at=entry.at,
        principal=entry.principal,
        customer_id=entry.customer_id,
        request_id=entry.request_id,
        action=entry.action,
        kind=entry.kind,
        object_id=entry.object_id,
        before=msgspec.Raw(entry.before) if entry.before else NULL,
        after=msgspec.Raw(entry.after) if entry.after else NULL,
    )
