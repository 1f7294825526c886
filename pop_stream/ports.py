"""What the policy needs of the outside: one protocol each, one method where one will do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from pop_stream.core.deeds import Author
from pop_stream.core.definitions import Definitions, Kind
from pop_stream.core.events import (
    EmittedAgenda,
    InsightAnswered,
    LifecycleEvent,
    StopReason,
)
from pop_stream.core.ids import InsightId
from pop_stream.core.keys import ApiKey
from pop_stream.core.lifecycle import State
from pop_stream.core.listing import Listed, ListQuery
from pop_stream.core.revisions import Revision, Stored
from pop_stream.core.summary import LinkSummary, Summary


class Clock(Protocol):
    """The wall clock."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """A record to publish.

    Attributes:
        partition: Where it goes; None lets the key decide.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes]] = field(default=())


class Written(Protocol):
    """Where a record was written."""

    @property
    def partition(self) -> int:
        """Of its topic."""
        ...

    @property
    def offset(self) -> int:
        """In the partition."""
        ...


class Publisher(Protocol):
    """Writes records that must not be lost."""

    async def publish(self, records: Sequence[Record]) -> Sequence[Written]:
        """Write all records and return once every one is acknowledged by acks=all.

        Records for one partition are written in the order given. A call repeated after an
        error may write some of them twice.

        Returns:
            Where each was written, in the order given.

        Raises:
            UnavailableError: If the broker did not acknowledge in time.
        """
        ...

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        ...

    async def ping(self) -> None:
        """Have a broker answer.

        Raises:
            UnavailableError: If none does.
        """
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """How far those who read have come.

    Attributes:
        lags: Records past the pullers' commit, by insight and partition of its topic;
            an insight is absent when that is unknown.
        told: By partition of the lifecycle's topic, the offset after its last record; None
            if it was not asked for or is unknown.
        relayed: By the same partition, the offset that the relay has committed.
    """

    lags: Mapping[InsightId, Sequence[int]] = field(default_factory=dict)
    told: Mapping[int, int] | None = None
    relayed: Mapping[int, int] = field(default_factory=dict)


class Progress(NamedTuple):
    """How far a group has come with a topic.

    Attributes:
        ends: By partition, the offset after its last record.
        committed: By partition, the offset that the group has committed, if any.
    """

    ends: Mapping[int, int]
    committed: Mapping[int, int]


class LagProbe(Protocol):
    """Reads how far pullers and the relay are behind."""

    async def look(self, insights: Sequence[InsightId], *, relay: bool = False) -> Look:
        """Ask for the lag of insights and, if `relay`, for what the relay has read."""
        ...

    async def progress(self, group: str, topic: str) -> Progress | None:
        """How far a group has come with a topic; None if that is unknown."""
        ...


class DefinitionSource(Protocol):
    """The definitions in force, always the newest heard of."""

    @property
    def current(self) -> Definitions:
        """A snapshot; ask again for a newer one."""
        ...


class Questions(Protocol):
    """Asks the scheduler about what waits with it."""

    async def ask(
        self, insight_id: str, agenda_id: str = "", agenda_ids: Sequence[str] = ()
    ) -> InsightAnswered:
        """What the scheduler says of an insight, and of an agenda if one is named.

        Args:
            insight_id: Any insight.
            agenda_id: Whose place is wanted; empty for none.
            agenda_ids: Of which it is wanted whether the scheduler holds them; at most
                `MOST_ASKED`.

        Raises:
            UnavailableError: If no scheduler answers in time.
        """
        ...


class ReadyTable(Protocol):
    """The rows of the ReadyAgenda table, durable before their source event is committed."""

    def get(self, key: str) -> bytes | None:
        """The row's value, or None."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Write a row; only while an event is being handled."""
        ...

    def delete(self, key: str) -> None:
        """Delete a row, if there is one; only while an event is being handled."""
        ...

    def rows(self, partition: int) -> Iterator[tuple[str, bytes]]:
        """All rows of one partition of `pop.ready` that this process owns."""
        ...

    async def kept(self) -> None:
        """Wait until all that was written so far outlives this process."""
        ...


class LinkPart(NamedTuple):
    """The agendas of a link that one caller sees.

    Attributes:
        customer_id: Whose agendas; None means everyone's.
    """

    link_id: str
    customer_id: str | None = None


