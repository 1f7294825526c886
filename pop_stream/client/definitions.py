"""Customers, pools, insights and templates: the same calls for each kind."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from pop_stream.client.content import decoded, to_json
from pop_stream.client.errors import ApiFaultError
from pop_stream.client.transport import ApiResponse, Call, Query, Transport, pairs, path

D = TypeVar("D", bound=BaseModel)

Content = BaseModel | Mapping[str, Any]
"""A definition, or its fields as JSON has them."""

Filters = Mapping[str, Sequence[str] | str]
"""Values by field, `a.b` for one inside another; of several values, any fits."""

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class StoredDefinition(Generic[D]):
    """A definition as it is kept.

    Attributes:
        version: Grows with every change; what `if_match` takes.
        insight_ids: Of a pool, the insights that share it, at most 1,000; else empty.
        content: All fields, as the API answers them.
    """

    definition: D
    version: int
    created_at: datetime
    updated_at: datetime
    insight_ids: tuple[str, ...]
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DefinitionPage:
    """One page of a list.

    Attributes:
        items: Definitions, whole or with the fields that were asked for.
        total: Of all pages, exact.
        next: `cursor` of the next page; None on the last.
    """

    items: tuple[Mapping[str, Any], ...]
    total: int
    next: str | None


class _StoredFields(msgspec.Struct):
    version: int
    created_at: datetime
    updated_at: datetime
    insight_ids: tuple[str, ...] = ()


_OF_THE_STORE: Final = frozenset(_StoredFields.__struct_fields__)


class DefinitionCalls(Generic[D]):
    """The definitions of one kind."""

    def __init__(self, transport: Transport, plural: str, model: type[D]) -> None:
        self._transport = transport
        self._plural = plural
        self._model = model

    async def get(
        self, object_id: str, *, known: StoredDefinition[D] | None = None
    ) -> StoredDefinition[D]:
        """The definition; `known` itself if that is still the newest.

        Raises:
            NotFoundError: If there is none, or none that the caller may see.
            ApiError: If there is no answer.
        """
        headers = {} if known is None else {"If-None-Match": f'"{known.version}"'}
        answer = await self._send("GET", object_id, headers=headers)
        if known is not None and answer.status == HTTPStatus.NOT_MODIFIED:
            return known
        return self._defined(answer)

    async def version(self, object_id: str, version: int) -> StoredDefinition[D]:
        """What it was in one version, be it deleted since.

        Raises:
            NotFoundError: If there was no such version.
            ApiError: If there is no answer.
        """
        return self._defined(await self._send("GET", object_id, "versions", str(version)))

    async def create(
        self, definition: D | Mapping[str, Any], *, reason: str = ""
    ) -> StoredDefinition[D]:
        """Define one that is not there yet.

        Args:
            definition: All of it, its id included.
            reason: For the audit log; up to 500 characters.

        Raises:
            ApiConflictError: If there is one.
            ApiRefusedError: If it is not sound; `issues` say why.
            ApiError: If there is no answer.
        """
        return self._defined(
            await self._send(
                "POST", query=_why(reason), body=to_json(definition), is_repeatable=False
            )
        )

    async def put(
        self,
        object_id: str,
        definition: D | Mapping[str, Any],
        *,
        if_match: int | None = None,
        if_absent: bool = False,
        reason: str = "",
    ) -> StoredDefinition[D]:
        """Define one, in the place of what there may be.

        Args:
            object_id: Its id.
            definition: All of it; fields left out have their defaults.
            if_match: The version that it must be in.
            if_absent: Whether it must not be there.
            reason: For the audit log; up to 500 characters.

        Raises:
            PreconditionError: If it is in another version, or there.
            ApiRefusedError: If it is not sound; `issues` say why.
            ApiError: If there is no answer.
        """
        headers = _conditions(if_match, if_absent=if_absent)
        answer = await self._send(
            "PUT",
            object_id,
            query=_why(reason),
            body=to_json(definition),
            headers=headers,
            is_repeatable=not headers,
        )
        return self._defined(answer)

    async def patch(
        self,
        object_id: str,
        changes: Mapping[str, Any],
        *,
        if_match: int | None = None,
        reason: str = "",
    ) -> StoredDefinition[D]:
        """Change fields of one; None takes a field back to its default.

        Args:
            object_id: Its id.
            changes: A JSON merge patch.
            if_match: The version that it must be in.
            reason: For the audit log; up to 500 characters.

        Raises:
            NotFoundError: If there is none.
            PreconditionError: If it is in another version.
            ApiRefusedError: If the outcome is not sound; `issues` say why.
            ApiError: If there is no answer.
        """
        headers = {**_conditions(if_match), "Content-Type": "application/merge-patch+json"}
        answer = await self._send(
            "PATCH",
            object_id,
            query=_why(reason),
            body=to_json(changes),
            headers=headers,
            is_repeatable=if_match is None,
        )
        return self._defined(answer)

    async def delete(
        self, object_id: str, *, if_match: int | None = None, reason: str = ""
    ) -> None:
        """Delete one that nothing needs.

        Args:
            object_id: Its id.
            if_match: The version that it must be in.
            reason: For the audit log; up to 500 characters.

        Raises:
            NotFoundError: If there is none; also if an earlier try of this call deleted it.
            ApiConflictError: If something needs it; `problem.used_by` says what.
            PreconditionError: If it is in another version.
            ApiError: If there is no answer.
        """
        headers = _conditions(if_match)
        await self._send("DELETE", object_id, query=_why(reason), headers=headers)

    async def page(
        self,
        where: Filters | None = None,
        *,
        sort: str = "id",
        fields: Sequence[str] = (),
        limit: int = _PAGE,
        cursor: str | None = None,
    ) -> DefinitionPage:
        """One page of those that the caller sees.

        Args:
            where: Which; all of them if None.
            sort: Fields, comma between; one after `-` descends.
            fields: Only these; all if there are none.
            limit: 1 to 1,000.
            cursor: `next` of the page before, with the same sort.

        Raises:
            ApiRefusedError: If a parameter cannot be used; `issues` say why.
            ApiError: If there is no answer.
        """
        query = [*pairs(where or {}), ("sort", sort), ("limit", str(limit))]
        query += [("fields", ",".join(fields))] if fields else []
        query += [("cursor", cursor)] if cursor else []
        return decoded((await self._send("GET", query=query)).body, DefinitionPage)

    async def all(
        self, where: Filters | None = None, *, sort: str = "id"
    ) -> AsyncIterator[StoredDefinition[D]]:
        """All that the caller sees, page after page.

        Raises:
            ApiRefusedError: If a parameter cannot be used; `issues` say why.
            ApiError: If there is no answer.
        """
        cursor: str | None = None
        while True:
            page = await self.page(where, sort=sort, limit=_PAGE, cursor=cursor)
            for item in page.items:
                yield self._read(item)
            cursor = page.next
            if cursor is None:
                return

    async def _send(  # what a request can have
        self,
        method: str,
        *parts: str,
        query: Query = (),
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool = True,
    ) -> ApiResponse:
        return await self._transport.send(
            Call(
                method=method,
                path=path(self._plural, *parts),
                query=query,
                body=body,
                headers=headers or {},
                is_repeatable=is_repeatable,
            )
        )

    def _defined(self, answer: ApiResponse) -> StoredDefinition[D]:
        return self._read(decoded(answer.body, dict[str, Any]))

    def _read(self, content: Mapping[str, Any]) -> StoredDefinition[D]:
        try:
            kept = msgspec.convert(content, _StoredFields)
            own = {name: one for name, one in content.items() if name not in _OF_THE_STORE}
            # A newer API may tell more; what is not known here is in `content`.
            definition = self._model.model_validate(own, extra="ignore")
        except (msgspec.ValidationError, ValidationError) as error:
            msg = f"the answer is not what this API gives: {error}"
            raise ApiFaultError(msg, status=HTTPStatus.OK) from None
        return StoredDefinition(
            definition,
            kept.version,
            kept.created_at,
            kept.updated_at,
            kept.insight_ids,
            content,
        )


def _conditions(if_match: int | None, *, if_absent: bool = False) -> dict[str, str]:
    headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
    return {**headers, "If-None-Match": "*"} if if_absent else headers


def _why(reason: str) -> Query:
    return [("reason", reason)] if reason else []
