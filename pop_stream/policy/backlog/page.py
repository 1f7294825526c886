"""A page: up to 512 agendas as columns; and the place of an agenda as one integer, its ref."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from sys import intern
from typing import Final, NamedTuple

from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.model.ids import CustomerId
from pop_stream.model.retry import Backoff
from pop_stream.policy.delta import Overrides
from pop_stream.policy.fairness.flow import Flow

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
        held: Whether it waits for its release.
        max_attempts: From `attempt` on; None for what its insight allows.
        backoff: None for its insight's.
    """

    attempt: int = 1
    run_from: int = 1
    not_before: float | None = None
    expires_at: float | None = None
    held: bool = False
    max_attempts: int | None = None
    backoff: Backoff | None = None

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
        self.ranks = array("H", [agenda.rank for agenda in agendas])
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
    )


def _options(agenda: RoutedAgenda) -> SchedulingOptions:
    return SchedulingOptions(
        attempt=agenda.attempt,
        run_from=agenda.attempt if agenda.run_from is None else agenda.run_from,
        not_before=_seconds(agenda.not_before),
        expires_at=_seconds(agenda.expires_at),
        held=agenda.held,
        max_attempts=agenda.max_attempts,
        backoff=agenda.backoff,
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _declared(agenda: RoutedAgenda) -> float:
    return _UNDECLARED if agenda.cost_s is None else agenda.cost_s


class ChosenAgenda(NamedTuple):
    """One agenda of a round."""

    ref: int
    agenda_id: str
    customer_id: CustomerId
    attempt: int


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
