"""The definitions in force, where they are kept, and how changes are told."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from pop_stream.model.definition_lists import DefinitionPage, ListQuery
from pop_stream.model.definitions import Definitions, Kind
from pop_stream.model.revisions import Author, Revision, StoredDefinition


class DefinitionSource(Protocol):
    """The definitions in force, always the newest heard of."""

    @property
    def current(self) -> Definitions:
        """A snapshot; ask again for a newer one."""
        ...


class FollowedDefinitions(DefinitionSource, Protocol):
    """Definitions from where changes are told, in an order that all share."""

    @property
    def read_up_to(self) -> int:
        """How far they were read: of versions up to it, all is heard."""
        ...

    async def written(self) -> int:
        """How far they are written by now; there is no version above it.

        Raises:
            UnavailableError: If that cannot be asked now.
        """
        ...


class DefinitionStore(Protocol):
    """The truth about definitions; every method raises UnavailableError while it is away."""

    async def get(
        self, kind: Kind, object_id: str, *, seen_by: str | None = None
    ) -> StoredDefinition | None:
        """One definition, or None.

        Args:
            kind: Of the definition.
            object_id: Its id inside.
            seen_by: None also for what this customer does not see; its content is not read
                then, so that it takes no longer than what is not there.
        """
        ...

    async def version(
        self, kind: Kind, object_id: str, version: int, *, seen_by: str | None = None
    ) -> StoredDefinition | None:
        """What it was in one version, or None if there was none or it was its deletion.

        Args:
            kind: Of the definition.
            object_id: Its id inside.
            version: From 1.
            seen_by: None also for a version that was not this customer's to see, and for all
                of them if the last one was not; nothing of it is read then.
        """
        ...

    async def find_by_name(self, named: str) -> Sequence[str]:
        """Ids of templates that are called so, by all or by their customers; three at most."""
        ...

    async def list(self, query: ListQuery) -> DefinitionPage:
        """One page, and the count of all pages, as of one moment."""
        ...

    async def change(
        self, revisions: Sequence[Revision], author: Author
    ) -> Sequence[StoredDefinition | None]:
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


class DefinitionOutbox(Protocol):
    """Changes that are committed and must be published."""

    def claim_batch(self, most: int) -> AbstractAsyncContextManager[Sequence[OutboxRow]]:
        """Up to so many rows, oldest first, for whose publication nobody else has the turn.

        Left without an error, the rows are published and gone; with one, they stay.
        """
        ...

    async def latest_versions(self) -> Sequence[OutboxRow]:
        """The last version of everything that was ever defined."""
        ...
