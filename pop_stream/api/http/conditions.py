"""Conditional requests: ETag, If-Match and If-None-Match, as RFC 9110 has them."""

import re
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.route import QueryParameter
from pop_stream.model.errors import Issue
from pop_stream.model.revisions import Precondition, VersionedDefinition

_ETAG: Final = r'(W/)?("[0-9]{1,18}"|[0-9]{1,18})'


IF_MATCH: Final = QueryParameter(
    "If-Match",
    "ETags, one of which must be the present one, or * for whatever exists.",
    {"type": "string", "pattern": rf"^(\*|{_ETAG}(, ?{_ETAG})*)$"},
)


IF_NONE_MATCH: Final = QueryParameter(
    "If-None-Match", "* lets the request only create.", {"type": "string", "enum": ["*"]}
)


NOT_MODIFIED: Final = QueryParameter(
    "If-None-Match", "An ETag: if it is still the present one, 304.", {"type": "string"}
)


_TAG: Final = re.compile(r'(W/)?("?)([0-9]{1,18})\2')
"""Bare numbers are taken too: quotes are what shells eat."""


def etag(stored: VersionedDefinition) -> Mapping[str, str]:
    """The ETag header of a definition's version."""
    return {"ETag": f'"{stored.version}"'}


def condition_of(request: web.Request) -> Precondition:
    """The precondition that the request's headers state for a change.

    Raises:
        InvalidError: If a header is not what it may be.
    """
    match, none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if none_match is not None and none_match.strip() != "*":
        raise _invalid(IF_NONE_MATCH, none_match, "only * is known here: create, never replace")
    exists = None if none_match is None else False
    if match is None:
        return Precondition(exists=exists)
    # With both, nothing can meet both: whatever there is, one of them fails.
    versions = frozenset[int]() if match.strip() == "*" else frozenset(_versions(match))
    if match.strip() == "*" and none_match is None:
        return Precondition(exists=True)
    return Precondition(versions=versions, exists=exists)


def is_known(request: web.Request, stored: VersionedDefinition) -> bool:
    """Whether the client says that it has this version already."""
    header = request.headers.get("If-None-Match")
    if header is None:
        return False
    tags = (_TAG.fullmatch(one.strip()) for one in header.split(","))
    return header.strip() == "*" or any(tag and int(tag[3]) == stored.version for tag in tags)


def _versions(header: str) -> list[int]:
    found = []
    for one in header.split(","):
        tag = _TAG.fullmatch(one.strip())
        if tag is None:
            raise _invalid(IF_MATCH, header, 'send the ETag that was read, such as "3"')
        if tag[1] is None:  # a weak tag matches nothing here
            found.append(int(tag[3]))
    return found


def _invalid(header: QueryParameter, value: str, message: str) -> InvalidError:
    return InvalidError([Issue(header.name, value[:200], message)])
