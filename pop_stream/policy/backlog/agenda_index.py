"""The index of one insight's agendas: by id and by place, what each is, and what changed.

A place is a slot of a page. It is as its agenda came until an `AgendaRecord` says otherwise.
Records are absolute values, so the pages with the newest record of each place are the state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.policy.backlog.page import (
    GONE,
    IN_FLIGHT,
    PENDING,
    READY,
    SLOT_BITS,
    SLOT_MASK,
    BacklogPage,
    SchedulingOptions,
    page_and_slot,
    ref_of,
    slots_of_bitmap,
)
from pop_stream.policy.delta import AgendaRecord, Overrides
from pop_stream.policy.ingress.usage import add

NO_OVERRIDES = Overrides()


class AgendaIndex:
    """All places of an insight whose agendas have not ended, by place and by agenda id.

    Attributes:
        next_number: Of the next page; numbers are never used twice.
    """

    def __init__(self) -> None:
        self.next_number = 0
        self._pages: dict[int, BacklogPage] = {}
        self._places: dict[str, int] = {}
        self._types: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._records: dict[int, AgendaRecord] = {}
        self._counts = [0, 0, 0, 0, 0, 0]
        self._changed: dict[int, AgendaRecord] = {}
        self._emptied: list[int] = []
        self._pending_by_customer: Counter[str] = Counter()
        self._moved: set[str] = set()

    def pages(self) -> Iterable[BacklogPage]:
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
        """The place of an agenda; None if it has ended or was never placed."""
        return self._places.get(agenda_id)

    def at(self, ref: int) -> tuple[BacklogPage, int]:
        """The page of a place, and the slot in it."""
        return self._pages[ref >> SLOT_BITS], ref & SLOT_MASK

    def state(self, ref: int) -> int:
        """What the slot is."""
        page, slot = self.at(ref)
        return page.states[slot]

    def options(self, ref: int) -> SchedulingOptions:
        """Instants, holds and retries that the agenda was submitted with."""
        page, slot = self.at(ref)
        return page.options_of(slot)

    def attempt(self, ref: int) -> int:
        """The attempt that is out, or that is next."""
        record = self._records.get(ref)
        return record.attempt if record is not None else self.options(ref).attempt

    def is_ready(self, agenda_id: str, attempt: int) -> bool:
        """Whether this attempt of the agenda waits for its turn."""
        ref = self.find(agenda_id)
        if ref is None or self.state(ref) != READY:
            return False
        return self.attempt(ref) == attempt

    def overrides(self, ref: int) -> Overrides:
        """What people or the clock want of the agenda in this place."""
        record = self._records.get(ref)
        if record is not None:
            return record.overrides or NO_OVERRIDES
        due = self.options(ref).not_before
        return NO_OVERRIDES if due is None else Overrides(due=due)

    def record_of(self, ref: int) -> AgendaRecord | None:
        """The newest record of the place; None if it is as its agenda came."""
        return self._records.get(ref)

    def in_flight_record(self, ref: int) -> AgendaRecord | None:
        """The record of the attempt that is in flight; None if none is."""
        record = self._records.get(ref)
        return record if record is not None and record.state in IN_FLIGHT else None

    def count(self, state: int) -> int:
        """How many slots are in a state other than gone."""
        return self._counts[state]

    @property
    def total(self) -> int:
        """How many slots are not gone."""
        return sum(self._counts)

    @property
    def pending_by_customer(self) -> Mapping[str, int]:
        """By customer, how many agendas are ready, delayed or held; absent where none is."""
        return self._pending_by_customer

    def drain_moved(self) -> set[str]:
        """Customers of whom `pending_by_customer` may have changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def after(self, ref: int) -> Iterator[int]:
        """The places of all agendas after this one, in order."""
        first, _ = page_and_slot(max(ref, 0))
        for number in sorted(one for one in self._pages if one >= first):
            for place, _ in live_slots(self._pages[number]):
                if place > ref:
                    yield place

    # ---- changes ----

    def add(
        self, number: int, agendas: Sequence[RoutedAgenda], *, latest: float = inf
    ) -> BacklogPage:
        """A page of new slots, each as its agenda came, and none later than `latest`."""
        page = BacklogPage(number, agendas, latest=latest)
        self._pages[number] = page
        self.next_number = max(self.next_number, number + 1)
        for slot, types in enumerate(page.types):
            self._places[page.ids[slot]] = ref_of(number, slot)
            page.types[slot] = self._types.setdefault(types, types)
        self._count(page)
        return page

    def record(self, record: AgendaRecord) -> None:
        """A slot became something else."""
        page, slot = self.at(record.ref)
        states = page.states
        before = states[slot]
        self._counts[before] -= 1
        self._counts[record.state] += 1
        states[slot] = record.state
        if (before in PENDING) is not (record.state in PENDING):
            self._move(page.customers[slot], 1 if record.state in PENDING else -1)
        self._records[record.ref] = record
        self._changed[record.ref] = record

    def forget(self, ref: int) -> None:
        """The slot's agenda has ended."""
        page, slot = self.at(ref)
        self._counts[page.states[slot]] -= 1
        if page.states[slot] in PENDING:
            self._move(page.customers[slot], -1)
        self._changed[ref] = AgendaRecord(ref=ref, state=GONE)
        self._records.pop(ref, None)
        self._places.pop(page.ids[slot], None)
        page.forget(slot)
        self._drop_if_empty(page)

    def reorder(self, ref: int, *, priority: int, rank: int) -> None:
        """Change priority and rank; the caller also records them, for the next restart."""
        page, slot = self.at(ref)
        page.priorities[slot], page.ranks[slot] = priority, rank

    # ---- persistence ----

    @property
    def has_changed(self) -> bool:
        """Whether a slot changed since the last `drain_changed`."""
        return bool(self._changed)

    def drain_changed(self) -> tuple[AgendaRecord, ...]:
        """What slots became since the last call."""
        changed, self._changed = tuple(self._changed.values()), {}
        return changed

    def drain_emptied(self) -> list[int]:
        """Numbers of the pages that became empty since the last call."""
        emptied, self._emptied = self._emptied, []
        return emptied

    def records(self) -> tuple[AgendaRecord, ...]:
        """The newest records of all places that are not as their agendas came."""
        self._types = {}
        return tuple(self._records.values())

    def gone(self) -> Mapping[str, str]:
        """By page number, a bitmap of slots that are gone, for pages that have any."""
        partly = (page for page in self._pages.values() if page.remaining < len(page.states))
        return {str(page.number): page.gone() for page in partly}

    def apply(self, gone: Mapping[str, str], records: Iterable[AgendaRecord]) -> None:
        """Apply one delta's values; deltas oldest first, then `rebuild` once."""
        for number, bitmap in gone.items():
            for slot in slots_of_bitmap(bitmap):
                self._apply(AgendaRecord(ref=ref_of(int(number), slot), state=GONE))
        for record in records:
            self._apply(record)

    def rebuild(self) -> None:
        """Drop what the applied deltas say is gone, and count the rest."""
        self._counts = [0, 0, 0, 0, 0, 0]
        self._pending_by_customer.clear()
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

    def _apply(self, record: AgendaRecord) -> None:
        number, slot = page_and_slot(record.ref)
        page = self._pages.get(number)
        if page is None:
            return
        page.states[slot] = record.state
        if record.state == GONE:
            self._records.pop(record.ref, None)
            return
        self._records[record.ref] = record
        overrides = record.overrides
        if (
            overrides is not None
            and overrides.priority is not None
            and overrides.rank is not None
        ):
            page.priorities[slot], page.ranks[slot] = overrides.priority, overrides.rank

    def _count(self, page: BacklogPage) -> None:
        for state in range(len(self._counts)):
            if state != GONE:
                self._counts[state] += page.states.count(state)
        states = zip(page.customers, page.states, strict=True)
        pending_by_customer = Counter(
            customer for customer, state in states if state in PENDING
        )
        self._pending_by_customer.update(pending_by_customer)
        self._moved.update(pending_by_customer)

    def _move(self, customer_id: str, by: int) -> None:
        self._moved.add(customer_id)
        add(self._pending_by_customer, customer_id, by)

    def _drop_if_empty(self, page: BacklogPage) -> None:
        if not page.remaining:
            del self._pages[page.number]
            self._emptied.append(page.number)


def live_slots(page: BacklogPage) -> Iterator[tuple[int, int]]:
    """Place and slot of all that is left of a page."""
    for slot, state in enumerate(page.states):
        if state != GONE:
            yield ref_of(page.number, slot), slot
