"""Makes the deltas of a backlog, and restores one from pages and deltas.

Also which agendas and commands were applied already, known by the offsets they came from:
events of `pop.ready` may come twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from pop_stream.model.events.scheduling import NO_ORIGIN, Origin, RoutedAgenda
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.agenda_index import BacklogPage
from pop_stream.policy.backlog.series import PlacedSeries
from pop_stream.policy.backlog.state import BacklogState
from pop_stream.policy.delta import Delta, FairnessState
from pop_stream.policy.fairness.cost_model import CostModel


class PlacedOffsets:
    """The last offset and index placed of every partition that agendas came from."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def record_if_new(self, origin: Origin) -> bool:
        """Whether it is after all recorded of its partition; a second call returns False."""
        here = (origin.offset, origin.index)
        if here <= self._last.get(origin.partition, (-1, -1)):
            return False
        self._last[origin.partition] = here
        return True

    def as_dict(self) -> dict[str, tuple[int, int]]:
        """The form that deltas have."""
        return {str(partition): at for partition, at in self._last.items()}

    def apply(self, noted: Mapping[str, tuple[int, int]]) -> None:
        """Apply one delta's values, oldest delta first."""
        self._last.update({int(partition): at for partition, at in noted.items()})


def is_comparable(origin: Origin) -> bool:
    """Whether it names a partition; others are known by agenda id alone."""
    return origin.partition != NO_ORIGIN


class BacklogSnapshot:
    """Collects what changed, and applies it again after a restart; called by `Backlog` alone.

    Args:
        backlog: Whose changes they are.

    Attributes:
        origins: Up to where agendas, reruns and commands were applied.
    """

    def __init__(self, backlog: BacklogState) -> None:
        self.origins = PlacedOffsets()
        self._backlog = backlog
        self._changed = False

    def mark_changed(self) -> None:
        """Something changed that neither the index nor the queue records."""
        self._changed = True

    def record_if_new(self, origin: Origin) -> bool:
        """Whether nothing of this origin was applied yet; a second call returns False."""
        if not is_comparable(origin):
            return True
        record_if_new = self.origins.record_if_new(origin)
        self._changed |= record_if_new
        return record_if_new

    def drain_delta(self) -> Delta | None:
        """What changed since the last call, or None."""
        backlog = self._backlog
        moved = backlog.queue.drain_moved()
        if not self._changed and not moved and not backlog.index.has_changed:
            return None
        self._changed = False
        learned, ratios, usual = backlog.costs.drain_changed()
        return replace(
            self._delta(),
            records=backlog.index.drain_changed(),
            fairness=moved,
            learned=learned,
            ratios=ratios,
            usual=usual,
            reruns=backlog.reruns.drain_changed(),
            series=backlog.series.drain_changed(),
            health=backlog.health.drain_changed(),
            key_ends=backlog.keys.drain_changed(),
        )

    def snapshot(self) -> Delta:
        """The whole state but for the pages; idle customers are forgotten."""
        self._backlog.queue.forget_idle()
        return self.state()

    def state(self) -> Delta:
        """The whole state but for the pages."""
        backlog = self._backlog
        return replace(
            self._delta(),
            records=backlog.index.records(),
            gone=dict(backlog.index.gone()),
            fairness=backlog.queue.all_fairness_states(),
            learned=dict(backlog.costs.learned),
            ratios=dict(backlog.costs.ratios),
            usual=dict(backlog.costs.usual),
            reruns=backlog.reruns.all(),
            series=backlog.series.all(),
            health=backlog.health.all(),
            key_ends=backlog.keys.all_ends(),
        )

    def restore(
        self,
        pages: Iterable[tuple[int, Sequence[RoutedAgenda]]],
        deltas: Iterable[Delta],
        now: float,
    ) -> list[BacklogPage]:
        """Apply the deltas to the pages; returns the pages that no delta knows.

        A page's row is written before its delta. A crash between the two leaves the row alone,
        so the caller adds such a page as if it had just come.
        """
        index = self._backlog.index
        placed = PlacedSeries()
        for number, agendas in pages:
            index.add(number, agendas, latest=now or inf)
            for agenda in agendas:
                placed.record_if_new(agenda)
        presents: Sequence[float] = (0.0,)
        noted = depth = 0
        saved: dict[CustomerId, FairnessState] = {}
        for delta in deltas:
            presents, depth, noted = delta.presents, delta.depth, delta.next_page
            for name, moved in delta.fairness.items():
                known = saved.get(CustomerId(name), FairnessState(tag=0.0))
                saved[CustomerId(name)] = moved.merged_onto(known)
            self._apply(delta)
        # Of pages that no delta knows, nothing else says how far their series came.
        self._backlog.series.apply(placed.all())
        index.rebuild()
        self._backlog.queue.now = now
        self._backlog.rebuild_queue(presents, depth, saved, before=noted)
        self._backlog.resume(now, before=noted)
        self._changed = False
        unknown = (page for page in index.pages() if page.number >= noted)
        return sorted(unknown, key=lambda page: page.number)

    def _delta(self) -> Delta:
        backlog = self._backlog
        return Delta(
            presents=backlog.queue.presents,
            depth=backlog.queue.depth,
            emitted=backlog.emitted,
            claimed=backlog.claimed,
            rounds=backlog.rounds,
            next_page=backlog.index.next_number,
            origins=self.origins.as_dict(),
        )

    def _apply(self, delta: Delta) -> None:
        backlog = self._backlog
        backlog.emitted, backlog.claimed, backlog.rounds = (
            delta.emitted,
            delta.claimed,
            delta.rounds,
        )
        backlog.index.next_number = max(backlog.index.next_number, delta.next_page)
        self.origins.apply(delta.origins)
        backlog.costs = CostModel(
            {**backlog.costs.learned, **delta.learned},
            {**backlog.costs.ratios, **delta.ratios},
            {**backlog.costs.usual, **delta.usual},
        )
        backlog.reruns.apply(delta.reruns)
        backlog.series.apply(delta.series)
        backlog.health.apply(delta.health)
        backlog.keys.apply(delta.key_ends)
        backlog.index.apply(delta.gone, delta.records)
