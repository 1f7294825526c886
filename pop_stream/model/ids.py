"""The names of things: ids as types of their own, what an id may look like, and other names.

An agenda can be found by its id, by its submitter's own name for it, and by the correlation id
and trace of the request that it came with.
"""

from typing import Any, Final, NamedTuple, NewType

import msgspec
from msgspec import UNSET

AgendaId = NewType("AgendaId", str)
CustomerId = NewType("CustomerId", str)
InsightId = NewType("InsightId", str)
LinkId = NewType("LinkId", str)
OperationName = NewType("OperationName", str)
PullerId = NewType("PullerId", str)

ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:~-]*$"
"""Safe in a URL path, a Kafka key and a log line without quoting."""

ID_LENGTH: Final = 128
"""Longest agenda, customer or link id, in characters."""

_NAMED: Final = rf"[A-Za-z0-9][A-Za-z0-9._:~-]{{0,{ID_LENGTH - 1}}}"

OWN_ID_PATTERN: Final = rf"^{_NAMED}(@{_NAMED})?$"
"""Of agendas and templates: with the customer after the @ if it chose the id itself."""

OWN_ID_LENGTH: Final = 2 * ID_LENGTH + 1
"""Longest id of an agenda or a template, its customer included."""

OPERATION_NAME_PATTERN: Final = r"^[^<>\s\x1c-\x1f\x85\ufeff][^<>]*$"
"""Begins with no blank: what is named beside \\s is one to some engines, and none to others."""

HTTP_PULLER: Final = "(http)"
"""Who claims for workers that pull over HTTP, until the worker's own name comes with its first
sign of life. It sorts before all names of workers, and the last in order is the one shown."""

TOPIC_SAFE_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""An insight id is part of a topic name, so it is narrower than `ID_PATTERN`."""

INSIGHT_ID_LENGTH: Final = 200
"""A topic name holds 249 characters, and a prefix must fit before the id."""


MAX_ALTERNATE_ID_LENGTH: Final = 500
"""Characters; nothing is found by a longer name, for no index takes it."""


class AlternateIds(NamedTuple):
    """None where there is none."""

    external_id: str | None = None
    correlation_id: str | None = None
    template_id: str | None = None


class _Params(msgspec.Struct, rename={"pops": "externalId"}):
    external_id: Any = UNSET
    pops: Any = UNSET


class _Trace(msgspec.Struct):
    correlation_id: str | None = None


class _Template(msgspec.Struct):
    id: str | None = None


class _Body(msgspec.Struct):
    params: _Params | None = None
    trace: _Trace | None = None
    template: _Template | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


def alternate_ids(body: bytes) -> AlternateIds:
    """The names in an agenda as it was accepted or refused.

    Args:
        body: JSON; empty, or no agenda at all, has none.
    """
    try:
        parsed = _BODY.decode(body) if body else _Body()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return AlternateIds()
    params = parsed.params or _Params()
    named = params.pops if params.external_id is UNSET else params.external_id
    traced = parsed.trace.correlation_id if parsed.trace else None
    template_id = parsed.template.id if parsed.template else None
    return AlternateIds(_short(named), _short(traced), _short(template_id))


def _short(name: object) -> str | None:
    return name if isinstance(name, str) and len(name) <= MAX_ALTERNATE_ID_LENGTH else None
