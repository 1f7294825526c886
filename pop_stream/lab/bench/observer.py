"""When each agenda of a load was claimed and ended, joined with what Kafka recorded of rounds.

`LifecycleObserver` follows `pop.agenda-events` while the load runs. `recorded_attempts` joins
what it saw with the decisions of one insight into measured attempts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pop_stream.lab.bench.load import ScenarioLoad
from pop_stream.lab.event_follower import LifecycleFollower
from pop_stream.lab.fairness_metrics.recorded import ObservedAgenda, served_attempts
from pop_stream.lab.fairness_metrics.service_log import ObservedWeight, ServedAttempt
from pop_stream.lab.replay.decisions_log import DecisionHistory, read_history
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaFailed,
    AgendaRefused,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.model.ids import CustomerId
from pop_stream.settings import Settings


@dataclass(slots=True)
class AgendaTimeline:
    """What is known of one agenda; instants in seconds since the epoch.

    Attributes:
        claimed_at: Of the attempt that ended, or is running.
        started_at: When its first operation began; an agenda may be claimed before that.
        successes: More than one means it was run twice.
        spent_s: Worker-seconds of the attempt that succeeded.
    """

    claimed_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    successes: int = 0
    has_failed: bool = False
    spent_s: float = 0.0


class LifecycleObserver:
    """Follows the lifecycle events of one load from the moment it is entered on.

    Those of earlier loads may still arrive, and are left out by their ids.

    Args:
        settings: Where the cluster is.
        prefix: Begins the ids of the load's agendas.

    Attributes:
        timelines: Of every agenda of it that an event was about, by id.
        ended: How many agendas ended.
    """

    def __init__(self, settings: Settings, prefix: str) -> None:
        self._prefix = prefix
        self.timelines: dict[str, AgendaTimeline] = {}
        self.ended = 0
        self._follower = LifecycleFollower(
            settings, client_id="bench", on_events=self._on_events
        )

    async def __aenter__(self) -> Self:
        await self._follower.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._follower.__aexit__()

    async def until_ended(self, agenda_ids: Iterable[str]) -> None:
        """Wait until all these have ended, or raise what stopped the reading."""
        waiting = set(agenda_ids)

        def have_ended() -> bool:
            waiting.difference_update([one for one in waiting if self._has_ended(one)])
            return not waiting

        await self._follower.until(have_ended)

    async def until_so_many_ended(self, count: int) -> None:
        """Wait until at least so many agendas have ended, or raise what stopped the reading."""
        await self._follower.until(lambda: self.ended >= count)

    def _has_ended(self, agenda_id: str) -> bool:
        timeline = self.timelines.get(agenda_id)
        return timeline is not None and timeline.ended_at > 0

    def _on_events(self, lifecycle: Iterable[LifecycleEvent]) -> None:
        for event in lifecycle:
            if event.agenda_id.startswith(self._prefix):
                self._note(event)

    def _note(self, event: LifecycleEvent) -> None:
        match event:
            case AgendaClaimed(at=at):
                self._timeline(event).claimed_at = at.timestamp()
            case AgendaSucceeded(at=at, spent_s=spent_s):
                timeline = self._timeline(event)
                begun = (one.started_at for one in event.operations if one.started_at)
                timeline.started_at = min(begun, default=at).timestamp()
                self._end(timeline, at)
                timeline.spent_s = sum(spent_s.values())
                timeline.successes += 1
            case AgendaFailed(at=at, retryable=False) | AgendaRefused(at=at):
                timeline = self._timeline(event)
                self._end(timeline, at)
                timeline.has_failed = True
            case _:
                pass

    def _end(self, timeline: AgendaTimeline, at: datetime) -> None:
        self.ended += not timeline.ended_at
        timeline.ended_at = at.timestamp()

    def _timeline(self, event: LifecycleEvent) -> AgendaTimeline:
        return self.timelines.setdefault(event.agenda_id, AgendaTimeline())


@dataclass(frozen=True, slots=True)
class MeasuredAttempt:
    """One attempt as Kafka recorded it and as it was observed.

    Attributes:
        agenda_id: Whose attempt; one that a crash made the scheduler repeat has two.
        accepted_at: When ingest had it, in seconds since the epoch.
        requested_s: How long it was to run. What it took beyond that, the machine cost it:
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
    """An insight's decisions, and its attempts; blocks, so not for a running event loop."""
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
    """Every change of a weight, at the first round that used the new one."""
    known: dict[str, float] = {}
    for decision in history.decisions:
        for one in decision.customers:
            if known.get(one.customer_id, 1.0) != one.weight:
                known[one.customer_id] = one.weight
                at = decision.at.timestamp()
                yield ObservedWeight(at, CustomerId(one.customer_id), one.weight)
