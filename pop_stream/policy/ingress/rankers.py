"""Rankers: the rank of an agenda that names none, by its insight's definition.

A rank orders one customer's agendas of one priority, so no ranker moves a customer's share. It
is computed once, where the agenda comes in. `deadline` and `age_of` rank by an instant, which
stays right however long an agenda waits; `staleness` is as of when it came in.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pop_stream.model.agenda import MOST_URGENT, Agenda
from pop_stream.model.events.base import MAX_RANK
from pop_stream.model.insight_options import Ranker
from pop_stream.model.json_types import InstantField
from pop_stream.model.references import walk

RankFunction = Callable[[Agenda, datetime], int]
"""An operator's own ranker: of an agenda and the present, the rank; pure and quick."""

PUSHED, NEVER_RUN, STALEST, FRESHEST = 1, 2, 3, 1000
"""The scale of staleness."""

_INSTANT: Final[TypeAdapter[datetime]] = TypeAdapter(InstantField)


def rank_of(
    agenda: Agenda, ranker: Ranker, at: datetime, own: Mapping[str, RankFunction]
) -> int:
    """The rank of an agenda that names none.

    Args:
        agenda: Sound.
        ranker: Of its insight.
        at: When it came in.
        own: The operator's functions, by the names of their entry points.
    """
    match ranker.by:
        case "fixed":
            found: float = ranker.rank or 0
        case "deadline":
            due = agenda.expires_at
            found = MAX_RANK if due is None else due.timestamp()
        case "age_of":
            found = (_instant(agenda, ranker) or at).timestamp()
        case "staleness":
            found = _staleness(agenda, ranker, at)
        case _:
            function = own.get(ranker.name or "")
            found = 0 if function is None else function(agenda, at)
    return max(0, min(MAX_RANK, int(found)))


def _staleness(agenda: Agenda, ranker: Ranker, at: datetime) -> int:
    if agenda.priority == MOST_URGENT:
        return PUSHED
    last = _instant(agenda, ranker)
    if last is None:
        return NEVER_RUN
    stale_s = (at - last).total_seconds() - ranker.grace_s
    part = min(1.0, max(0.0, stale_s / ranker.horizon_s))
    return round(FRESHEST - (FRESHEST - STALEST) * part)


def _instant(agenda: Agenda, ranker: Ranker) -> datetime | None:
    """The instant in the field; None if there is none that can be read."""
    try:
        found = walk(agenda.model_dump(mode="json"), ranker.field or "")
        if isinstance(found, int | float) and not isinstance(found, bool):
            return datetime.fromtimestamp(found, UTC)
        return _INSTANT.validate_python(found)
    except (LookupError, ValidationError, ValueError, OverflowError, OSError):
        return None
