"""What an agenda's submitter calls it, where that is another name than its id."""

from typing import Any, Final

import msgspec

_PARAMS: Final = msgspec.json.Decoder(dict[str, Any])


def external_id(params: bytes | str) -> str | None:
    """The param `external_id`, or `externalId`, of an agenda.

    Args:
        params: Of the agenda, as JSON; empty if it has none.
    """
    try:
        told = _PARAMS.decode(params) if params else {}
    except msgspec.DecodeError:
        return None  # of an agenda that was refused, for this perhaps
    named = told.get("external_id", told.get("externalId"))
    return named if isinstance(named, str) else None
