"""One insight's ready agendas: pages of slots, the fair queue over them, and what is out.

The bodies of agendas stay in the table; here are only ids, customers, costs and states, at
a few hundred bytes an agenda. Every change is also noted in a `Delta`, a set of absolute
values, so that the state after a restart is the pages with all deltas laid over them.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Final

from msgspec import field
from msgspec.structs import replace

from pop_stream.core.costs import CostBook
from pop_stream.core.definitions import AlgorithmName
from pop_stream.core.events import Origin, PlacedAgenda, Settlement, Struct
from pop_stream.core.fairness import ALGORITHMS, FairQueue, Share
from pop_stream.core.ids import CustomerId

SLOT_BITS: Final = 9
PAGE_SLOTS: Final = 1 << SLOT_BITS
"""Most agendas of a page."""

READY, EMITTED, CLAIMED, GONE = range(4)
"""The states of a slot. A page whose slots are all gone is deleted."""

_SLOT_MASK: Final = PAGE_SLOTS - 1
_UNDECLARED: Final = -1.0


class SlotNote(Struct, frozen=True, array_like=True):
    """What a slot became.

    Attributes:
        ref: Page number and slot in one integer, as `ref_of` makes it.
        charge: What its customer's tag was moved by; only while it is out.
    """

    ref: int
    state: int
    attempt: int = 1
    charge: float = 0.0
    cost: float = 0.0


class Delta(Struct, frozen=True):
    """Values that replace what was known before; the newest delta is right.

    Attributes:
        slots: States of slots that changed.
        gone: By page number, a hexadecimal bitmap of gone slots, least significant first.
        tags: Start tags of customers, in worker-seconds per weight.
        next_page: Page numbers are never used twice, or old notes would fit new pages.
        origins: By partition of `pop.submissions`, the last offset and index placed.
        learned: Worker-seconds by operation type.
    """

    virtual_time: float
    emitted: int
    rounds: int
    claimed: int
    next_page: int
    slots: tuple[SlotNote, ...] = ()
    gone: dict[str, str] = field(default_factory=dict)
    tags: dict[str, float] = field(default_factory=dict)
    origins: dict[str, tuple[int, int]] = field(default_factory=dict)
    learned: dict[str, float] = field(default_factory=dict)

    def parts(self, most: int) -> "list[Delta]":
        """The same values as several deltas, each with at most `most` entries of a kind."""
        slots, gone, tags = [*self.slots], [*self.gone.items()], [*self.tags.items()]
        count = max(1, *(-(-len(kind) // most) for kind in (slots, gone, tags)))
        return [
            replace(
                self,
                slots=tuple(slots[start : start + most]),
                gone=dict(gone[start : start + most]),
                tags=dict(tags[start : start + most]),
            )
            for start in range(0, count * most, most)
        ]


@dataclass(frozen=True, slots=True)
class Chosen:
    """One agenda of a round."""

    ref: int
    agenda_id: str
    customer_id: CustomerId
    attempt: int


class Page:
    """The columns of up to `PAGE_SLOTS` agendas."""

    __slots__ = ("costs", "customers", "ids", "left", "number", "priorities", "states", "types")

    def __init__(self, number: int, agendas: Sequence[PlacedAgenda | None]) -> None:
        self.number = number
        self.ids: list[str | None] = []
        self.customers: list[CustomerId | None] = []
        self.types: list[tuple[str, ...]] = []
        self.costs = array("d")
        self.priorities = bytearray()
        self.states = bytearray()
        for agenda in agendas:
            self._append(agenda)
        self.left = len(self.states) - self.states.count(GONE)

    def _append(self, agenda: PlacedAgenda | None) -> None:
        if agenda is None:
            self.ids.append(None)
            self.customers.append(None)
            self.types.append(())
            self.costs.append(_UNDECLARED)
            self.priorities.append(0)
            self.states.append(GONE)
            return
        self.ids.append(agenda.agenda_id)
        self.customers.append(CustomerId(intern(agenda.customer_id)))
        self.types.append(agenda.operation_types)
        self.costs.append(_UNDECLARED if agenda.cost_s is None else agenda.cost_s)
        self.priorities.append(agenda.priority)
        self.states.append(READY)


def ref_of(page: int, slot: int) -> int:
    """A slot's place in the insight's backlog; later pages and slots are greater."""
    return page << SLOT_BITS | slot


def place_of(ref: int) -> tuple[int, int]:
    """Page number and slot of a ref."""
    return ref >> SLOT_BITS, ref & _SLOT_MASK


class Backlog:
    """All that the scheduler knows of one insight; see the module.

    Args:
        algorithm: How its customers take turns.
        share_of: A customer's present share.
    """

    def __init__(
        self, algorithm: AlgorithmName, share_of: Callable[[CustomerId], Share]
    ) -> None:
        self.costs = CostBook()
        self.emitted = 0
        self.claimed = 0
        self.rounds = 0
        self.next_page = 0
        self.algorithm_name = algorithm
        self._share_of = share_of
        self.queue = FairQueue(ALGORITHMS[algorithm], share_of)
        self._pages: dict[int, Page] = {}
        self._places: dict[str, int] = {}
        self._types: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._out: dict[int, SlotNote] = {}
        self._unclaimed = 0
        self._attempts: dict[int, int] = {}
        self._origins: dict[int, tuple[int, int]] = {}
        self._changed_slots: dict[int, SlotNote] = {}
        self._changed_customers: set[CustomerId] = set()
        self._changed_types: set[str] = set()
        self._changed = False
        self._emptied: list[int] = []

    @property
    def ready(self) -> int:
        """Agendas that wait."""
        return self.queue.ready

    @property
    def unclaimed(self) -> int:
        """Agendas emitted that no puller is known to have claimed."""
        return self._unclaimed

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is out."""
        return not self._places

    # ---- arrivals ----

    def news(self, agendas: Sequence[PlacedAgenda], origins: Sequence[Origin]) -> list[int]:
        """Indices of the agendas that were not placed before, by origin and by id.

        Asking takes note of the origins, so ask once and then `place` them.
        """
        fresh: list[int] = []
        ids: set[str] = set()
        for index, agenda in enumerate(agendas):
            if self._is_repeat(origins[index]) or agenda.agenda_id in self._places:
                continue
            if agenda.agenda_id not in ids:
                ids.add(agenda.agenda_id)
                fresh.append(index)
        return fresh

    def place(self, agendas: Sequence[PlacedAgenda]) -> int:
        """Add a page of new agendas, at most `PAGE_SLOTS`; returns its number."""
        page = self._add_page(self.next_page, agendas)
        for slot, agenda in enumerate(agendas):
            entry = self._entry(page, slot, resumed=False)
            self.queue.push(CustomerId(agenda.customer_id), entry)
        return page.number

    # ---- emission ----

    def choose(self, slots: int) -> list[Chosen]:
        """Choose up to `slots` agendas in fair order and count them as out."""
        chosen: list[Chosen] = []
        while len(chosen) < slots:
            pick = self.queue.pick(self._cost)
            if pick is None:
                break
            note = SlotNote(
                ref=pick.ref,
                state=EMITTED,
                attempt=self._attempts.get(pick.ref, 1),
                charge=pick.charge,
                cost=pick.cost,
            )
            self._note(note)
            self._out[pick.ref] = note
            self._unclaimed += 1
            self._changed_customers.add(pick.customer_id)
            chosen.append(Chosen(pick.ref, self._id(pick.ref), pick.customer_id, note.attempt))
        self.emitted += len(chosen)
        self.rounds += bool(chosen)
        return chosen

    def claim(self, agenda_id: str, attempt: int) -> bool:
        """A puller holds the attempt; False if it is not the one that is out unclaimed."""
        note = self._out_note(agenda_id, attempt)
        if note is None or note.state != EMITTED:
            return False
        self._unclaimed -= 1
        self.claimed += 1
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
        if note.state == EMITTED:
            self._unclaimed -= 1
            self.claimed += 1
        page, slot = self._pages[note.ref >> SLOT_BITS], note.ref & _SLOT_MASK
        customer_id = self._customer(note.ref)
        correction = 0.0
        if settlement.spent_s:
            correction = self._correction(note, settlement, customer_id)
            self.costs.learn(page.types[slot], settlement.spent_s)
            self._changed_types.update(self.costs.learned.keys() & settlement.spent_s.keys())
        self.queue.settle(customer_id, correction=correction)
        self._changed_customers.add(customer_id)
        self._forget(note.ref)
        return True

    # ---- persistence ----

    def take_delta(self) -> Delta | None:
        """What changed since the last call, or None."""
        if not self._changed:
            return None
        delta = self._delta(
            slots=tuple(self._changed_slots.values()),
            tags={one: self.queue.flow(one).tag for one in self._changed_customers},
            learned={one: self.costs.learned[one] for one in self._changed_types},
        )
        self._changed_slots = {}
        self._changed_customers = set()
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
        return self._delta(
            slots=tuple(self._out.values()),
            gone={
                str(page.number): _bitmap(page.states)
                for page in self._pages.values()
                if page.left < len(page.states)
            },
            tags={flow.customer_id: flow.tag for flow in self.queue.flows()},
            learned=self.costs.learned,
        )

    def restore(
        self,
        pages: Iterable[tuple[int, Sequence[PlacedAgenda | None]]],
        deltas: Iterable[Delta],
    ) -> None:
        """Become what wrote these pages and deltas, the deltas oldest first.

        Only for a new backlog. Pages whose agendas are all gone are listed by
        `take_emptied`, as their deletion may not have been written.
        """
        for number, agendas in sorted(pages):
            self._add_page(number, agendas)
        virtual_time, tags = 0.0, {}
        for delta in deltas:
            virtual_time = delta.virtual_time
            tags.update({CustomerId(one): tag for one, tag in delta.tags.items()})
            self._lay(delta)
        self._refill_queue(virtual_time, tags)
        for page in [*self._pages.values()]:
            if not page.left:
                self._drop(page)
        self._changed_slots = {}
        self._changed = False

    def reconfigure(self, algorithm: AlgorithmName) -> None:
        """Take up changed shares and, if it changed, another algorithm, for all that waits."""
        if algorithm == self.algorithm_name:
            self.queue.reshare()
            return
        tags = {flow.customer_id: flow.tag for flow in self.queue.flows()}
        virtual_time = self.queue.virtual_time
        self.algorithm_name = algorithm
        self.queue = FairQueue(ALGORITHMS[algorithm], self._share_of)
        self._refill_queue(virtual_time, tags)

    # ---- inside ----

    def _is_repeat(self, origin: Origin) -> bool:
        seen = self._origins.get(origin.partition, (-1, -1))
        here = (origin.offset, origin.index)
        if origin.partition < 0:
            return False
        if here <= seen:
            return True
        self._origins[origin.partition] = here
        self._changed = True
        return False

    def _add_page(self, number: int, agendas: Sequence[PlacedAgenda | None]) -> Page:
        page = Page(number, agendas)
        self._pages[number] = page
        self.next_page = max(self.next_page, number + 1)
        for slot, agenda_id in enumerate(page.ids):
            if agenda_id is not None:
                self._places[agenda_id] = ref_of(number, slot)
                types = page.types[slot]
                page.types[slot] = self._types.setdefault(types, types)
        return page

    def _entry(self, page: Page, slot: int, *, resumed: bool) -> int:
        return self.queue.algorithm.entry(
            priority=page.priorities[slot], resumed=resumed, ref=ref_of(page.number, slot)
        )

    def _cost(self, ref: int) -> float:
        page, slot = self._pages[ref >> SLOT_BITS], ref & _SLOT_MASK
        declared = page.costs[slot]
        return self.costs.estimate(page.types[slot], None if declared < 0 else declared)

    def _id(self, ref: int) -> str:
        agenda_id = self._pages[ref >> SLOT_BITS].ids[ref & _SLOT_MASK]
        if agenda_id is None:
            msg = f"slot {ref} is empty"
            raise LookupError(msg)
        return agenda_id

    def _customer(self, ref: int) -> CustomerId:
        customer_id = self._pages[ref >> SLOT_BITS].customers[ref & _SLOT_MASK]
        if customer_id is None:
            msg = f"slot {ref} is empty"
            raise LookupError(msg)
        return customer_id

    def _out_note(self, agenda_id: str, attempt: int) -> SlotNote | None:
        note = self._out.get(self._places.get(agenda_id, -1))
        return note if note is not None and note.attempt == attempt else None

    def _correction(
        self, note: SlotNote, settlement: Settlement, customer_id: CustomerId
    ) -> float:
        """True charge less the charge made, at the weight that charge was made with."""
        spent = max(sum(settlement.spent_s.values()), 0.0)
        weight = self.queue.flow(customer_id).share.weight
        at_weight = note.cost / note.charge if note.charge > 0 else weight
        if self.algorithm_name == "round_robin":
            return 0.0
        return (spent - note.cost) / at_weight

    def _note(self, note: SlotNote) -> None:
        self._pages[note.ref >> SLOT_BITS].states[note.ref & _SLOT_MASK] = note.state
        self._changed_slots[note.ref] = note
        self._changed = True

    def _forget(self, ref: int) -> None:
        page, slot = self._pages[ref >> SLOT_BITS], ref & _SLOT_MASK
        self._note(SlotNote(ref=ref, state=GONE))
        self._places.pop(page.ids[slot] or "", None)
        self._out.pop(ref, None)
        self._attempts.pop(ref, None)
        page.ids[slot] = None
        page.left -= 1
        if not page.left:
            self._drop(page)

    def _drop(self, page: Page) -> None:
        self._pages.pop(page.number, None)
        self._emptied.append(page.number)

    def _delta(
        self,
        *,
        slots: tuple[SlotNote, ...],
        tags: Mapping[str, float],
        learned: Mapping[str, float],
        gone: Mapping[str, str] | None = None,
    ) -> Delta:
        return Delta(
            virtual_time=self.queue.virtual_time,
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
        self._origins.update({int(one): at for one, at in delta.origins.items()})
        self.next_page = max(self.next_page, delta.next_page)
        self.costs = CostBook({**self.costs.learned, **delta.learned})
        for number, bitmap in delta.gone.items():
            page = self._pages.get(int(number))
            if page is not None:
                for slot in _slots_in(bitmap):
                    page.states[slot] = GONE
        for note in delta.slots:
            self._lay_note(note)

    def _lay_note(self, note: SlotNote) -> None:
        page, slot = self._pages.get(note.ref >> SLOT_BITS), note.ref & _SLOT_MASK
        if page is None or page.ids[slot] is None:
            return
        page.states[slot] = note.state
        self._out.pop(note.ref, None)
        if note.state in {EMITTED, CLAIMED}:
            self._out[note.ref] = note
        if note.attempt > 1:
            self._attempts[note.ref] = note.attempt

    def _refill_queue(self, virtual_time: float, tags: Mapping[CustomerId, float]) -> None:
        entries: dict[CustomerId, list[int]] = {}
        in_flight: dict[CustomerId, int] = {}
        for page in self._pages.values():
            self._sweep(page)
            for slot, state in enumerate(page.states):
                customer_id = page.customers[slot]
                if customer_id is None or state == GONE:
                    continue
                if state == READY:
                    resumed = ref_of(page.number, slot) in self._attempts
                    entry = self._entry(page, slot, resumed=resumed)
                    entries.setdefault(customer_id, []).append(entry)
                else:
                    in_flight[customer_id] = in_flight.get(customer_id, 0) + 1
        self._unclaimed = sum(note.state == EMITTED for note in self._out.values())
        self.queue.restore(
            virtual_time=virtual_time, tags=tags, entries=entries, in_flight=in_flight
        )

    def _sweep(self, page: Page) -> None:
        for slot, state in enumerate(page.states):
            if state == GONE:
                self._places.pop(page.ids[slot] or "", None)
                page.ids[slot] = None
        page.left = len(page.states) - page.states.count(GONE)


_GONE_AS_DIGIT: Final = bytes(ord("1") if state == GONE else ord("0") for state in range(256))


def _bitmap(states: bytearray) -> str:
    return f"{int(states.translate(_GONE_AS_DIGIT)[::-1], 2):x}"


def _slots_in(bitmap: str) -> Iterable[int]:
    bits = int(bitmap, 16)
    return (slot for slot in range(bits.bit_length()) if bits >> slot & 1)
