"""What a demo's lifecycle events add up to: waits, service, agendas done twice, evenness.

`RunStatistics` accumulates them; `contest_of` measures how evenly customers were served, by
the metrics of simulations and benchmarks, from recorded rounds. The rest is arithmetic:
percentiles, shares, and the time in which all were backlogged.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import fmean
from typing import Final

from pop_stream.lab.fairness_metrics.audit import measure_fairness
from pop_stream.lab.fairness_metrics.recorded import (
    ObservedAgenda,
    decisions_since,
    served_attempts,
)
from pop_stream.lab.fairness_metrics.service_log import ServedAttempt, service_log_of
from pop_stream.lab.replay.decisions_log import read_history
from pop_stream.model.errors import NotFoundError
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaFailed,
    AgendaRefused,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.settings import Settings


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
        """What fairness metrics need of it, once it has succeeded."""
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
        """The agendas of one customer."""
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


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile: a value that occurred, never one between two.

    Returns:
        None if there are no values.

    Raises:
        ValueError: If `percent` is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:  # noqa: PLR2004  # what a percentage is
        msg = f"a percentile lies above 0 and at most at 100, got {percent}"
        raise ValueError(msg)
    if not values:
        return None
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def contended_span(
    served: Mapping[str, Sequence[ServedAttempt]],
) -> tuple[float, float] | None:
    """The span in which every customer had agendas waiting, in seconds since the epoch.

    It begins when the scheduler had the first agenda of the last customer to come, and ends
    when it emitted the last one of the first that had none left; None if the customers'
    backlogs never overlapped.

    Args:
        served: By customer.
    """
    if not served or not all(served.values()):
        return None
    begin = max(min(one.arrived_at for one in own) for own in served.values())
    end = min(max(one.emitted_at for one in own) for own in served.values())
    return (begin, end) if begin < end else None


def service_within(served: Sequence[ServedAttempt], span: tuple[float, float]) -> float:
    """Worker-seconds of the agendas that were emitted within a span, its ends included."""
    begin, end = span
    return sum(one.spent for one in served if begin <= one.emitted_at <= end)


def throughput(run_statistics: RunStatistics) -> float:
    """Agendas per second of the second half of a run: the first is spent on gaining speed."""
    ends = sorted(
        min(one.successes) for one in run_statistics.by_agenda.values() if one.successes
    )
    half = len(ends) // 2
    seconds = (ends[-1] - ends[half]).total_seconds() if ends else 0.0
    return max(1.0, (len(ends) - half - 1) / seconds) if seconds else 1.0


_INSIGHT: Final = "files"
"""As in definitions.toml."""


@dataclass(frozen=True, slots=True)
class DemoEmission:
    """One emission of an agenda, with the size of its file in bytes."""

    served: ServedAttempt
    size: int


@dataclass(frozen=True, slots=True)
class ContestResult:
    """What customers were given while they competed; dated by emission, as it was decided.

    Attributes:
        jain: As `fairness_metrics.jain` has it; None if no two competed for long enough.
        competitors: How many customers it is taken over.
        span_s: How long all customers had agendas waiting.
        given: Worker-seconds in that span, by customer; nothing of those never served.
    """

    jain: float | None = None
    competitors: int = 0
    span_s: float = 0.0
    given: Mapping[str, float] | None = None


def contest_of(emissions: Sequence[DemoEmission], customers: Sequence[str]) -> ContestResult:
    """Measure how evenly customers were served by what was emitted, in any order.

    An agenda is as large as its file by all others': that it was interrupted for long makes
    none so large that it would take twenty of them to tell shares apart.

    Args:
        emissions: Of one run.
        customers: All that there are.
    """
    if not emissions:
        return ContestResult()
    log = service_log_of(one.served for one in emissions)
    a_byte = fmean(one.served.spent for one in emissions) / fmean(one.size for one in emissions)
    sizes = service_log_of(replace(one.served, spent=one.size * a_byte) for one in emissions)
    found = measure_fairness(log, sizes=sizes)
    own: dict[str, list[ServedAttempt]] = {name: [] for name in customers}
    for one in emissions:
        own[one.served.customer_id].append(one.served)
    span = contended_span(own)
    return ContestResult(
        jain=found.jain,
        competitors=found.competitors,
        span_s=span[1] - span[0] if span else 0.0,
        given={name: service_within(one, span) for name, one in own.items()} if span else None,
    )


def recorded_emissions(
    settings: Settings, run_statistics: RunStatistics, sizes: Mapping[str, int]
) -> Sequence[DemoEmission]:
    """All emissions of what succeeded; not to be called where an event loop runs.

    Args:
        settings: Where the topics are.
        run_statistics: Of the run.
        sizes: Bytes by agenda id.
    """
    observed = {
        name: one
        for name, demo_agenda in run_statistics.by_agenda.items()
        if (one := demo_agenda.observed)
    }
    if not observed:
        return []
    try:
        history = read_history(settings, _INSIGHT)
    except NotFoundError:
        return []
    own = decisions_since(history, min(one.submitted_at for one in observed.values()))
    return [
        DemoEmission(served, sizes[agenda.agenda_id])
        for agenda, served in served_attempts(own, observed)
    ]
