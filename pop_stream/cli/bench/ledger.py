"""Puts together what Kafka recorded of an insight and what a witness saw of its agendas."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pop_stream.bus.history import DecisionHistory, read_history
from pop_stream.cli.bench.load import ScenarioLoad
from pop_stream.cli.bench.witness import AgendaTimeline
from pop_stream.cli.served import ObservedAgenda, served_attempts
from pop_stream.core.audits.service import ServedAttempt, ObservedWeight
from pop_stream.core.values.ids import CustomerId
from pop_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class MeasuredAttempt:
    """One agenda's way.

    Attributes:
        agenda_id: Whose attempt; one that a crash made the scheduler repeat has two.
        accepted_at: When intake had it, in seconds since the epoch.
        requested_s: How long it was told to run. What it took beyond that, the machine cost it:
            with sleeps of milliseconds that is noise no scheduler could foresee.
    """

    agenda_id: str
    served: ServedAttempt
    accepted_at: float
    requested_s: float


def recorded_attempts(
    settings: Settings,
    insight_id: str,
    timelines: Mapping[str, AgendaTimeline],
    load: ScenarioLoad,
) -> tuple[DecisionHistory, list[MeasuredAttempt]]:
    """An insight's record, and its attempts; not to be called where an event loop runs."""
    history = read_history(settings, insight_id)
    return history, [*attempts(history, timelines, load)]


def depth_of(history: DecisionHistory) -> int:
    """Most agendas that the scheduler held to be out at once."""
    return max((one.in_flight + len(one.chosen) for one in history.decisions), default=0)


def attempts(
    history: DecisionHistory, timelines: Mapping[str, AgendaTimeline], load: ScenarioLoad
) -> Iterator[MeasuredAttempt]:
    """Every agenda that was submitted and ended, with what the scheduler took it to cost."""
    observed = {
        one: ObservedAgenda(
            submitted_at=load.submitted_at[one],
            started_at=timeline.started_at or timeline.claimed_at,
            ended_at=timeline.ended_at,
            spent_s=timeline.spent_s,
        )
        for one, timeline in timelines.items()
        if one in load.submitted_at and timeline.ended_at
    }
    for agenda, served in served_attempts(history, observed):
        requested_s = load.arrival(agenda.agenda_id).runtime_s
        yield MeasuredAttempt(
            agenda.agenda_id, served, agenda.accepted_at.timestamp(), requested_s
        )


def weight_changes(history: DecisionHistory) -> Iterator[ObservedWeight]:
    """Weights that rounds knew, whenever they had become others."""
    known: dict[str, float] = {}
    for decision in history.decisions:
        for one in decision.customers:
            if known.get(one.customer_id, 1.0) != one.weight:
                known[one.customer_id] = one.weight
                at = decision.at.timestamp()
                yield ObservedWeight(at, CustomerId(one.customer_id), one.weight)
