"""What an agenda can be looked for by besides its id: its submitter's name, its request."""

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

MAX_ALTERNATE_ID_LENGTH: Final = 500
"""Characters; nothing is found by a longer name, for no index takes it."""


class AlternateIds(NamedTuple):
    """None where there is none."""

    external_id: str | None = None
    correlation_id: str | None = None


class _Params(msgspec.Struct, rename={"pops": "externalId"}):
    external_id: Any = UNSET
    pops: Any = UNSET


class _Trace(msgspec.Struct):
    correlation_id: str | None = None


class _Body(msgspec.Struct):
    params: _Params | None = None
    trace: _Trace | None = None


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
    return AlternateIds(_short(named), _short(traced))


def _short(name: object) -> str | None:
    return name if isinstance(name, str) and len(name) <= MAX_ALTERNATE_ID_LENGTH else None
