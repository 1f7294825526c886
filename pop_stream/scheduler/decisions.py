"""The record of a round: who was chosen, and why the others still wait."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.backlog.whereabouts import ChosenAgenda
from pop_stream.core.events import EmissionLimit, RoundDecided
from pop_stream.core.fairness.flow import Flow
from pop_stream.core.fairness.queue import FairQueue
from pop_stream.core.gate import forecast
from pop_stream.core.values.ids import CustomerId
from pop_stream.scheduler.desk import InsightScheduler
from pop_stream.scheduler.rows import JournaledRound

_MAX_CUSTOMERS: Final = 50
_MAX_HELD_CUSTOMERS: Final = 10


def decided(
    scheduler: InsightScheduler,
    chosen: Sequence[ChosenAgenda],
    note: JournaledRound,
    *,
    limited_by: EmissionLimit,
) -> RoundDecided:
    """Describe the round just chosen.

    Args:
        scheduler: After the choice.
        chosen: In order of emission.
        note: When, by which record, and with how many slots it was chosen.
        limited_by: What keeps the desk from emitting more, its topic and its customers left
            aside.
    """
    backlog, at = scheduler.backlog, datetime.fromtimestamp(note.at, UTC)
    view = scheduler.figures_for_decision(at)
    counts = Counter[str](one.customer_id for one in chosen)
    return RoundDecided(
        insight_id=backlog.insight.id,
        at=at,
        round=backlog.rounds,
        algorithm=backlog.insight.algorithm,
        lag=note.lag,
        in_flight=note.in_flight,
        slots=note.slots,
        chosen=tuple(one.agenda_id for one in chosen),
        ready=backlog.ready,
        virtual_time=backlog.queue.virtual_time,
        customers=forecast.shares(
            _listed_flows(backlog.queue, counts),
            mean=view.mean_service,
            now=note.at,
            chosen=counts,
        ),
        gap=view.gap,
        bound=view.bound,
        waiting=_waiting(backlog, note, len(chosen), limited_by),
        delayed=backlog.waiting,
        held=backlog.held,
        partition=scheduler.partition,
        offset=note.offset,
        definitions=note.definitions,
    )


def _listed_flows(queue: FairQueue, chosen: Iterable[str]) -> list[Flow]:
    """Who was chosen, then who is next, then some that may not go."""
    flows = {one: queue.flow(CustomerId(one)) for one in chosen}
    flows |= {one.customer_id: one for one in queue.next_customers(_MAX_CUSTOMERS)}
    shown = dict(islice(flows.items(), _MAX_CUSTOMERS))
    shown |= {one.customer_id: one for one in queue.held(_MAX_HELD_CUSTOMERS)}
    return [*shown.values()]


def _waiting(
    backlog: Backlog, note: JournaledRound, chosen: int, limited_by: EmissionLimit
) -> str:
    if not backlog.ready:
        return ""
    if chosen < note.slots or not backlog.queue.may_pick(note.at):
        return "customer_caps"
    return limited_by or "depth"
