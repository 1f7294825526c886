"""What a run's lifecycle events add up to: waits, service, and agendas done twice."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pop_stream.cli.served import Seen
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaFailed,
    AgendaRefused,
    AgendaSucceeded,
    LifecycleEvent,
)


@dataclass(slots=True)
class Course:
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
    def seen(self) -> Seen | None:
        """What an audit is told of it, once it has succeeded."""
        if self.accepted_at is None or self.started_at is None or not self.successes:
            return None
        return Seen(
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


class Tally:
    """All agendas of one run; events of others are ignored.

    Args:
        customers: Whose agenda each id is; fixed before the first event.
    """

    def __init__(self, customers: Mapping[str, str]) -> None:
        self.courses = {agenda_id: Course(owner) for agenda_id, owner in customers.items()}
        self.done = 0

    def note(self, lifecycle: Iterable[LifecycleEvent]) -> None:
        """Take in events, in any order and any number of times."""
        for event in lifecycle:
            course = self.courses.get(event.agenda_id)
            if course is not None:
                before = course.is_done
                _apply(course, event)
                self.done += course.is_done and not before

    def of(self, customer_id: str) -> Iterator[Course]:
        """The courses of one customer."""
        return (one for one in self.courses.values() if one.customer_id == customer_id)

    @property
    def duplicates(self) -> int:
        """Over all agendas."""
        return sum(course.duplicates for course in self.courses.values())


def _apply(course: Course, event: LifecycleEvent) -> None:
    match event:
        case AgendaAccepted(at=at):
            course.accepted_at = at
        case AgendaClaimed(at=at, attempt=attempt, puller_id=puller_id):
            course.claims.add((attempt, puller_id, at))
        case AgendaSucceeded(at=at, spent_s=spent_s):
            course.successes.add(at)
            course.spent_s = sum(spent_s.values())
        case AgendaFailed(retryable=False) | AgendaRefused():
            course.has_failed = True
        case _:
            pass
