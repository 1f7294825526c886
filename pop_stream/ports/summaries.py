"""Summaries of agendas: the rollup folds events into them, the API reads them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.policy.lifecycle.states import AttemptStatus
from pop_stream.policy.lifecycle.summary import LinkSummary, Summary
from pop_stream.policy.lifecycle.webhooks import CallbackState


class LinkScope(NamedTuple):
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


class ReusableIds(NamedTuple):
    """What may be submitted anew under ids that were used.

    Attributes:
        refused: Those of the ids asked about.
        deleted_until: When the youngest agenda that was ever removed was accepted; None if
            there was none. Of ids that are not known, only such older ones may have been used.
    """

    refused: frozenset[str]
    deleted_until: datetime | None


@dataclass(frozen=True, slots=True)
class Callback:
    """A report of an agenda's end to its customer's server.

    Attributes:
        webhook_id: By it the receiver knows repeats.
        tries: That were made.
        created_at: When the agenda ended.
        due_at: When it is tried next; None if it is not.
        ended_at: When it was delivered or given up; None while it waits.
        reason: Why the last try failed; empty if none did.
    """

    webhook_id: str
    url: str
    state: CallbackState
    tries: int
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    reason: str


class SummaryReader(Protocol):
    """Reads summaries; every method raises UnavailableError while the database is away."""

    async def agenda(self, agenda_id: str) -> Summary | None:
        """One agenda's summary with its operations, or None if none exists."""
        ...

    async def attempt_status(self, agenda_id: str) -> AttemptStatus | None:
        """How far the agenda is, without the rest of its summary; None if none exists."""
        ...

    async def link(self, link: LinkScope) -> LinkSummary | None:
        """The roll-up of the link's agendas, or None if there are none."""
        ...

    async def callbacks(self, agenda_id: str, *, limit: int) -> Sequence[Callback]:
        """The newest reports of the agenda's ends, newest first; one for each end."""
        ...

    async def agenda_owners(self, agenda_ids: Sequence[str]) -> Mapping[str, str]:
        """Each agenda's customer, empty if none is known; unknown agendas are absent."""
        ...

    async def find_by_name(self, named: str) -> Sequence[str]:
        """Ids of agendas that have this id, or whose customers call them so; three at most."""
        ...

    async def accepted_bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, AcceptedBody]:
        """What was accepted under these ids; absent where nothing was."""
        ...

    async def reusable_ids(self, agenda_ids: Sequence[str]) -> ReusableIds:
        """Which of these ids are free again, as far as that is known."""
        ...

    async def agenda_versions(self, agenda_ids: Sequence[str]) -> Mapping[str, int]:
        """A number per agenda that grows with every change; unknown agendas are absent."""
        ...

    async def link_versions(self, links: Sequence[LinkScope]) -> Mapping[LinkScope, int]:
        """A number per link that changes whenever one of its agendas does; absent if none."""
        ...

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """How far summaries have come: the first offset not folded yet, by partition."""
        ...

    async def ping(self) -> None:
        """Answer, or raise UnavailableError."""
        ...


class SummaryChange(NamedTuple):
    """A summary before and after a batch; None before its agenda was known."""

    before: Summary | None
    after: Summary


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """What one batch of lifecycle events came to.

    Attributes:
        applied: Events that changed a summary or repeated what was known.
        skipped: Events that did not follow from the state, or of an outdated attempt.
        changes: The summaries that it changed.
    """

    applied: int
    skipped: int
    changes: Sequence[SummaryChange] = field(default=(), compare=False)


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
        before_commit: Callable[[Sequence[SummaryChange]], Awaitable[None]] | None = None,
    ) -> FoldedBatch:
        """Fold a batch and advance the offsets, both in one transaction.

        Args:
            topic: Where the batch was read.
            spans: By partition, the offset that `next_offsets` must still give, 0 for one
                never read, and the one it gives after.
            lifecycle: The batch's events, in order within a partition.
            before_commit: Called inside the transaction with what it changes, bodies included
                where agendas end; if it raises, nothing is written. After a conflict with
                another process it is called again.

        Raises:
            UnavailableError: If the database is away; nothing was written.
            OffsetsMovedError: If another process has advanced a partition of the batch.
            UnstorableError: If an event of the batch can never be stored; nothing was
                written. Folding is idempotent, so parts of the batch may be tried alone.
        """
        ...
