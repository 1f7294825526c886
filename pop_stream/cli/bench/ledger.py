"""Puts together what Kafka recorded of an insight and what a witness saw of its agendas."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pop_stream.bus.history import History, read_history
from pop_stream.cli.bench.load import Load
from pop_stream.cli.bench.witness import Course
from pop_stream.cli.served import Seen, served_in
from pop_stream.core.audits.service import Served, Weighed
from pop_stream.core.values.ids import CustomerId
from pop_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class Attempt:
    """One agenda's way.

    Attributes:
        agenda_id: Whose attempt; one that a crash made the scheduler repeat has two.
        accepted_at: When intake had it, in seconds since the epoch.
        asked_s: How long it was told to run. What it took beyond that, the machine cost it:
            with sleeps of milliseconds that is noise no scheduler could foresee.
    """

    agenda_id: str
    served: Served
    accepted_at: float
    asked_s: float


def recorded(
    settings: Settings, insight_id: str, courses: Mapping[str, Course], load: Load
) -> tuple[History, list[Attempt]]:
    """An insight's record, and its attempts; not to be called where an event loop runs."""
    history = read_history(settings, insight_id)
    return history, [*attempts(history, courses, load)]


def depth_of(history: History) -> int:
    """Most agendas that the scheduler held to be out at once."""
    return max((one.in_flight + len(one.chosen) for one in history.decisions), default=0)


def attempts(history: History, courses: Mapping[str, Course], load: Load) -> Iterator[Attempt]:
    """Every agenda that was submitted and ended, with what the scheduler took it to cost."""
    seen = {
        one: Seen(
            submitted_at=load.submitted_at[one],
            started_at=course.started_at or course.claimed_at,
            ended_at=course.ended_at,
            spent_s=course.spent_s,
        )
        for one, course in courses.items()
        if one in load.submitted_at and course.ended_at
    }
    for agenda, served in served_in(history, seen):
        asked_s = load.arrival(agenda.agenda_id).runtime_s
        yield Attempt(agenda.agenda_id, served, agenda.accepted_at.timestamp(), asked_s)


def weighings(history: History) -> Iterator[Weighed]:
    """Weights that rounds knew, whenever they had become others."""
    known: dict[str, float] = {}
    for decision in history.decisions:
        for one in decision.customers:
            if known.get(one.customer_id, 1.0) != one.weight:
                known[one.customer_id] = one.weight
                at = decision.at.timestamp()
                yield Weighed(at, CustomerId(one.customer_id), one.weight)
