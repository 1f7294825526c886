"""Duplicates: which agenda stands for a key, and what becomes of one that comes with it.

The scheduler of the insight alone decides, when an agenda is placed, and of two agendas with
one key that come at any time and by any entry point. What has been accepted cannot be refused
any more, so of the two one ends cancelled, with an event that names the other.

An agenda stands for its key as long as it waits or runs; of one with `within_s` the end of
its run is remembered for so long. The rule of the agenda that comes later decides.
"""

from typing import Final

from msgspec.structs import replace

from pop_stream.model.events.base import DedupeRule, Duplicate
from pop_stream.model.events.scheduling import Command
from pop_stream.model.tenancy import display_id
from pop_stream.policy.backlog.agenda_index import HELD, PENDING, WAITING
from pop_stream.policy.backlog.commands import BacklogCommands
from pop_stream.policy.backlog.state import BacklogState

MAX_DEBOUNCES: Final = 10
"""So many times `debounce_s` after the first of them a debounced agenda goes at the latest."""

RETRY_AFTER_S: Final = 60.0
"""When it is worth trying again while a duplicate waits or runs; nobody knows when it ends."""


class Duplicates:
    """Decides about agendas with a key as they are placed; `now` is in seconds since the epoch.

    Args:
        backlog: Whose agendas.
        commands: By which the one that loses ends.
    """

    def __init__(self, backlog: BacklogState, commands: BacklogCommands) -> None:
        self._backlog = backlog
        self._commands = commands

    def resolve(self, ref: int, now: float) -> None:
        """An agenda with a key was just placed: it stands for the key, or one of two ends.

        One that runs again is no duplicate: somebody wants it to run. It stands for its key.
        """
        keys, options = self._backlog.keys, self._backlog.index.options(ref)
        rule = options.dedupe
        if rule is None:
            return
        if options.attempt > 1:
            keys.add(rule.key, ref)
            return
        standing = self._standing(rule)
        if standing is not None:
            self._meet(standing, ref, rule, now)
        elif (ended := self._ended_lately(ref, rule)) is not None:
            self._lose(ref, ended, "which ended only lately", rule, now)
        else:
            keys.add(rule.key, ref)

    def of(self, rule: DedupeRule, now: float) -> Duplicate | None:
        """Of what an agenda with this rule would be a duplicate now; changes nothing."""
        ref = self._standing(rule)
        if ref is not None:
            return Duplicate(rule.key, self._backlog.agenda_id(ref), RETRY_AFTER_S)
        end = self._backlog.keys.last_end(rule.key)
        if end is None or now - end.at >= rule.within_s:
            return None
        return Duplicate(rule.key, end.agenda_id, round(end.at + rule.within_s - now, 3))

    def _standing(self, rule: DedupeRule) -> int | None:
        """The newest that stands for the key, of those that have duplicates by the rule."""
        index = self._backlog.index
        for ref in self._backlog.keys.standing(rule.key):
            if rule.during == "running" or index.state(ref) in PENDING:
                return ref
        return None

    def _ended_lately(self, ref: int, rule: DedupeRule) -> str | None:
        """The last that ended less than its grace before the agenda came.

        By when it came and not by now: a crash repeats the decision, and it must be the same.
        """
        page, slot = self._backlog.index.at(ref)
        end = self._backlog.keys.last_end(rule.key)
        is_recent = end is not None and page.arrivals[slot] - end.at < rule.within_s
        return end.agenda_id if end is not None and is_recent else None

    def _meet(self, standing: int, ref: int, rule: DedupeRule, now: float) -> None:
        backlog = self._backlog
        known, agenda_id = backlog.agenda_id(standing), backlog.agenda_id(ref)
        is_waiting = backlog.index.state(standing) in PENDING
        match rule.on_duplicate:
            case "replace" | "update" | "debounce" if is_waiting:
                since = self._take_place(standing, ref, rule)
                self._lose(standing, agenda_id, "which came later", rule, now)
                backlog.keys.add(rule.key, ref)
                if rule.debounce_s:
                    self._put_off(ref, since, rule, now)
                return
            case "reprioritise" if is_waiting:
                page, slot = backlog.index.at(ref)
                wanted = Command(
                    agenda_id=known,
                    action="reprioritise",
                    priority=page.priorities[slot],
                    rank=page.ranks[slot],
                    reason=f"as its duplicate {agenda_id}",
                )
                self._commands.apply(wanted, now)
            case _:
                pass
        self._lose(ref, known, "which waits" if is_waiting else "which runs", rule, now)

    def _take_place(self, standing: int, ref: int, rule: DedupeRule) -> float:
        """What the later one takes over of the earlier; returns since when that was put off."""
        backlog, index = self._backlog, self._backlog.index
        page, slot = index.at(standing)
        if rule.on_duplicate == "update":
            overrides = index.overrides(ref)
            priority, rank, attempt = (
                page.priorities[slot],
                page.ranks[slot],
                index.attempt(ref),
            )
            state = index.state(ref)
            backlog.dequeue(ref)
            index.reorder(ref, priority=priority, rank=rank)
            overrides = replace(overrides, priority=priority, rank=rank)
            if index.state(standing) == HELD or state == HELD:
                backlog.hold(ref, attempt, overrides)
            elif state == WAITING:
                due = backlog.due(ref, 0.0)
                backlog.wait(ref, attempt, replace(overrides, due=due))
            else:
                backlog.ready(ref, attempt, overrides)
        since = backlog.keys.put_off_since(standing)
        return page.arrivals[slot] if since is None else since

    def _put_off(self, ref: int, since: float, rule: DedupeRule, now: float) -> None:
        """A debounced agenda waits, but not beyond its most from when the first came."""
        backlog, index = self._backlog, self._backlog.index
        backlog.keys.put_off(ref, since)
        latest = since + MAX_DEBOUNCES * rule.debounce_s
        options = index.options(ref)
        if index.state(ref) != WAITING or (options.not_before or 0.0) <= latest:
            return
        backlog.dequeue(ref)
        overrides = replace(index.overrides(ref), due=max(now, latest))
        backlog.wait(ref, index.attempt(ref), overrides)

    def _lose(self, ref: int, winner: str, why: str, rule: DedupeRule, now: float) -> None:
        """The agenda, which is not in flight, ends cancelled and names the other."""
        backlog = self._backlog
        agenda_id, attempt = backlog.agenda_id(ref), backlog.index.attempt(ref)
        shown = display_id(winner, backlog.customer_id(ref))
        backlog.dequeue(ref)
        message = f"a duplicate of {shown}, {why} (on_duplicate: {rule.on_duplicate})"
        backlog.outbox.duplicate(agenda_id, attempt, now, of=winner, message=message)
        backlog.forget(ref)
