"""Revisions of one definition: what it becomes, decided from what it is and nothing else.

With what the audit log keeps of each: who did what, before and after.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec
from pydantic import ValidationError

from pop_stream.model.definitions import KINDS, Definition, Insight, Kind, kind_of
from pop_stream.model.errors import (
    DefinitionError,
    ExistsError,
    Issue,
    LimitError,
    NotFoundError,
    PreconditionError,
    RateLimitError,
)
from pop_stream.model.identity import Principal
from pop_stream.model.sharing import SharedDefinition
from pop_stream.model.validation import issues_of, shorten

_SECONDS_AN_HOUR: Final = 3_600

READ_ONLY: Final = frozenset({"version", "created_at", "updated_at", "insight_ids"})
"""What is shown with a definition and ignored when it is sent back."""


@dataclass(frozen=True, slots=True)
class VersionedDefinition:
    """A definition as it is kept.

    Attributes:
        version: Grows by one with every change, deletions included; never taken twice.
    """

    definition: Definition
    version: int
    created_at: datetime
    updated_at: datetime

    @property
    def kind(self) -> Kind:
        """Of the definition."""
        return kind_of(self.definition)

    def as_seen_by(self, customer_id: str | None) -> "VersionedDefinition":
        """What a customer, or an operator (None), is shown of it."""
        if not isinstance(self.definition, SharedDefinition):
            return self
        return replace(self, definition=self.definition.as_seen_by(customer_id))


RevisionFunction: TypeAlias = Callable[[VersionedDefinition | None], Definition | None]
"""From what there is to what there is to be; None is nothing. May be asked more than once."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of the definition with this kind and id."""

    kind: Kind
    object_id: str
    decide: RevisionFunction


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must hold for a change to be made.

    Attributes:
        versions: It is in one of these; None sets no condition.
        exists: True or False demand that it does, or does not; None leaves it open.
    """

    versions: frozenset[int] | None = None
    exists: bool | None = None

    def check(self, stored: VersionedDefinition | None) -> None:
        """Check it.

        Raises:
            PreconditionError: If it does not hold.
        """
        if self.exists is False and stored is not None:
            msg = f"it exists, in version {stored.version}, and If-None-Match asks that it not"
            raise PreconditionError(msg)
        if self.exists and stored is None:
            msg = "it does not exist, and If-Match asks that it do"
            raise PreconditionError(msg)
        if self.versions is None:
            return
        if stored is None or stored.version not in self.versions:
            now = "does not exist" if stored is None else f"is in version {stored.version}"
            msg = f"it {now}, not in the version that If-Match names; read it, and try again"
            raise PreconditionError(msg)


ALWAYS: Final = Precondition()


def parse_definition(kind: Kind, object_id: str, content: Mapping[str, object]) -> Definition:
    """A definition of this id from what a client sent.

    Args:
        kind: What it is to be.
        object_id: Its id; one in the content must be the same.
        content: Its fields; read-only ones are ignored.

    Raises:
        DefinitionError: With one issue per fault.
    """
    fields = {key: value for key, value in content.items() if key not in READ_ONLY}
    named = fields.setdefault("id", object_id)
    if named != object_id:
        message = f"the path says {object_id!r}; send the same, or leave it out"
        raise DefinitionError(kind, [Issue("id", shorten(named), message)])
    try:
        # As JSON, and strictly: "0" is no false, and a list is a tuple all the same.
        return KINDS[kind].model_validate_json(msgspec.json.encode(fields), strict=True)
    except ValidationError as error:
        raise DefinitionError(kind, issues_of(error, document=kind)) from None


def create(definition: Definition) -> Revision:
    """Define something that must not exist yet."""

    def decide(stored: VersionedDefinition | None) -> Definition:
        if stored is not None:
            raise ExistsError(stored.kind, definition.id, stored.version)
        return definition

    return Revision(kind_of(definition), definition.id, decide)


def put(definition: Definition, condition: Precondition = ALWAYS) -> Revision:
    """Define something, in the place of what there may be."""

    def decide(stored: VersionedDefinition | None) -> Definition:
        condition.check(stored)
        if stored is not None:
            _check_changeable(stored.definition, definition)
        return definition

    return Revision(kind_of(definition), definition.id, decide)


def patch(
    kind: Kind, object_id: str, content: Mapping[str, object], condition: Precondition = ALWAYS
) -> Revision:
    """Change fields as a JSON merge patch says; null takes a field back to its default.

    Source: RFC 7396.
    """

    def decide(stored: VersionedDefinition | None) -> Definition:
        if stored is None:
            raise NotFoundError(kind, object_id)
        condition.check(stored)
        if "id" in content and content["id"] is None:
            message = "it cannot be taken away; leave it out"
            raise DefinitionError(kind, [Issue("id", "null", message)])
        before = stored.definition.model_dump(mode="json", exclude_defaults=True)
        wanted = parse_definition(kind, object_id, apply_merge_patch(before, content))
        _check_changeable(stored.definition, wanted)
        return wanted

    return Revision(kind, object_id, decide)


def remove(kind: Kind, object_id: str, condition: Precondition = ALWAYS) -> Revision:
    """Delete what must exist."""

    def decide(stored: VersionedDefinition | None) -> None:
        if stored is None:
            raise NotFoundError(kind, object_id)
        condition.check(stored)

    return Revision(kind, object_id, decide)


def apply_merge_patch(target: object, content: Mapping[str, object]) -> dict[str, object]:
    """The target with a JSON merge patch applied; neither argument is changed.

    Source: RFC 7396, section 2.
    """
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in content.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = apply_merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def _check_changeable(before: Definition, after: Definition) -> None:
    """Refuse what a running insight cannot follow."""
    if not isinstance(before, Insight) or not isinstance(after, Insight):
        return
    if before.pool != after.pool:
        message = (
            f"cannot change from {before.pool!r}: its backlog could not follow; define a new "
            "insight in that pool and move the mappers to it"
        )
        raise DefinitionError(kind_of(after), [Issue("pool", shorten(after.pool), message)])
    if after.group_type != before.group_type:
        message = (
            f"cannot change from {before.group_type!r}: what was emitted lies on the topic of "
            "that group; define a new insight and move the mappers to it"
        )
        raise DefinitionError(
            kind_of(after), [Issue("group_type", shorten(after.group_type), message)]
        )
    if after.partitions < before.partitions:
        message = (
            f"cannot shrink from {before.partitions}: Kafka's topics only grow; keep "
            f"{before.partitions} or more, or define a new insight and move the mappers to it"
        )
        wanted = Issue("partitions", str(after.partitions), message)
        raise DefinitionError(kind_of(after), [wanted])


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerLimits:
    """How much each customer may keep and change; operators may more.

    Attributes:
        templates: Of one owner.
        schedules: Likewise.
        rules: In all, whoever defines them.
        keys: That speak for it and have not ended.
        changes_per_hour: Of definitions and keys; each leaves an entry in the audit log.
        versions: Of one definition that are kept; older ones go once they are published.
    """

    templates: int = 1_000
    schedules: int = 1_000
    rules: int = 100
    keys: int = 100
    changes_per_hour: int = 1_000
    versions: int = 100

    def check_owned(self, customer_id: str, kind: Kind, there_are: int) -> None:
        """Check how many templates or schedules there are with a new one.

        Raises:
            LimitError: If these are too many.
        """
        most = self.schedules if kind == "schedule" else self.templates
        if there_are > most:
            raise LimitError(customer_id, f"{kind}s", most, f"POP_MAX_{kind.upper()}S")

    def check_rules(self, there_are: int) -> None:
        """Check how many there are with a new one.

        Raises:
            LimitError: If these are too many.
        """
        if there_are > self.rules:
            raise LimitError(None, "rules", self.rules, "POP_MAX_RULES")

    def check_keys(self, customer_id: str, there_are: int) -> None:
        """Check how many have not ended with a new one.

        Raises:
            LimitError: If these are too many.
        """
        if there_are > self.keys:
            raise LimitError(customer_id, "keys", self.keys, "POP_MAX_KEYS")

    def check_changes(self, customer_id: str, in_last_hour: int) -> None:
        """Check how many changes it made before another one.

        Raises:
            RateLimitError: If there may be no other yet.
        """
        if in_last_hour >= self.changes_per_hour:
            raise RateLimitError(
                customer_id,
                "changes in the last hour",
                self.changes_per_hour,
                "POP_MAX_CHANGES_PER_HOUR",
                retry_after_s=_SECONDS_AN_HOUR / self.changes_per_hour,
            )


DEFAULT_LIMITS: Final = CustomerLimits()


AuditAction = Literal[
    "created",
    "replaced",
    "changed",
    "deleted",
    "rotated",
    "revoked",
    "commanded",
    "finished",
    "approved",
    "rejected",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who does it, in which request, and why.

    Attributes:
        request_id: The correlation id; what the log can be searched for.
        reason: In its own words; may be empty.
    """

    principal: Principal
    request_id: str
    reason: str = ""


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
