"""The slots of one insight's backlog: pages of them, what each one is, and what changed.

A slot is as its page says until a note says otherwise. Notes are absolute values, so that
the state after a restart is the pages with all notes laid over them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from pop_stream.core.backlog.page import (
    GONE,
    OUT,
    READY,
    SLOT_BITS,
    SLOT_MASK,
    STAYING,
    Page,
    Terms,
    place_of,
    ref_of,
    slots_in,
)
from pop_stream.core.delta import Mark, SlotNote
from pop_stream.core.events import PlacedAgenda
from pop_stream.core.values.counted import add

NO_MARK = Mark()


class Slots:
    """All slots of an insight that are not gone, by place and by agenda.

    Attributes:
        next_number: Of the next page; numbers are never used twice.
    """

    def __init__(self) -> None:
        self.next_number = 0
        self._pages: dict[int, Page] = {}
        self._places: dict[str, int] = {}
        self._types: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._notes: dict[int, SlotNote] = {}
        self._counts = [0, 0, 0, 0, 0, 0]
        self._changed: dict[int, SlotNote] = {}
        self._emptied: list[int] = []
        self._staying: Counter[str] = Counter()
        self._moved: set[str] = set()

    def pages(self) -> Iterable[Page]:
        """All pages that have a slot left."""
        return self._pages.values()

    @property
    def page_count(self) -> int:
        """How many of these there are."""
        return len(self._pages)

    def refs(self) -> Mapping[str, int]:
        """The place of every agenda."""
        return self._places

    def find(self, agenda_id: str) -> int | None:
        """The place of an agenda; None if it is not here, any more or yet."""
        return self._places.get(agenda_id)

    def at(self, ref: int) -> tuple[Page, int]:
        """The page of a place, and the slot in it."""
        return self._pages[ref >> SLOT_BITS], ref & SLOT_MASK

    def state(self, ref: int) -> int:
        """What the slot is."""
        page, slot = self.at(ref)
        return page.states[slot]

    def terms(self, ref: int) -> Terms:
        """What the agenda came with besides its turn."""
        page, slot = self.at(ref)
        return page.terms_of(slot)

    def attempt(self, ref: int) -> int:
        """The attempt that is out, or that is next."""
        note = self._notes.get(ref)
        return note.attempt if note is not None else self.terms(ref).attempt

    def is_ready(self, agenda_id: str, attempt: int) -> bool:
        """Whether this attempt of the agenda waits for its turn."""
        ref = self.find(agenda_id)
        if ref is None or self.state(ref) != READY:
            return False
        return self.attempt(ref) == attempt

    def mark(self, ref: int) -> Mark:
        """What is wanted of the slot's agenda."""
        note = self._notes.get(ref)
        if note is not None:
            return note.mark or NO_MARK
        due = self.terms(ref).not_before
        return NO_MARK if due is None else Mark(due=due)

    def known(self, ref: int) -> SlotNote | None:
        """What was noted of the slot; None if it is as its agenda came."""
        return self._notes.get(ref)

    def out(self, ref: int) -> SlotNote | None:
        """The note of an attempt that is out; None if none is."""
        note = self._notes.get(ref)
        return note if note is not None and note.state in OUT else None

    def count(self, state: int) -> int:
        """How many slots are in a state other than gone."""
        return self._counts[state]

    @property
    def total(self) -> int:
        """How many slots are not gone."""
        return sum(self._counts)

    @property
    def staying(self) -> Mapping[str, int]:
        """By customer, how many agendas are ready, delayed or held; absent where none is."""
        return self._staying

    def take_moved(self) -> set[str]:
        """Customers of whom `staying` may have changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def after(self, ref: int) -> Iterator[int]:
        """The places of all agendas behind this one, in order."""
        first, _ = place_of(max(ref, 0))
        for number in sorted(one for one in self._pages if one >= first):
            for place, _ in each(self._pages[number]):
                if place > ref:
                    yield place

    # ---- changes ----

    def add(self, number: int, agendas: Sequence[PlacedAgenda], *, latest: float = inf) -> Page:
        """A page of new slots, each as its agenda came, and none later than `latest`."""
        page = Page(number, agendas, latest=latest)
        self._pages[number] = page
        self.next_number = max(self.next_number, number + 1)
        for slot, types in enumerate(page.types):
            self._places[page.ids[slot]] = ref_of(number, slot)
            page.types[slot] = self._types.setdefault(types, types)
        self._count(page)
        return page

    def note(self, note: SlotNote) -> None:
        """A slot became something else."""
        page, slot = self.at(note.ref)
        states = page.states
        before = states[slot]
        self._counts[before] -= 1
        self._counts[note.state] += 1
        states[slot] = note.state
        if (before in STAYING) is not (note.state in STAYING):
            self._move(page.customers[slot], 1 if note.state in STAYING else -1)
        self._notes[note.ref] = note
        self._changed[note.ref] = note

    def forget(self, ref: int) -> None:
        """The slot's agenda has ended."""
        page, slot = self.at(ref)
        self._counts[page.states[slot]] -= 1
        if page.states[slot] in STAYING:
            self._move(page.customers[slot], -1)
        self._changed[ref] = SlotNote(ref=ref, state=GONE)
        self._notes.pop(ref, None)
        self._places.pop(page.ids[slot], None)
        page.forget(slot)
        self._drop_if_empty(page)

    def reorder(self, ref: int, *, priority: int, rank: int) -> None:
        """The slot's agenda has another priority and rank now; a note is to say so too."""
        page, slot = self.at(ref)
        page.priorities[slot], page.ranks[slot] = priority, rank

    # ---- persistence ----

    @property
    def has_changed(self) -> bool:
        """Whether a slot changed since the last `take_changed`."""
        return bool(self._changed)

    def take_changed(self) -> tuple[SlotNote, ...]:
        """What slots became since the last call."""
        changed, self._changed = tuple(self._changed.values()), {}
        return changed

    def take_emptied(self) -> list[int]:
        """Numbers of the pages that became empty since the last call."""
        emptied, self._emptied = self._emptied, []
        return emptied

    def notes(self) -> tuple[SlotNote, ...]:
        """All slots that are neither gone nor as they came."""
        self._types = {}
        return tuple(self._notes.values())

    def gone(self) -> Mapping[str, str]:
        """By page number, a bitmap of slots that are gone, for pages that have any."""
        partly = (page for page in self._pages.values() if page.left < len(page.states))
        return {str(page.number): page.gone() for page in partly}

    def lay(self, gone: Mapping[str, str], notes: Iterable[SlotNote]) -> None:
        """Lay one delta's values over what is known; only before `sweep`."""
        for number, bitmap in gone.items():
            for slot in slots_in(bitmap):
                self._lay(SlotNote(ref=ref_of(int(number), slot), state=GONE))
        for note in notes:
            self._lay(note)

    def sweep(self) -> None:
        """Forget what the deltas laid say is gone, and count the rest."""
        self._counts = [0, 0, 0, 0, 0, 0]
        self._staying.clear()
        # An agenda that was run again is in two pages, gone from all but the last.
        self._places.clear()
        for page in [*self._pages.values()]:
            for slot, state in enumerate(page.states):
                if state == GONE:
                    page.forget(slot)
                else:
                    self._places[page.ids[slot]] = ref_of(page.number, slot)
            self._count(page)
            self._drop_if_empty(page)

    def _lay(self, note: SlotNote) -> None:
        number, slot = place_of(note.ref)
        page = self._pages.get(number)
        if page is None:
            return
        page.states[slot] = note.state
        if note.state == GONE:
            self._notes.pop(note.ref, None)
            return
        self._notes[note.ref] = note
        mark = note.mark
        if mark is not None and mark.priority is not None and mark.rank is not None:
            page.priorities[slot], page.ranks[slot] = mark.priority, mark.rank

    def _count(self, page: Page) -> None:
        for state in range(len(self._counts)):
            if state != GONE:
                self._counts[state] += page.states.count(state)
        states = zip(page.customers, page.states, strict=True)
        staying = Counter(customer for customer, state in states if state in STAYING)
        self._staying.update(staying)
        self._moved.update(staying)

    def _move(self, customer_id: str, by: int) -> None:
        self._moved.add(customer_id)
        add(self._staying, customer_id, by)

    def _drop_if_empty(self, page: Page) -> None:
        if not page.left:
            del self._pages[page.number]
            self._emptied.append(page.number)


def each(page: Page) -> Iterator[tuple[int, int]]:
    """Place and slot of all that is left of a page."""
    for slot, state in enumerate(page.states):
        if state != GONE:
            yield ref_of(page.number, slot), slot
