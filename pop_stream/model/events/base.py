"""The bases of all wire types, and small types that several events carry.

Instants and numbers are bounded here, for anyone may write to a public topic: whatever can be
read can also be reckoned with, stored in a row and written again.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec.structs import fields

from pop_stream.model.json_types import check_instant

AttemptOutcome = Literal["succeeded", "failed", "stopped", "deferred"]
OperationState = Literal["waiting", "running", "succeeded", "failed"]

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""With an offset on the wire: without one it could not be compared with others."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
"""A number of things, or of an attempt; its sum with another fits a row too."""

Priority = Annotated[int, msgspec.Meta(ge=1, le=9)]
MAX_RANK: Final = 2**32 - 1
"""Holds an instant in seconds since the epoch, until 2106."""

Rank = Annotated[int, msgspec.Meta(ge=0, le=MAX_RANK)]

LeaseMs = Annotated[int, msgspec.Meta(ge=0, le=604_800_000)]
"""At most a week."""

WorkerSeconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""What an operation took; sums of millions of them stay exact enough."""


def _tag(class_name: str) -> str:
    words = "".join(f".{c.lower()}" if c.isupper() else c for c in class_name)
    return words.removeprefix(".")


class Struct(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Base of all wire types: immutable; absent fields take their defaults.

    The garbage collector does not track them: what never changes cannot be in a cycle.
    """

    def __post_init__(self) -> None:
        """Check the instants; called when one is read, too: then the record is unreadable."""
        for name in _instants_of(type(self)):
            if (instant := getattr(self, name)) is not None:
                check_instant(instant)


_INSTANT_FIELDS: Final[dict[type[Struct], tuple[str, ...]]] = {}


def _instants_of(kind: type[Struct]) -> tuple[str, ...]:
    """Names of the fields that hold an instant; found once for each class."""
    names = _INSTANT_FIELDS.get(kind)
    if names is None:
        names = _INSTANT_FIELDS[kind] = tuple(
            one.name
            for one in fields(kind)
            if datetime in (one.type, *get_args(one.type)) or Instant in get_args(one.type)
        )
    return names


class Event(Struct, frozen=True, tag_field="type", tag=_tag):
    """Base of all events; the tag of `AgendaEmitted` is `agenda.emitted`."""


class Diagnostic(Struct, frozen=True):
    """A message of a handler or a part for people."""

    message: str
    at: Instant
    code: str = ""
    detail: Any = None


class PriorProgress(Struct, frozen=True):
    """How far an operation was when an earlier attempt ended before it succeeded.

    Attributes:
        diagnostics: What had been reported of it by then.
    """

    attempt: Count
    state: OperationState
    percent: float = 0.0
    message: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()


WaitKind = Literal["check", "sleep", "signal", "approval", "completion"]
"""What an operation that waits is waiting for: that its own check succeeds, an instant, a
signal, a person, or its completion from outside."""


class OperationWait(Struct, frozen=True):
    """What an operation waits for that ended its attempt without failing.

    Attributes:
        since: When the operation first waited, in this run of its agenda.
        until: When it is looked at again.
        kind: What for.
        signal: The name of the signal that ends the wait; empty where none does.
        gives_up_at: When the wait is over its time-out.
        token: The digest of the token that completes the operation; empty where none does.
    """

    since: Instant
    until: Instant
    kind: WaitKind
    signal: str = ""
    gives_up_at: Instant | None = None
    token: str = ""


class OperationProgress(Struct, frozen=True):
    """The state of one operation in one attempt; replaces the state before.

    Attributes:
        tries: How many were begun in this attempt; a later try counts as further.
        diagnostics: What its handler reported, and why each failed try did; the last ones.
        reported_at: Of two reports that are equally far, the later counts; absent, `at` of the
            event.
        prior: Filled in by the fold when a later attempt begins the operation anew.
        wait: Of one that waits and has given its runner back; kept by later attempts, so that
            its time-out counts from its first wait.
    """

    name: str
    state: OperationState
    percent: float = 0.0
    message: str = ""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    diagnostics: tuple[Diagnostic, ...] = ()
    reported_at: Instant | None = None
    tries: Count = 1
    prior: PriorProgress | None = None
    wait: OperationWait | None = None


DuplicatePhase = Literal["waiting", "running"]
OnDuplicate = Literal["refuse", "keep", "replace", "update", "reprioritise", "debounce"]


class DedupeRule(Struct, frozen=True, array_like=True):
    """By which key an agenda is a duplicate, of what, and what happens then.

    Attributes:
        key: A hash that only agendas of one customer share.
        during: Of what is there: as long as it waits, or until it has ended.
        within_s: Also for so long after it has run; 0 for no longer.
        debounce_s: How long it waits for a duplicate; 0 if it does not.
    """

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    during: DuplicatePhase = "running"
    on_duplicate: OnDuplicate = "refuse"
    within_s: Annotated[float, msgspec.Meta(ge=0, le=1e8)] = 0.0
    debounce_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0


class Duplicate(Struct, frozen=True, array_like=True):
    """What an agenda with a key would be a duplicate of, and when perhaps no more."""

    key: str
    agenda_id: str
    retry_after_s: float


class Overdeclared(Struct, frozen=True, array_like=True):
    """A declared cost far beyond what is usual with its customer, and what it counts as."""

    declared_s: float
    counts_as_s: float


class HealthValue(Struct, frozen=True, array_like=True):
    """What somebody reports of an insight's health.

    Attributes:
        coefficient: By which its cap on agendas in flight is multiplied; 0 emits nothing.
        until: From when on it is void, in seconds since the epoch.
        reason: In the words of who reports it.
    """

    coefficient: Annotated[float, msgspec.Meta(ge=0, le=1)]
    until: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    reason: str = ""


class AppendedOperation(Struct, frozen=True):
    """An operation that a handler appended to its agenda while it ran.

    Attributes:
        by: Name of the operation whose handler appended it; removed together with that one.
        operation: As in an agenda.
    """

    by: str
    at: Instant
    operation: msgspec.Raw


class RefusedIssue(Struct, frozen=True):
    """One reason for a refusal, as `model.errors.Issue`."""

    field: str
    value: str
    message: str


class SeriesPosition(Struct, frozen=True, array_like=True):
    """Where an agenda stands in a series of its customer's."""

    id: str
    position: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
