"""How evenly a run's customers were served, by the audit of simulations and benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from pop_stream.bus.history import read_history
from pop_stream.cli.demo.measures import contended_span, given
from pop_stream.cli.demo.tally import RunStatistics
from pop_stream.cli.served import served_attempts, decisions_since
from pop_stream.core.audits.audit import audit
from pop_stream.core.audits.service import ServedAttempt, service_log_of
from pop_stream.core.errors import NotFoundError
from pop_stream.settings import Settings

_INSIGHT: Final = "files"
"""As in definitions.toml."""


@dataclass(frozen=True, slots=True)
class DemoEmission:
    """One agenda's way, and how large it is: the bytes of its file."""

    served: ServedAttempt
    size: int


@dataclass(frozen=True, slots=True)
class ContestResult:
    """What customers were given while they competed; dated by emission, as it was decided.

    Attributes:
        jain: As `core.audits.contest` has it; None if no two competed for long enough.
        competitors: How many customers it is taken over.
        span_s: How long all customers had agendas waiting.
        given: Worker-seconds in that span, by customer; nothing of those never served.
    """

    jain: float | None = None
    competitors: int = 0
    span_s: float = 0.0
    given: Mapping[str, float] | None = None


def contest_of(emissions: Sequence[DemoEmission], customers: Sequence[str]) -> ContestResult:
    """Judge what was emitted, in any order.

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
    found = audit(log, sizes=sizes)
    own: dict[str, list[ServedAttempt]] = {name: [] for name in customers}
    for one in emissions:
        own[one.served.customer_id].append(one.served)
    span = contended_span(own)
    return ContestResult(
        jain=found.jain,
        competitors=found.competitors,
        span_s=span[1] - span[0] if span else 0.0,
        given={name: given(one, span) for name, one in own.items()} if span else None,
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
