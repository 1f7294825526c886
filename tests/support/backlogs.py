"""Placed agendas and backlogs, made in one line."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import Command, Origin, RoutedAgenda, Settlement
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.flow import Share

START = datetime(2026, 1, 1, tzinfo=UTC)
LONG = 1e6
"""Seconds after which any retry is due."""


def placed(agenda_id, customer_id="acme", after=0.0, **fields) -> RoutedAgenda:
    """An agenda accepted `after` seconds, with a cost of 1 s unless given otherwise."""
    known = {"operation_types": ("noop",), "cost_s": 1.0}
    return RoutedAgenda(
        agenda_id=agenda_id,
        customer_id=customer_id,
        accepted_at=START + timedelta(seconds=after),
        agenda=msgspec.Raw(b'{"id":"%s"}' % agenda_id.encode()),
        **(known | fields),
    )


def several(customer_id: str, count: int, first: int = 0, **fields) -> list[RoutedAgenda]:
    """Agendas `<customer>-<number>`."""
    numbers = range(first, first + count)
    return [placed(f"{customer_id}-{number}", customer_id, **fields) for number in numbers]


def incomparable_origins(count: int) -> list[Origin]:
    """Origins that cannot be compared."""
    return [Origin(partition=-1, offset=0)] * count


def backlog(shares: Mapping[str, Share] | None = None, **insight) -> Backlog:
    """An empty backlog; shares are looked up anew on every question, so they may be changed."""
    known = {} if shares is None else shares
    return Backlog(Insight(id="media", **insight), lambda one: known.get(one, Share()))


def settled(agenda_id: str, attempt: int = 1, **spent_s: float) -> Settlement:
    """A success that took so many worker-seconds, by operation type."""
    return Settlement(
        agenda_id=agenda_id, attempt=attempt, outcome="succeeded", spent_s=dict(spent_s)
    )


def failed(
    agenda_id: str, attempt: int = 1, *, retryable: bool = True, **spent_s: float
) -> Settlement:
    """A failure that took so many worker-seconds, by operation type."""
    return Settlement(
        agenda_id=agenda_id,
        attempt=attempt,
        outcome="failed",
        spent_s=dict(spent_s),
        retryable=retryable,
        message="no luck",
    )


def give_back(target: Backlog, agenda_id: str, attempt: int, now: float = 0.0) -> bool:
    """The attempt fails and its pause is over at once: the next one waits for its turn."""
    happened = target.settle(failed(agenda_id, attempt), now)
    target.apply_due(now + LONG)
    return happened


def cancel(target: Backlog, agenda_id: str, now: float = 0.0) -> bool:
    """Someone wants the agenda gone."""
    return target.apply_command(Command(agenda_id=agenda_id, action="cancel"), now)


def ids(chosen: Iterable) -> list[str]:
    """Agenda ids, in order."""
    return [one.agenda_id for one in chosen]
