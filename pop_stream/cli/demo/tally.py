"""What a run's lifecycle events add up to: waits, service, and agendas done twice."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pop_stream.cli.served import ObservedAgenda
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaFailed,
    AgendaRefused,
    AgendaSucceeded,
    LifecycleEvent,
)


@dataclass(slots=True)
class DemoAgenda:
    """What is known of one agenda.

    Attributes:
        claims: Every claim seen, as (attempt, puller, instant); a claim that was only
            published twice is one.
        successes: Instants of success; more than one means it was done twice.
        spent_s: Worker-seconds of the successful attempt.
    """

    customer_id: str
    accepted_at: datetime | None = None
    claims: set[tuple[int, str, datetime]] = field(default_factory=set)
    successes: set[datetime] = field(default_factory=set)
    has_failed: bool = False
    spent_s: float = 0.0

    @property
    def started_at(self) -> datetime | None:
        """The first claim."""
        return min((at for _, _, at in self.claims), default=None)

    @property
    def is_done(self) -> bool:
        """Whether it ended, in whatever way."""
        return bool(self.successes) or self.has_failed

    @property
    def observed(self) -> ObservedAgenda | None:
        """What an audit is told of it, once it has succeeded."""
        if self.accepted_at is None or self.started_at is None or not self.successes:
            return None
        return ObservedAgenda(
            submitted_at=self.accepted_at.timestamp(),
            started_at=self.started_at.timestamp(),
            ended_at=min(self.successes).timestamp(),
            spent_s=self.spent_s,
        )

    @property
    def wait(self) -> timedelta | None:
        """From acceptance to the first claim, once both are known."""
        if self.accepted_at is None or self.started_at is None:
            return None
        return max(self.started_at - self.accepted_at, timedelta(0))

    @property
    def duplicates(self) -> int:
        """Starts of an attempt beyond its first, and successes beyond the first."""
        attempts = {attempt for attempt, _, _ in self.claims}
        return len(self.claims) - len(attempts) + max(0, len(self.successes) - 1)


class RunStatistics:
    """All agendas of one run; events of others are ignored.

    Args:
        customers: Whose agenda each id is; fixed before the first event.
    """

    def __init__(self, customers: Mapping[str, str]) -> None:
        self.by_agenda = {
            agenda_id: DemoAgenda(owner) for agenda_id, owner in customers.items()
        }
        self.done = 0

    def note(self, lifecycle: Iterable[LifecycleEvent]) -> None:
        """Take in events, in any order and any number of times."""
        for event in lifecycle:
            demo_agenda = self.by_agenda.get(event.agenda_id)
            if demo_agenda is not None:
                before = demo_agenda.is_done
                _apply(demo_agenda, event)
                self.done += demo_agenda.is_done and not before

    def of(self, customer_id: str) -> Iterator[DemoAgenda]:
        """The courses of one customer."""
        return (one for one in self.by_agenda.values() if one.customer_id == customer_id)

    @property
    def duplicates(self) -> int:
        """Over all agendas."""
        return sum(demo_agenda.duplicates for demo_agenda in self.by_agenda.values())


def _apply(demo_agenda: DemoAgenda, event: LifecycleEvent) -> None:
    match event:
        case AgendaAccepted(at=at):
            demo_agenda.accepted_at = at
        case AgendaClaimed(at=at, attempt=attempt, puller_id=puller_id):
            demo_agenda.claims.add((attempt, puller_id, at))
        case AgendaSucceeded(at=at, spent_s=spent_s):
            demo_agenda.successes.add(at)
            demo_agenda.spent_s = sum(spent_s.values())
        case AgendaFailed(retryable=False) | AgendaRefused():
            demo_agenda.has_failed = True
        case _:
            pass
