"""Definitions: those in force, their store, and the outbox by which changes are published."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from pop_stream.model.definition_lists import DefinitionListPage, ListQuery
from pop_stream.model.definitions import Definitions, Kind
from pop_stream.model.revisions import Author, Revision, VersionedDefinition


class DefinitionSource(Protocol):
    """Provides the definitions in force."""

    @property
    def current(self) -> Definitions:
        """An immutable snapshot; read the property again for a newer one."""
        ...


class FollowedDefinitions(DefinitionSource, Protocol):
    """Definitions that are followed on a log, whose order all processes share."""

    @property
    def read_up_to(self) -> int:
        """The offset up to which the log is read: every version before it is in force."""
        ...

    async def end_offset(self) -> int:
        """The offset after the last version that is published by now.

        Raises:
            UnavailableError: If the log cannot be reached.
        """
        ...


class DefinitionStore(Protocol):
    """Stores definitions; every method raises UnavailableError while the database is down."""

    async def get(
        self, kind: Kind, object_id: str, *, seen_by: str | None = None
    ) -> VersionedDefinition | None:
        """One definition, or None.

        Args:
            kind: Of the definition.
            object_id: Its id inside.
            seen_by: The result is None for what this customer may not see. Its content is
                not read then, so the time it takes does not reveal that it exists.
        """
        ...

    async def version(
        self, kind: Kind, object_id: str, version: int, *, seen_by: str | None = None
    ) -> VersionedDefinition | None:
        """One version of a definition; None if there is none, or if it is the deletion.

        Args:
            kind: Of the definition.
            object_id: Its id inside.
            version: From 1.
            seen_by: The result is None for a version that this customer might not see, and for
                every version if the last one is such; its content is not read then.
        """
        ...

    async def find_by_name(self, kind: Kind, named: str) -> Sequence[str]:
        """Ids of those of a kind with this name or alias; three at most."""
        ...

    async def list(self, query: ListQuery) -> DefinitionListPage:
        """One page, and the count over all pages, of the same snapshot."""
        ...

    async def change(
        self, revisions: Sequence[Revision], author: Author
    ) -> Sequence[VersionedDefinition | None]:
        """Make changes, all or none, and put the new versions into the outbox.

        Args:
            revisions: Of different definitions.
            author: Who makes them, for the audit log.

        Returns:
            The definition after each revision; one that changes nothing makes no version.

        Raises:
            DefinitionError: If one refers to something that is not defined.
            InUseError: If something would be deleted that is in use.
            PopStreamError: Whatever a revision raises for the version that it finds.
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
    """Committed changes that must be published."""

    def claim_batch(self, most: int) -> AbstractAsyncContextManager[Sequence[OutboxRow]]:
        """Lock up to so many rows, oldest first, that nobody else has locked.

        The block publishes them. Left without an error, it deletes the rows; else they stay.
        """
        ...

    async def latest_versions(self) -> Sequence[OutboxRow]:
        """The last version of every definition that ever was, deletions included."""
        ...
