"""Yesterday again: recorded rounds chosen anew, as they were or with other weights.

The inputs of the policy are all on record: what was placed, claimed and settled, how many
slots each round had and when, and which definitions were in force. So the same choices must
come out; and with other weights one sees what they would have changed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.backlog.whereabouts import ChosenAgenda
from pop_stream.core.definitions.definitions import Definitions
from pop_stream.core.events import RoundDecided
from pop_stream.core.gate.spread import spread
from pop_stream.core.simulation.beginnings import ReplayStart
from pop_stream.core.simulation.stage import (
    ReadyInput,
    ReplayState,
    InputCursor,
    start_of,
    apply_input,
    discard_writes,
    replayable_decisions,
)
from pop_stream.core.values.partitioning import partition_of


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """One round, as recorded and as chosen again."""

    recorded: RoundDecided
    chosen: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the same agendas were chosen in the same order."""
        return self.chosen == self.recorded.chosen


def final_decisions(decisions: Iterable[RoundDecided]) -> list[RoundDecided]:
    """The rounds that counted, in order.

    A round that was emitted but not kept, because of a crash in between, was decided again
    under the same number; the later record is what the table knows.
    """
    by_round = {decision.round: decision for decision in decisions}
    return [by_round[number] for number in sorted(by_round)]


def replay(
    inputs: Iterable[ReadyInput],
    decisions: Sequence[RoundDecided],
    definitions_at: Callable[[int], Definitions],
    known: Sequence[ReplayStart] = (),
) -> Iterator[ReplayedRound]:
    """Choose every recorded round again, from the first that can be begun with.

    Where the scheduler began anew, it goes on from what that knew.

    Args:
        inputs: All of the insight's events that are on record, by offset; each is looked at
            once and let go.
        decisions: As `final_decisions` gives them.
        definitions_at: Definitions by the version that was in force.
        known: States to begin with; without one, only round 1.
    """
    state = ReplayState(definitions_at)
    restarts = {one.round: one for one in known if one.begins}
    waiting = InputCursor(inputs)
    for decision in replayable_decisions(decisions, known):
        now = decision.at.timestamp()
        begin = restarts.get(decision.round) or start_of(decision, known, state)
        backlog = state.backlog_for(decision, begin)
        for one in waiting.take_up_to(decision.offset):
            if begin is None:
                apply_input(backlog, one)
        if begin is None:
            backlog.apply_due(now)
        chosen = backlog.choose(decision.slots, now)
        _mark_emitted(backlog, chosen, now)
        discard_writes(backlog)
        yield ReplayedRound(decision, tuple(one.agenda_id for one in chosen))


def _mark_emitted(backlog: Backlog, chosen: Sequence[ChosenAgenda], now: float) -> None:
    """Where they went is known by who passes them over."""
    partitions = backlog.insight.partitions
    keyed_partitions = (partition_of(one.agenda_id.encode(), partitions) for one in chosen)
    lines = spread(keyed_partitions, backlog.emitted_offsets.waiting(partitions))
    for one, partition in zip(chosen, lines, strict=True):
        backlog.emitted_offsets.send(one.ref, partition, now)
