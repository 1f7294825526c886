"""The index of one insight's agendas: by id and by position, what each is, and what changed.

A page holds up to 512 agendas as columns, as they came. A position is a slot of a page, written
as one integer, its ref. An agenda is as it came until an `AgendaRecord` says otherwise. Records
are absolute values, so the pages with the newest record of each position are the state.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from sys import intern
from typing import Final, NamedTuple

from pop_stream.model.events.base import DedupeRule
from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.model.ids import CustomerId
from pop_stream.model.retry import Backoff
from pop_stream.policy.delta import AgendaRecord, Overrides
from pop_stream.policy.fairness.flow import Flow
from pop_stream.policy.ingress.usage import add

SLOT_BITS: Final = 9
PAGE_SLOTS: Final = 1 << SLOT_BITS
"""Most agendas of a page."""

READY, EMITTED, CLAIMED, GONE, WAITING, HELD = range(6)
"""The states of a slot. A page whose slots are all gone is deleted."""

IN_FLIGHT: Final = frozenset({EMITTED, CLAIMED})
"""States of a slot whose agenda is on its insight's topic or with a puller."""

PENDING: Final = frozenset({READY, WAITING, HELD})
"""States of a slot whose agenda is with the scheduler alone."""

SLOT_MASK: Final = PAGE_SLOTS - 1
_UNDECLARED: Final = -1.0
_GONE_AS_DIGIT: Final = bytes(ord("1") if state == GONE else ord("0") for state in range(256))


def ref_of(page: int, slot: int) -> int:
    """The place of a slot in the insight's backlog; later pages and slots are greater."""
    return page << SLOT_BITS | slot


def page_and_slot(ref: int) -> tuple[int, int]:
    """Page number and slot of a ref."""
    return ref >> SLOT_BITS, ref & SLOT_MASK


@dataclass(frozen=True, slots=True)
class SchedulingOptions:
    """Instants, holds and retries that an agenda was submitted with; most have the defaults.

    Attributes:
        attempt: The first one here.
        run_from: The first one of this run, as far as that is known.
        not_before: When it is due, in seconds since the epoch; None for at once.
        expires_at: Its deadline, in seconds since the epoch; None for none.
        held: Whether it waits for its release; with `held_reason`, why.
        max_attempts: From `attempt` on; None for what its insight allows.
        backoff: None for its insight's.
        dedupe: Of what it is a duplicate; None if of nothing.
        batch_key: With whom it may be chosen; empty for nobody.
    """

    attempt: int = 1
    run_from: int = 1
    not_before: float | None = None
    expires_at: float | None = None
    held: bool = False
    held_reason: str = ""
    max_attempts: int | None = None
    backoff: Backoff | None = None
    dedupe: DedupeRule | None = None
    batch_key: str = ""

    @property
    def state(self) -> int:
        """The state of its slot to begin with."""
        if self.held:
            return HELD
        return READY if self.not_before is None else WAITING


DEFAULT_OPTIONS: Final = SchedulingOptions()


