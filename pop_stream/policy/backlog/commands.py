"""Commands and instants: cancel, hold, release, reprioritise; due, expired.

A command that is repeated, or asks for what is so already, changes nothing.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from pop_stream.model.events.base import MAX_RANK
from pop_stream.model.events.lifecycle import Action, InternalAction, StopReason
from pop_stream.model.events.scheduling import Command
from pop_stream.policy.backlog.agenda_index import EMITTED, HELD, NO_OVERRIDES, READY, WAITING
from pop_stream.policy.backlog.outbox import FailedAgenda
from pop_stream.policy.backlog.state import BacklogState

MAX_DUE: Final = 1_000
"""Most agendas that become due in one call, so that a round publishes a bounded number."""

MAX_RESOLVED: Final = 100
"""Most operations of an agenda of which it is kept that they wait no more; the last ones."""

_UNCLAIMED_GRACE_S: Final = 2.0
"""How long an unclaimed attempt may still be claimed after it is to stop."""

_PRIORITIES: Final = range(1, 10)
_RANKS: Final = range(MAX_RANK + 1)
_SECOND_MS: Final = 1000


class BacklogCommands:
    """Applies commands, and what is due; `now` is in seconds since the epoch.

    Attributes:
        ignored: Commands about agendas that are unknown, have ended, or were run again since.
    """

    def __init__(self, backlog: BacklogState) -> None:
        self.ignored = 0
        self._backlog = backlog
        self._actions: Mapping[
            Action | InternalAction, Callable[[int, Command, float], bool]
        ] = {
            "cancel": self._cancel,
            "hold": self._hold,
            "release": self._release,
            "reprioritise": self._reprioritise,
            "wake": self._wake,
            "fail": self._fail,
        }

    def apply(self, command: Command, now: float) -> bool:
        """Do what a person wants; False if that changes nothing."""
        index = self._backlog.index
        ref = index.find(command.agenda_id)
        if ref is None or 0 < command.attempt < index.options(ref).run_from:
            self.ignored += 1
            return False
        return self._actions[command.action](ref, command, now)

    @property
    def due_at(self) -> float | None:
        """When `apply_due` next has something to do; None for never."""
        dues = (self._backlog.dues.next_at, self._backlog.deadlines.next_at)
        return min((at for at in dues if at is not None), default=None)

    def apply_due(self, now: float) -> int:
        """Make ready what waited until now, and expire what is past its deadline.

        Returns:
            How many were due, at most twice `MAX_DUE`; the next call has the others.
        """
        backlog = self._backlog
        late = backlog.deadlines.pop_due(now, MAX_DUE)
        for ref in late:
            self._end(ref, "expired", "its deadline passed", now)
        due = backlog.dues.pop_due(now, MAX_DUE)
        for ref in due:
            attempt = backlog.index.attempt(ref)
            backlog.ready(ref, attempt, backlog.index.overrides(ref))
            backlog.outbox.ready(backlog.agenda_id(ref), attempt, now)
        return len(late) + len(due)

    def _cancel(self, ref: int, command: Command, now: float) -> bool:
        return self._end(ref, "cancelled", _describe(command), now)

    def _end(self, ref: int, reason: StopReason, message: str, now: float) -> bool:
        """End at once what is not in flight; stop the attempt that is."""
        backlog = self._backlog
        agenda_id, attempt = backlog.agenda_id(ref), backlog.index.attempt(ref)
        record = backlog.index.in_flight_record(ref)
        if record is None:
            backlog.dequeue(ref)
            backlog.outbox.ended(agenda_id, attempt, now, reason=reason, message=message)
            backlog.forget(ref)
            return True
        if (record.overrides or NO_OVERRIDES).stopping:
            return False
        backlog.stop(record, reason, message)
        backlog.outbox.stopping(ref, agenda_id, attempt, now, reason=reason, message=message)
        if record.state == EMITTED:
            length_s = backlog.insight.lease_ms / _SECOND_MS
            backlog.leases.end_by(ref, now + min(_UNCLAIMED_GRACE_S, length_s), length_s)
        return True

    def _hold(self, ref: int, command: Command, now: float) -> bool:
        """An attempt in flight goes on; the one after it waits for its release."""
        backlog = self._backlog
        state, overrides = backlog.index.state(ref), backlog.index.overrides(ref)
        if state == HELD or overrides.hold or overrides.stopping:
            return False
        if state not in {READY, WAITING}:
            backlog.set_overrides(ref, replace(overrides, hold=True))
            return True
        attempt = backlog.index.attempt(ref)
        backlog.dequeue(ref)
        backlog.hold(ref, attempt, overrides)
        backlog.outbox.held(
            command.agenda_id, attempt, now, by=command.by, reason=command.reason
        )
        return True

    def _release(self, ref: int, command: Command, now: float) -> bool:
        backlog = self._backlog
        overrides, attempt = backlog.index.overrides(ref), backlog.index.attempt(ref)
        if overrides.hold:
            backlog.set_overrides(ref, replace(overrides, hold=False))
            return True
        if backlog.index.state(ref) != HELD:
            return False
        if (due := backlog.due(ref, now)) > now:
            backlog.wait(ref, attempt, replace(overrides, due=due))
            backlog.outbox.waiting(
                command.agenda_id, attempt, now, until=due, why=overrides.why
            )
        else:
            backlog.ready(ref, attempt, overrides)
            backlog.outbox.ready(command.agenda_id, attempt, now)
        return True

    def _reprioritise(self, ref: int, command: Command, now: float) -> bool:
        """Acts at once on what waits, and on what is in flight with its next attempt."""
        backlog = self._backlog
        page, slot = backlog.index.at(ref)
        before = (page.priorities[slot], page.ranks[slot])
        priority = before[0] if command.priority is None else command.priority
        rank = before[1] if command.rank is None else command.rank
        if (priority, rank) == before or priority not in _PRIORITIES or rank not in _RANKS:
            return False
        attempt = backlog.index.attempt(ref)
        overrides = replace(backlog.index.overrides(ref), priority=priority, rank=rank)
        if page.states[slot] == READY:
            backlog.dequeue(ref)
            backlog.index.reorder(ref, priority=priority, rank=rank)
            backlog.ready(ref, attempt, overrides)
        else:
            backlog.index.reorder(ref, priority=priority, rank=rank)
            backlog.set_overrides(ref, overrides)
        backlog.outbox.reprioritised(command, attempt, now, priority=priority, rank=rank)
        return True

    def _wake(self, ref: int, command: Command, now: float) -> bool:
        """An operation waits no more: what waited for it is ready, unless it is held.

        The next attempt is given its name, so that it begins with what was decided. One whose
        attempt is out goes on when that has ended, without the wait that it may end with: it
        cannot know of what was decided meanwhile. What is said of an older attempt the summary
        does not apply either: if the operation waits still, that is said again.
        """
        backlog = self._backlog
        known, attempt = backlog.index.overrides(ref), backlog.index.attempt(ref)
        if command.operation in known.resolved or 0 < command.attempt < attempt:
            return False
        resolved = (*known.resolved, command.operation)[-MAX_RESOLVED:]
        overrides = replace(known, resolved=resolved)
        state = backlog.index.state(ref)
        if state == WAITING and known.why == "not_yet":
            backlog.dequeue(ref)
            backlog.ready(ref, attempt, overrides)
            backlog.outbox.ready(command.agenda_id, attempt, now)
        else:
            if state == HELD and known.why == "not_yet":
                overrides = replace(overrides, due=0.0)
            elif backlog.index.in_flight_record(ref) is not None:
                overrides = replace(overrides, woken=True)
            backlog.set_overrides(ref, overrides)
        return True

    def _fail(self, ref: int, command: Command, now: float) -> bool:
        """What it waited for before its first attempt has not come: it fails, if it is held."""
        backlog = self._backlog
        if backlog.index.state(ref) != HELD:
            return False
        attempt = backlog.index.attempt(ref)
        failed = FailedAgenda(ref, command.agenda_id, attempt, "wait_timed_out", command.reason)
        backlog.dequeue(ref)
        backlog.outbox.exhausted(failed, now)
        backlog.forget(ref)
        return True


def _describe(command: Command) -> str:
    """Who wants it and why, in one line."""
    by = f"by {command.by}" if command.by else ""
    return ": ".join(part for part in (by, command.reason) if part)
