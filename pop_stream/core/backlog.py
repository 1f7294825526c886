"""One insight's ready agendas: pages of slots, the fair queue over them, and what is out.

The bodies of agendas stay in the table; here are only ids, customers, costs and states, at
a few hundred bytes an agenda. Every change is also noted in a `Delta`, a set of absolute
values, so that the state after a restart is the pages with all deltas laid over them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from pop_stream.core.algorithms import ALGORITHMS
from pop_stream.core.costs import CostBook, bounded
from pop_stream.core.definitions import Insight
from pop_stream.core.delta import Delta, SlotNote, Tags
from pop_stream.core.events import Origin, PlacedAgenda, Settlement
from pop_stream.core.fairness import FairQueue, Pick
from pop_stream.core.flow import Aging, Flow, Share
from pop_stream.core.ids import CustomerId
from pop_stream.core.line import ref_in
from pop_stream.core.page import (
    CLAIMED,
    EMITTED,
    GONE,
    READY,
    Page,
    place_of,
    ref_of,
    slots_in,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One agenda of a round."""

    ref: int
    agenda_id: str
    customer_id: CustomerId
    attempt: int


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where an agenda is.

    Attributes:
        state: Of its slot.
        own_ahead: Agendas of its customer that go before it.
        cost: Worker-seconds it is taken to cost.
    """

    flow: Flow
    state: int
    own_ahead: int
    cost: float


class Backlog:
    """All that the scheduler knows of one insight; see the module.

    Args:
        insight: Its algorithm, and whether priorities are strict across customers.
        share_of: A customer's present share.
    """

    def __init__(self, insight: Insight, share_of: Callable[[CustomerId], Share]) -> None:
        self.costs = CostBook()
        self.emitted = 0
        self.claimed = 0
        self.unclaimed = 0
        self.rounds = 0
        self.next_page = 0
        self.insight = insight
        self._share_of = share_of
        self.queue = self._new_queue()
        self._pages: dict[int, Page] = {}
        self._places: dict[str, int] = {}
        self._types: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._out: dict[int, SlotNote] = {}
        self._attempts: dict[int, int] = {}
        self._origins: dict[int, tuple[int, int]] = {}
        self._changed_slots: dict[int, SlotNote] = {}
        self._changed_types: set[str] = set()
        self._changed = False
        self._emptied: list[int] = []

    @property
    def ready(self) -> int:
        """Agendas that wait."""
        return self.queue.ready

    @property
    def in_flight(self) -> int:
        """Agendas emitted and not settled."""
        return self.queue.in_flight

    # ---- arrivals ----

    def news(self, agendas: Sequence[PlacedAgenda], origins: Sequence[Origin]) -> list[int]:
        """Indices of the agendas that were not placed before, by origin and by id.

        Asking takes note of the origins, so ask once and then `place` them.
        """
        fresh: dict[str, int] = {}
        for index, agenda in enumerate(agendas):
            if not self._is_repeat(origins[index]) and agenda.agenda_id not in self._places:
                fresh.setdefault(agenda.agenda_id, index)
        return [*fresh.values()]

    def place(self, agendas: Sequence[PlacedAgenda]) -> int:
        """Add a page of new agendas, at most `PAGE_SLOTS`; returns its number."""
        page = self._add_page(self.next_page, agendas)
        self._push(page)
        self._changed = True
        return page.number

    # ---- emission ----

    def choose(self, slots: int, now: float = 0.0) -> list[Chosen]:
        """Choose up to `slots` agendas in fair order and count them as out.

        Args:
            slots: Most to choose; zero or less chooses none.
            now: The present instant, in seconds since the epoch.
        """
        chosen: list[Chosen] = []
        while len(chosen) < slots:
            pick = self.queue.pick(self._cost, now)
            if pick is None:
                break
            attempt = self._emitted_note(pick).attempt
            page, slot = self._at(pick.ref)
            wait_s = max(0.0, now - page.arrivals[slot])
            flow = self.queue.flow(pick.customer_id)
            flow.note_emission(cost=pick.cost, wait_s=wait_s, now=now)
            chosen.append(Chosen(pick.ref, page.ids[slot], pick.customer_id, attempt))
        self.emitted += len(chosen)
        self.rounds += bool(chosen)
        return chosen

    def claim(self, agenda_id: str, attempt: int) -> bool:
        """A puller holds the attempt; False if it is not one that is out unclaimed."""
        note = self._out_note(agenda_id, attempt)
        if note is None or note.state != EMITTED:
            return False
        self._count_claim(note)
        self._out[note.ref] = claimed = replace(note, state=CLAIMED)
        self._note(claimed)
        return True

    def settle(self, settlement: Settlement) -> bool:
        """An attempt ended: free its slot, correct its cost, forget the agenda.

        Returns:
            False if the attempt is not out: told before, or outdated.
        """
        note = self._out_note(settlement.agenda_id, settlement.attempt)
        if note is None:
            return False
        self._free(note, settlement.spent_s)
        self._forget(note.ref)
        return True

    def give_back(self, agenda_id: str, attempt: int) -> bool:
        """The attempt came to nothing: the agenda waits again, first of its priority.

        Returns:
            False if the attempt is not out: told before, or outdated.
        """
        note = self._out_note(agenda_id, attempt)
        if note is None:
            return False
        self._free(note, {})
        self._out.pop(note.ref)
        self._attempts[note.ref] = attempt + 1
        self._note(SlotNote(ref=note.ref, state=READY, attempt=attempt + 1))
        page, slot = self._at(note.ref)
        entry = self._entry(page, slot, resumed=True)
        self.queue.push(page.customers[slot], entry, page.keys[slot])
        return True

    def withdraw(self, agenda_id: str) -> bool:
        """Take a waiting agenda out for good; False if it does not wait."""
        ref = self._places.get(agenda_id, -1)
        if ref < 0 or ref in self._out:
            return False
        page, slot = self._at(ref)
        entry = self._entry(page, slot, resumed=ref in self._attempts)
        self.queue.withdraw(page.customers[slot], entry, page.keys[slot])
        self._forget(ref)
        return True

    # ---- questions ----

    def whereabouts(self, agenda_id: str) -> Whereabouts | None:
        """Where an agenda is; None if it is not here, any more or yet."""
        ref = self._places.get(agenda_id)
        if ref is None:
            return None
        page, slot = self._at(ref)
        state = page.states[slot]
        entry = self._entry(page, slot, resumed=ref in self._attempts)
        flow = self.queue.flow(page.customers[slot])
        ahead = flow.line.ahead(entry) if state == READY else 0
        return Whereabouts(flow, state, ahead, self._cost(ref))

    def cost_of(self, entry: int) -> float:
        """Worker-seconds of a waiting agenda, by its entry in the queue."""
        return self._cost(ref_in(entry))

    # ---- persistence ----

    def take_delta(self) -> Delta | None:
        """What changed since the last call, or None."""
        moved = self.queue.take_moved()
        if not self._changed and not moved:
            return None
        delta = self._delta(
            slots=tuple(self._changed_slots.values()),
            tags=moved,
            learned={one: self.costs.learned[one] for one in self._changed_types},
        )
        self._changed_slots = {}
        self._changed_types = set()
        self._changed = False
        return delta

    def take_emptied(self) -> list[int]:
        """Numbers of the pages that became empty since the last call."""
        emptied, self._emptied = self._emptied, []
        return emptied

    def snapshot(self) -> Delta:
        """The whole state but for the pages; replaces all deltas so far."""
        self.queue.forget_idle()
        self._types = {}
        partly = (page for page in self._pages.values() if page.left < len(page.states))
        resumed = (
            SlotNote(ref=ref, state=READY, attempt=attempt)
            for ref, attempt in self._attempts.items()
            if ref not in self._out
        )
        return self._delta(
            slots=(*self._out.values(), *resumed),
            gone={str(page.number): page.gone() for page in partly},
            tags=self.queue.all_tags(),
            learned=self.costs.learned,
        )

    def restore(
        self, pages: Iterable[tuple[int, Sequence[PlacedAgenda]]], deltas: Iterable[Delta]
    ) -> None:
        """Become what wrote these pages and deltas, the deltas oldest first.

        Only for a new backlog. Pages whose agendas are all gone are listed by
        `take_emptied`, as their deletion may not have been written.
        """
        for number, agendas in sorted(pages):
            self._add_page(number, agendas)
        clock: Sequence[float] = (0.0,)
        noted = 0
        tags: dict[CustomerId, Tags] = {}
        for delta in deltas:
            clock, noted = (delta.virtual_time, *delta.lower), delta.next_page
            for name, moved in delta.tags.items():
                known = tags.get(CustomerId(name), Tags(tag=0.0))
                tags[CustomerId(name)] = replace(moved, keys={**known.keys, **moved.keys})
            self._lay(delta)
        for page in [*self._pages.values()]:
            self._sweep(page)
        self._refill_queue(clock, tags, before=noted)
        for number in sorted(self._pages):
            if number >= noted:  # its row is all that a crash left of its placing
                self._push(self._pages[number])
        self._changed = False

    def reconfigure(self, insight: Insight) -> None:
        """Take up a changed insight and changed shares, for all that waits."""
        before, self.insight = self.insight, insight
        if (before.algorithm, before.aging_s) == (insight.algorithm, insight.aging_s):
            self.queue.reshare()
            return
        # What one order gave is no debt in another: all start at the present.
        present = max([self.queue.virtual_time, *(f.tag for f in self.queue.flows())])
        self.queue = self._new_queue()
        self._refill_queue((present,), {}, before=self.next_page)

    # ---- inside ----

    def _new_queue(self) -> FairQueue:
        aging_s = self.insight.aging_s
        aging = Aging(aging_s, self._arrived_at) if aging_s is not None else None
        return FairQueue(ALGORITHMS[self.insight.algorithm], self._share_of, aging)

    def _is_repeat(self, origin: Origin) -> bool:
        if origin.partition < 0:
            return False
        here = (origin.offset, origin.index)
        if here <= self._origins.get(origin.partition, (-1, -1)):
            return True
        self._origins[origin.partition] = here
        self._changed = True
        return False

    def _add_page(self, number: int, agendas: Sequence[PlacedAgenda]) -> Page:
        page = Page(number, agendas)
        self._pages[number] = page
        self.next_page = max(self.next_page, number + 1)
        for slot, types in enumerate(page.types):
            self._places[page.ids[slot]] = ref_of(number, slot)
            page.types[slot] = self._types.setdefault(types, types)
        return page

    def _at(self, ref: int) -> tuple[Page, int]:
        number, slot = place_of(ref)
        return self._pages[number], slot

    def _entry(self, page: Page, slot: int, *, resumed: bool) -> int:
        return self.queue.algorithm.entry(
            priority=page.priorities[slot],
            resumed=resumed,
            rank=page.ranks[slot],
            ref=ref_of(page.number, slot),
        )

    def _cost(self, ref: int) -> float:
        page, slot = self._at(ref)
        return self.costs.estimate(page.types[slot], page.declared_cost(slot))

    def _arrived_at(self, ref: int) -> float:
        page, slot = self._at(ref)
        return page.arrivals[slot]

    def _out_note(self, agenda_id: str, attempt: int) -> SlotNote | None:
        """The note of an attempt that is out; one that a crash made forgotten is out again."""
        ref = self._places.get(agenda_id)
        if ref is None or self._attempts.get(ref, 1) != attempt:
            return None
        return self._out.get(ref) or self._recalled(ref)

    def _recalled(self, ref: int) -> SlotNote:
        page, slot = self._at(ref)
        entry = self._entry(page, slot, resumed=ref in self._attempts)
        pick = self.queue.take(
            page.customers[slot], entry, page.keys[slot], cost=self._cost(ref)
        )
        self.emitted += 1
        return self._emitted_note(pick)

    def _emitted_note(self, pick: Pick) -> SlotNote:
        note = SlotNote(
            ref=pick.ref,
            state=EMITTED,
            attempt=self._attempts.get(pick.ref, 1),
            charge=pick.charge,
            cost=pick.cost,
        )
        self._note(note)
        self._out[pick.ref] = note
        self.unclaimed += 1
        return note

    def _count_claim(self, note: SlotNote) -> None:
        if note.state == EMITTED:
            self.unclaimed -= 1
            self.claimed += 1

    def _free(self, note: SlotNote, spent_s: Mapping[str, float]) -> None:
        """Give the slot back; put the tag right and learn, if costs are told."""
        self._count_claim(note)
        page, slot = self._at(note.ref)
        correction = 0.0
        if spent_s:
            correction = self.queue.algorithm.correction(
                spent=bounded(sum(spent_s.values())), cost=note.cost, charge=note.charge
            )
            self.costs.learn(page.types[slot], spent_s)
            self._changed_types.update(self.costs.learned.keys() & spent_s.keys())
        self.queue.settle(page.customers[slot], correction=correction)

    def _note(self, note: SlotNote) -> None:
        page, slot = self._at(note.ref)
        page.states[slot] = note.state
        self._changed_slots[note.ref] = note
        self._changed = True

    def _forget(self, ref: int) -> None:
        page, slot = self._at(ref)
        self._note(SlotNote(ref=ref, state=GONE))
        self._places.pop(page.ids[slot], None)
        self._out.pop(ref, None)
        self._attempts.pop(ref, None)
        page.forget(slot)
        self._drop_if_empty(page)

    def _drop_if_empty(self, page: Page) -> None:
        if not page.left:
            del self._pages[page.number]
            self._emptied.append(page.number)

    def _delta(
        self,
        *,
        slots: tuple[SlotNote, ...],
        tags: Mapping[str, Tags],
        learned: Mapping[str, float],
        gone: Mapping[str, str] | None = None,
    ) -> Delta:
        virtual_time, *lower = self.queue.clock
        return Delta(
            virtual_time=virtual_time,
            lower=tuple(lower),
            emitted=self.emitted,
            claimed=self.claimed,
            rounds=self.rounds,
            next_page=self.next_page,
            slots=slots,
            gone=dict(gone or {}),
            tags=dict(tags),
            origins={str(partition): at for partition, at in self._origins.items()},
            learned=dict(learned),
        )

    def _lay(self, delta: Delta) -> None:
        self.emitted, self.claimed, self.rounds = delta.emitted, delta.claimed, delta.rounds
        self.next_page = max(self.next_page, delta.next_page)
        self._origins.update({int(one): at for one, at in delta.origins.items()})
        self.costs = CostBook({**self.costs.learned, **delta.learned})
        for number, bitmap in delta.gone.items():
            page = self._pages.get(int(number))
            for slot in slots_in(bitmap) if page else ():
                self._lay_note(SlotNote(ref=ref_of(int(number), slot), state=GONE))
        for note in delta.slots:
            self._lay_note(note)

    def _lay_note(self, note: SlotNote) -> None:
        number, slot = place_of(note.ref)
        if number not in self._pages:
            return
        self._pages[number].states[slot] = note.state
        self._out.pop(note.ref, None)
        self._attempts.pop(note.ref, None)
        if note.state in {EMITTED, CLAIMED}:
            self._out[note.ref] = note
        if note.attempt > 1:
            self._attempts[note.ref] = note.attempt

    def _sweep(self, page: Page) -> None:
        """Forget what the deltas say is gone from a page just read."""
        for slot, state in enumerate(page.states):
            if state == GONE:
                self._places.pop(page.ids[slot], None)
                page.forget(slot)
        self._drop_if_empty(page)

    def _push(self, page: Page) -> None:
        for slot, customer_id in enumerate(page.customers):
            entry = self._entry(page, slot, resumed=False)
            self.queue.push(customer_id, entry, page.keys[slot])

    def _refill_queue(
        self, clock: Sequence[float], tags: Mapping[CustomerId, Tags], *, before: int
    ) -> None:
        """Fill a new queue from the pages with numbers below `before`."""
        entries: dict[CustomerId, dict[str, list[int]]] = {}
        in_flight: dict[CustomerId, int] = {}
        for page in (page for page in self._pages.values() if page.number < before):
            for slot, state in enumerate(page.states):
                customer_id = page.customers[slot]
                if state == READY:
                    resumed = ref_of(page.number, slot) in self._attempts
                    entry = self._entry(page, slot, resumed=resumed)
                    by_key = entries.setdefault(customer_id, {})
                    key = page.keys[slot] if self.queue.algorithm.by_key else ""
                    by_key.setdefault(key, []).append(entry)
                elif state != GONE:
                    in_flight[customer_id] = in_flight.get(customer_id, 0) + 1
        self.unclaimed = sum(note.state == EMITTED for note in self._out.values())
        self.queue.restore(clock=clock, tags=tags, entries=entries, in_flight=in_flight)