class BacklogPage:
    """The columns of some agendas, without their bodies.

    Attributes:
        remaining: Slots that are not gone.
        options: By slot, of those agendas that came with any.
        types: Operation types of each agenda; equal ones are one object.
        arrivals: When each was accepted, in seconds since the epoch.

    Args:
        number: Its own.
        agendas: At most `PAGE_SLOTS`.
        latest: Arrivals are taken to be at this instant at the latest, because the clock of
            ingest may be ahead of the scheduler's.
    """

    __slots__ = (
        "arrivals",
        "costs",
        "customers",
        "ids",
        "keys",
        "number",
        "options",
        "priorities",
        "ranks",
        "remaining",
        "states",
        "types",
    )

    def __init__(
        self, number: int, agendas: Sequence[RoutedAgenda], *, latest: float = inf
    ) -> None:
        self.number = number
        self.remaining = len(agendas)
        self.ids = [agenda.agenda_id for agenda in agendas]
        self.customers = [CustomerId(intern(agenda.customer_id)) for agenda in agendas]
        self.keys = [intern(agenda.fairness_key) for agenda in agendas]
        self.types = [agenda.operation_types for agenda in agendas]
        self.costs = array("d", [_declared(agenda) for agenda in agendas])
        arrivals = (min(agenda.accepted_at.timestamp(), latest) for agenda in agendas)
        self.arrivals = array("d", arrivals)
        self.ranks = array("I", [agenda.rank for agenda in agendas])
        self.priorities = bytearray(agenda.priority for agenda in agendas)
        self.states = bytearray(len(agendas))
        self.options: dict[int, SchedulingOptions] = {}
        for slot, agenda in enumerate(agendas):
            if _has_options(agenda):
                self.options[slot] = options = _options(agenda)
                self.states[slot] = options.state

    def options_of(self, slot: int) -> SchedulingOptions:
        """Instants, holds and retries of the slot's agenda."""
        return self.options.get(slot, DEFAULT_OPTIONS)

    def wait_s(self, slot: int, now: float) -> float | None:
        """How long the slot's agenda has waited for its first attempt; see `ChosenAgenda`."""
        options = self.options.get(slot)
        if options is None:
            return max(0.0, now - self.arrivals[slot])
        if options.held or options.attempt > 1:
            return None
        return max(0.0, now - max(self.arrivals[slot], options.not_before or 0.0))

    def declared_cost(self, slot: int) -> float | None:
        """Worker-seconds as the submitter declared, or None."""
        cost = self.costs[slot]
        return None if cost == _UNDECLARED else cost

    def forget(self, slot: int) -> None:
        """Mark a slot gone, once."""
        self.states[slot] = GONE
        self.ids[slot] = ""
        self.remaining -= 1

    def gone(self) -> str:
        """A hexadecimal bitmap of gone slots, least significant first."""
        return f"{int(self.states.translate(_GONE_AS_DIGIT)[::-1], 2):x}"


def slots_of_bitmap(bitmap: str) -> Iterable[int]:
    """The slots that `Page.gone` wrote."""
    bits = int(bitmap, 16)
    return (slot for slot in range(bits.bit_length()) if bits >> slot & 1)


def _has_options(agenda: RoutedAgenda) -> bool:
    return (
        agenda.attempt > 1
        or agenda.held
        or agenda.not_before is not None
        or agenda.expires_at is not None
        or agenda.max_attempts is not None
        or agenda.backoff is not None
        or agenda.dedupe is not None
        or agenda.batch_key != ""
    )


def _options(agenda: RoutedAgenda) -> SchedulingOptions:
    return SchedulingOptions(
        attempt=agenda.attempt,
        run_from=agenda.attempt if agenda.run_from is None else agenda.run_from,
        not_before=_seconds(agenda.not_before),
        expires_at=_seconds(agenda.expires_at),
        held=agenda.held,
        held_reason=agenda.held_reason,
        max_attempts=agenda.max_attempts,
        backoff=agenda.backoff,
        dedupe=agenda.dedupe,
        batch_key=agenda.batch_key,
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _declared(agenda: RoutedAgenda) -> float:
    return _UNDECLARED if agenda.cost_s is None else agenda.cost_s


class ChosenAgenda(NamedTuple):
    """One agenda of a round.

    Attributes:
        wait_s: Of a first attempt, from its acceptance, or from the instant it was due at, to
            its choice; None of later ones, and of one that was held.
    """

    ref: int
    agenda_id: str
    customer_id: CustomerId
    attempt: int
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class AgendaPosition:
    """Where an agenda is.

    Attributes:
        state: Of its slot.
        entry: Its entry in its customer's queue.
        cost: Worker-seconds it is taken to cost.
        overrides: What people or the clock want of it.
    """

    flow: Flow
    state: int
    entry: int
    cost: float
    attempt: int
    overrides: Overrides


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

    @property
    def pending(self) -> int:
        """Agendas that are with the scheduler alone."""
        return sum(self._counts[state] for state in PENDING)

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
