"""Calls for dead letters."""

from collections.abc import AsyncIterator
from typing import Final

from pop_stream.api_models.dead_letters import (
    DeadLetterDetail,
    DeadLetterList,
    DeadLetterView,
    LetterAction,
    LetterCommand,
    LetterCommandResult,
    LetterResult,
    LetterSelection,
    ReasonList,
)
from pop_stream.client.content import to_json
from pop_stream.client.transport import Calls, Query

_PAGE: Final = 500


class DeadLetterCalls(Calls):
    """What came to nothing and waits for a person."""

    async def all(self, where: LetterSelection | None = None) -> AsyncIterator[DeadLetterView]:
        """All letters that fit, newest first; those that are open if no state is named.

        Raises:
            ApiRefusedError: If a field of the filter is wrong; `issues` say which.
            ApiError: If there is no answer.
        """
        before: int | None = None
        while True:
            page = await self.page(where, before=before)
            for one in page.letters:
                yield one
            before = page.next
            if before is None:
                return

    async def page(
        self,
        where: LetterSelection | None = None,
        *,
        limit: int = _PAGE,
        before: int | None = None,
    ) -> DeadLetterList:
        """One page of these.

        Args:
            where: Which letters; those that are open if None.
            limit: 1 to 500.
            before: `next` of the page before.

        Raises:
            ApiRefusedError: If a field of the filter is wrong; `issues` say which.
            ApiError: If there is no answer.
        """
        query = [*_query(where), ("limit", str(limit))]
        if before is not None:
            query.append(("before", str(before)))
        return await self._transport.read(DeadLetterList, "dead-letters", query=query)

    async def reasons(self, where: LetterSelection | None = None) -> ReasonList:
        """How many letters fit, by kind and code: the newest 10,000.

        Raises:
            ApiRefusedError: If a field of the filter is wrong; `issues` say which.
            ApiError: If there is no answer.
        """
        return await self._transport.read(
            ReasonList, "dead-letter-reasons", query=_query(where)
        )

    async def get(self, letter_id: str) -> DeadLetterDetail:
        """A letter, with the value that it is about.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._transport.read(DeadLetterDetail, "dead-letters", letter_id)

    async def redrive(self, letter_id: str, *, reason: str = "") -> LetterResult:
        """Try again what a letter is about; `outcome` says what became of it.

        A second call does nothing more; its outcome is `already`.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._command(letter_id, "redrive", reason)

    async def discard(self, letter_id: str, *, reason: str = "") -> LetterResult:
        """Dismiss a letter; a second call does nothing more.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._command(letter_id, "discard", reason)

    async def command(self, command: LetterCommand) -> LetterCommandResult:
        """Redrive or discard all open letters that fit, at most 1,000; see `has_more`.

        Raises:
            ApiRefusedError: If its filter is empty, or a field is wrong; `issues` say which.
            ApiError: If there is no answer; some may have been settled.
        """
        return await self._transport.post(
            LetterCommandResult,
            "dead-letter-commands",
            body=to_json(command),
            is_repeatable=True,
        )

    async def _command(self, letter_id: str, action: LetterAction, reason: str) -> LetterResult:
        return await self._transport.post(
            LetterResult,
            "dead-letters",
            letter_id,
            action,
            body=to_json({"reason": reason}),
            is_repeatable=True,
        )


def _query(where: LetterSelection | None) -> Query:
    """The filter as parameters; a field with several values is repeated."""
    fields = (where or LetterSelection()).model_dump(mode="json", exclude_none=True)
    return [
        (name, str(one))
        for name, value in fields.items()
        for one in (value if isinstance(value, list | tuple) else (value,))
    ]