class AcceptedBody(NamedTuple):
    """An agenda as it was accepted, as JSON, and whose it is."""

    customer_id: str
    body: bytes


class SummaryReader(Protocol):
    """Reads summaries; every method raises UnavailableError while the database is away."""

    async def agenda(self, agenda_id: str) -> Summary | None:
        """One agenda's summary with its operations, or None if it was never heard of."""
        ...

    async def link(self, link: LinkPart) -> LinkSummary | None:
        """The roll-up of the link's agendas, or None if there are none."""
        ...

    async def agenda_owners(self, agenda_ids: Sequence[str]) -> Mapping[str, str]:
        """Each agenda's customer, empty if none is known; unknown agendas are absent."""
        ...

    async def agendas_called(self, named: str) -> Sequence[str]:
        """Ids of agendas that have this id, or whose customers call them so; three at most."""
        ...

    async def accepted_bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, AcceptedBody]:
        """What was accepted under these ids; absent where nothing was."""
        ...

    async def agenda_versions(self, agenda_ids: Sequence[str]) -> Mapping[str, int]:
        """A number per agenda that grows with every change; unknown agendas are absent."""
        ...

    async def link_versions(self, links: Sequence[LinkPart]) -> Mapping[LinkPart, int]:
        """A number per link that changes whenever one of its agendas does; absent if none."""
        ...

    async def ping(self) -> None:
        """Answer, or raise UnavailableError."""
        ...


@dataclass(frozen=True, slots=True)
class AgendaFilter:
    """Which agendas are meant: those that fit every field that is set.

    Attributes:
        ids: One of these; as with the others, empty means any.
        accepted_from: Accepted at this instant or later.
        accepted_before: Accepted before this instant.
    """

    ids: tuple[str, ...] = ()
    customer_ids: tuple[str, ...] = ()
    insight_ids: tuple[str, ...] = ()
    link_ids: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    accepted_from: datetime | None = None
    accepted_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list of agendas goes on: after this one.

    Attributes:
        accepted_at: None for an agenda that was never accepted; it comes as the oldest.
    """

    accepted_at: datetime | None
    agenda_id: str


class AgendaStore(Protocol):
    """Finds and removes agendas; every method raises UnavailableError as `SummaryReader`."""

    async def find(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: Place | None = None,
        newest_first: bool = True,
    ) -> Sequence[Summary]:
        """At most `limit` agendas, by acceptance, without their operations and bodies."""
        ...

    async def count(self, wanted: AgendaFilter) -> int:
        """How many agendas fit; exact."""
        ...

    async def whole(self, summaries: Sequence[Summary]) -> Sequence[Summary]:
        """The same summaries with their bodies and operations; in order."""
        ...

    async def delete(self, agenda_ids: Sequence[str]) -> Sequence[str]:
        """Remove those of the agendas that have ended; the ids of those removed."""
        ...


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """What one batch of lifecycle events came to.

    Attributes:
        applied: Events that changed a summary or repeated what was known.
        skipped: Events that did not follow from the state, or of an outdated attempt.
    """

    applied: int
    skipped: int


class SummaryStore(Protocol):
    """Folds lifecycle events into summaries, each partition's events exactly once."""

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """The offset to read next, by partition; absent for one never read."""
        ...

    async def fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        lifecycle: Sequence[LifecycleEvent],
    ) -> FoldedBatch:
        """Fold a batch and advance the offsets, both in one transaction.

        Args:
            topic: Where the batch was read.
            spans: By partition, the offset that `next_offsets` must still give, 0 for one
                never read, and the one it gives after.
            lifecycle: The batch's events, in order within a partition.

        Raises:
            UnavailableError: If the database is away; nothing was written.
            OffsetsMovedError: If another process has advanced a partition of the batch.
            UnstorableError: If an event of the batch can never be stored; nothing was
                written. Folding is idempotent, so parts of the batch may be tried alone.
        """
        ...


