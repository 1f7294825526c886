"""What people and the clock want of agendas: cancel, hold, release, reorder, due, expired.

Everything here may be wanted again without harm: what is so already changes nothing.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from pop_stream.core.backlog.page import EMITTED, HELD, READY, WAITING
from pop_stream.core.backlog.slots import NO_MARK
from pop_stream.core.backlog.stock import Stock
from pop_stream.core.events import Action, Command, StopReason

MOST_DUE: Final = 1_000
"""Agendas that become due at once, so that what is told of them fits the event's records."""

_UNCLAIMED_GRACE_S: Final = 2.0
"""How long one that nobody claimed may still be claimed once it is to stop."""

_PRIORITIES: Final = range(1, 10)
_RANKS: Final = range(1 << 16)
_SECOND_MS: Final = 1000


class Steering:
    """Commands and dues; `now` is in seconds since the epoch.

    Attributes:
        ignored: Commands about agendas that are not here: unknown, ended, or run again since.
    """

    def __init__(self, stock: Stock) -> None:
        self.ignored = 0
        self._stock = stock
        self._actions: Mapping[Action, Callable[[int, Command, float], bool]] = {
            "cancel": self._cancel,
            "hold": self._hold,
            "release": self._release,
            "reprioritise": self._reprioritise,
        }

    def obey(self, command: Command, now: float) -> bool:
        """Do what someone wants; False if that changes nothing."""
        slots = self._stock.slots
        ref = slots.find(command.agenda_id)
        if ref is None or 0 < command.attempt < slots.terms(ref).run_from:
            self.ignored += 1
            return False
        return self._actions[command.action](ref, command, now)

    @property
    def due_at(self) -> float | None:
        """When the clock next wants something; None for never."""
        dues = (self._stock.dues.next_at, self._stock.deadlines.next_at)
        return min((at for at in dues if at is not None), default=None)

    def wake(self, now: float) -> int:
        """Ready what waited for an instant that has come, and expire what is too late.

        Returns:
            How many were due, at most twice `MOST_DUE`; ask again for the others.
        """
        stock = self._stock
        late = stock.deadlines.take_due(now, MOST_DUE)
        for ref in late:
            self._end(ref, "expired", "its deadline passed", now)
        due = stock.dues.take_due(now, MOST_DUE)
        for ref in due:
            attempt = stock.slots.attempt(ref)
            stock.ready(ref, attempt, stock.slots.mark(ref))
            stock.outbox.readied(stock.agenda_id(ref), attempt, now)
        return len(late) + len(due)

    def _cancel(self, ref: int, command: Command, now: float) -> bool:
        return self._end(ref, "cancelled", _said(command), now)

    def _end(self, ref: int, reason: StopReason, message: str, now: float) -> bool:
        """End what is not out at once; tell what is out to stop."""
        stock = self._stock
        agenda_id, attempt = stock.agenda_id(ref), stock.slots.attempt(ref)
        note = stock.slots.out(ref)
        if note is None:
            stock.leave(ref)
            stock.outbox.ended(agenda_id, attempt, now, reason=reason, message=message)
            stock.forget(ref)
            return True
        if (note.mark or NO_MARK).stopping:
            return False
        stock.stop(note, reason, message)
        stock.outbox.stopping(ref, agenda_id, attempt, now, reason=reason, message=message)
        if note.state == EMITTED:
            length_s = stock.insight.lease_ms / _SECOND_MS
            stock.leases.end_by(ref, now + min(_UNCLAIMED_GRACE_S, length_s), length_s)
        return True

    def _hold(self, ref: int, command: Command, now: float) -> bool:
        """What is out goes on, and the attempt after it waits for its release."""
        stock = self._stock
        state, mark = stock.slots.state(ref), stock.slots.mark(ref)
        if state == HELD or mark.hold or mark.stopping:
            return False
        if state not in {READY, WAITING}:
            stock.mark(ref, replace(mark, hold=True))
            return True
        attempt = stock.slots.attempt(ref)
        stock.leave(ref)
        stock.hold(ref, attempt, mark)
        stock.outbox.held(command.agenda_id, attempt, now, by=command.by, reason=command.reason)
        return True

    def _release(self, ref: int, command: Command, now: float) -> bool:
        stock = self._stock
        mark, attempt = stock.slots.mark(ref), stock.slots.attempt(ref)
        if mark.hold:
            stock.mark(ref, replace(mark, hold=False))
            return True
        if stock.slots.state(ref) != HELD:
            return False
        if (due := stock.due(ref, now)) > now:
            stock.wait(ref, attempt, replace(mark, due=due))
            stock.outbox.waiting(command.agenda_id, attempt, now, until=due, why=mark.why)
        else:
            stock.ready(ref, attempt, mark)
            stock.outbox.readied(command.agenda_id, attempt, now)
        return True

    def _reprioritise(self, ref: int, command: Command, now: float) -> bool:
        """It acts on what waits at once, on what is out with its next attempt."""
        stock = self._stock
        page, slot = stock.slots.at(ref)
        before = (page.priorities[slot], page.ranks[slot])
        priority = before[0] if command.priority is None else command.priority
        rank = before[1] if command.rank is None else command.rank
        if (priority, rank) == before or priority not in _PRIORITIES or rank not in _RANKS:
            return False
        attempt = stock.slots.attempt(ref)
        mark = replace(stock.slots.mark(ref), priority=priority, rank=rank)
        if page.states[slot] == READY:
            stock.leave(ref)
            stock.slots.reorder(ref, priority=priority, rank=rank)
            stock.ready(ref, attempt, mark)
        else:
            stock.slots.reorder(ref, priority=priority, rank=rank)
            stock.mark(ref, mark)
        stock.outbox.reprioritised(command, attempt, now, priority=priority, rank=rank)
        return True


def _said(command: Command) -> str:
    """Who wants it and why, in one line."""
    by = f"by {command.by}" if command.by else ""
    return ": ".join(part for part in (by, command.reason) if part)
