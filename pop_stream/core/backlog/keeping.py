"""What a backlog is kept as: deltas of absolute values, and becoming again what wrote them."""

from collections.abc import Iterable, Sequence
from math import inf

from msgspec.structs import replace

from pop_stream.core.backlog.costs import CostBook
from pop_stream.core.backlog.origins import Origins, is_comparable
from pop_stream.core.backlog.page import Page
from pop_stream.core.backlog.stock import Stock
from pop_stream.core.delta import Delta, Tags
from pop_stream.core.events import Origin, PlacedAgenda
from pop_stream.core.values.ids import CustomerId


class Keeping:
    """Tells what changed, and lays it over the pages again; see `Backlog`, its door.

    Args:
        stock: Whose changes are kept.

    Attributes:
        origins: Up to where placings, restarts and commands were heard.
    """

    def __init__(self, stock: Stock) -> None:
        self.origins = Origins()
        self._stock = stock
        self._changed = False

    def note_change(self) -> None:
        """Something changed that neither the slots nor the queue take note of."""
        self._changed = True

    def is_new(self, origin: Origin) -> bool:
        """Whether nothing of this origin was heard yet; from now on it was."""
        if not is_comparable(origin):
            return True
        is_new = self.origins.is_new(origin)
        self._changed |= is_new
        return is_new

    def take_delta(self) -> Delta | None:
        """What changed since the last call, or None."""
        stock = self._stock
        moved = stock.queue.take_moved()
        if not self._changed and not moved and not stock.slots.has_changed:
            return None
        self._changed = False
        learned, ratios = stock.costs.take_changed()
        return replace(
            self._delta(),
            slots=stock.slots.take_changed(),
            tags=moved,
            learned=learned,
            ratios=ratios,
            reruns=stock.reruns.take_changed(),
        )

    def snapshot(self) -> Delta:
        """The whole state but for the pages; idle customers are forgotten."""
        self._stock.queue.forget_idle()
        return self.state()

    def state(self) -> Delta:
        """The whole state but for the pages."""
        stock = self._stock
        return replace(
            self._delta(),
            slots=stock.slots.notes(),
            gone=dict(stock.slots.gone()),
            tags=stock.queue.all_tags(),
            learned=dict(stock.costs.learned),
            ratios=dict(stock.costs.ratios),
            reruns=stock.reruns.all(),
        )

    def restore(
        self,
        pages: Iterable[tuple[int, Sequence[PlacedAgenda]]],
        deltas: Iterable[Delta],
        now: float,
    ) -> list[Page]:
        """Lay the deltas over the pages; returns the pages that no delta knows.

        Their rows are all that a crash left of their placing, so they have yet to enter.
        """
        slots = self._stock.slots
        for number, agendas in pages:
            slots.add(number, agendas, latest=now or inf)
        clock: Sequence[float] = (0.0,)
        noted = 0
        tags: dict[CustomerId, Tags] = {}
        for delta in deltas:
            clock, noted = (delta.virtual_time, *delta.lower), delta.next_page
            for name, moved in delta.tags.items():
                known = tags.get(CustomerId(name), Tags(tag=0.0))
                tags[CustomerId(name)] = replace(moved, keys={**known.keys, **moved.keys})
            self._lay(delta)
        slots.sweep()
        self._stock.queue.now = now
        self._stock.fill_queue(clock, tags, before=noted)
        self._stock.resume(now, before=noted)
        self._changed = False
        unknown = (page for page in slots.pages() if page.number >= noted)
        return sorted(unknown, key=lambda page: page.number)

    def _delta(self) -> Delta:
        stock = self._stock
        virtual_time, *lower = stock.queue.clock
        return Delta(
            virtual_time=virtual_time,
            lower=tuple(lower),
            emitted=stock.emitted,
            claimed=stock.claimed,
            rounds=stock.rounds,
            next_page=stock.slots.next_number,
            origins=self.origins.noted(),
        )

    def _lay(self, delta: Delta) -> None:
        stock = self._stock
        stock.emitted, stock.claimed, stock.rounds = delta.emitted, delta.claimed, delta.rounds
        stock.slots.next_number = max(stock.slots.next_number, delta.next_page)
        self.origins.lay(delta.origins)
        stock.costs = CostBook(
            {**stock.costs.learned, **delta.learned}, {**stock.costs.ratios, **delta.ratios}
        )
        stock.reruns.lay(delta.reruns)
        stock.slots.lay(delta.gone, delta.slots)