class KeyStore(Protocol):
    """API keys; every method raises UnavailableError while the database is away."""

    async def find(self, key_id: str) -> ApiKey | None:
        """The key, whatever its state; None if there is none."""
        ...

    async def keys(
        self, *, customer_id: str | None, after: str = "", limit: int
    ) -> Sequence[ApiKey]:
        """A page of keys, revoked ones too, by id.

        Args:
            customer_id: Whose; None lists everyone's.
            after: Id of the last one of the page before.
            limit: Most on the page.
        """
        ...

    async def create(self, key: ApiKey, author: Author) -> None:
        """Store a new key."""
        ...

    async def rotate(
        self, key_id: str, to: ApiKey, author: Author, *, grace: timedelta
    ) -> ApiKey:
        """Store a key with the powers of another, which ends after the grace period.

        Returns:
            The new key, as stored.

        Raises:
            NotFoundError: If there is no key to rotate.
        """
        ...

    async def revoke(self, key_id: str, author: Author, *, at: datetime) -> ApiKey:
        """End a key at once; one that was revoked before stays as it is.

        Raises:
            NotFoundError: If there is no such key.
        """
        ...


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change, as the audit log has it.

    Attributes:
        entry_id: Grows with time, roughly.
        before: JSON; None if the object did not exist.
        after: JSON; None if it was deleted.
    """

    entry_id: int
    at: datetime
    principal: str
    customer_id: str | None
    request_id: str
    action: str
    kind: str
    object_id: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which changes are wanted; None means any."""

    kind: str | None = None
    object_id: str | None = None
    principal: str | None = None


class AuditLog(Protocol):
    """Who changed what, when."""

    async def entries(
        self, wanted: AuditFilter, *, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        """A page of changes, newest first, older than the entry `before` if one is given.

        Raises:
            UnavailableError: If the database is away.
        """
        ...


class DefinitionStore(Protocol):
    """The truth about definitions; every method raises UnavailableError while it is away."""

    async def get(self, kind: Kind, object_id: str) -> Stored | None:
        """One definition, or None."""
        ...

    async def version(self, kind: Kind, object_id: str, version: int) -> Stored | None:
        """What it was in one version, or None if there was none or it was its deletion."""
        ...

    async def called(self, named: str) -> Sequence[str]:
        """Ids of templates that are called so, by all or by their customers; three at most."""
        ...

    async def list(self, query: ListQuery) -> Listed:
        """One page, and the count of all pages, as of one moment."""
        ...

    async def change(
        self, revisions: Sequence[Revision], author: Author
    ) -> Sequence[Stored | None]:
        """Make changes, all or none, and put what came of them into the outbox.

        Args:
            revisions: Of different definitions.
            author: Who makes them, for the audit log.

        Returns:
            What there is now, by revision; one that leaves all as it was makes no new version.

        Raises:
            DefinitionError: If one refers to something that is not defined.
            InUseError: If something would be deleted that is in use.
            PopStreamError: Whatever a revision's own decision raises.
        """
        ...


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A version that may not have been published yet.

    Attributes:
        number: Grows in the order of commits.
        key: `kind/id`.
        body: JSON; None if this version is the deletion.
    """

    number: int
    key: str
    version: int
    body: bytes | None


class Outbox(Protocol):
    """Changes that are committed and must be published."""

    def turn(self, most: int) -> AbstractAsyncContextManager[Sequence[OutboxRow]]:
        """Up to so many rows, oldest first, for whose publication nobody else has the turn.

        Left without an error, the rows are published and gone; with one, they stay.
        """
        ...

    async def newest(self) -> Sequence[OutboxRow]:
        """The last version of everything that was ever defined."""
        ...


class WorkDesk(Protocol):
    """Hands agendas to workers that pull over HTTP, whichever process they ask."""

    async def take(
        self, insight_id: str, count: int, wait: timedelta, *, is_there: Callable[[], bool]
    ) -> Sequence[EmittedAgenda]:
        """Claimed agendas of an insight, at least one unless the wait ends before.

        Args:
            insight_id: Of which insight.
            count: At most so many.
            wait: How long to wait for the first.
            is_there: Whether the caller still waits; asked now and then.

        Raises:
            UnavailableError: If none can be handed out.
        """
        ...

    def give_back(self, emitted: EmittedAgenda) -> None:
        """Let another caller have an agenda whose taker has gone."""
        ...

    def lease(self, agenda_id: str) -> EmittedAgenda | None:
        """The newest attempt of an agenda that was handed out, if it is remembered."""
        ...

    def stop(self, agenda_id: str, attempt: int) -> StopReason | Literal["outdated"] | None:
        """Why the attempt is to stop, if it is."""
        ...
