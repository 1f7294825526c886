"""The attempts that are out: claimed, kept alive, ended, lost; and what follows each."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pop_stream.core.backlog.leases import Leases
from pop_stream.core.backlog.outbox import Failed
from pop_stream.core.backlog.page import CLAIMED, EMITTED, HELD, READY
from pop_stream.core.backlog.slots import NO_MARK
from pop_stream.core.backlog.stock import Stock
from pop_stream.core.delta import SlotNote
from pop_stream.core.events import Settlement, WaitReason

MOST_LOST: Final = 1_000
"""Leases ended at once, so that what they lead to fits the event's records."""

_PASSED_AFTER_S: Final = 1.0
_SECOND_MS: Final = 1000
_MOST_ENDED: Final = 10_000


class Attempts:
    """What pullers say, and what their silence says; `now` is in seconds since the epoch.

    Attributes:
        lost: Attempts whose lease ended.
    """

    def __init__(self, stock: Stock) -> None:
        self.lost = 0
        self._stock = stock
        self._ended: OrderedDict[str, int] = OrderedDict()

    def claim(self, agenda_id: str, attempt: int, now: float) -> bool:
        """A puller holds the attempt; False if it is not one that is out unclaimed."""
        note = self._out(agenda_id, attempt)
        if note is None:
            self._answer_outdated(agenda_id, attempt)
            return False
        if note.mark is not None and note.mark.stopping:
            # Whoever claims it now may have begun to listen after the stop was told.
            self._stock.outbox.stop(note.ref, agenda_id, attempt, note.mark.stopping)
        if note.state != EMITTED:
            self._stock.leases.begin(note.ref, now)
            return False
        self._stock.claim(note, now)
        return True

    def renew(self, agenda_id: str, attempt: int, now: float) -> bool:
        """A sign of life; False if the attempt is not out.

        It counts as a claim if none was heard: only whoever claimed it can be alive in it.
        """
        stock = self._stock
        ref = stock.slots.find(agenda_id)
        note = stock.slots.out(ref) if ref is not None else None
        if note is not None and note.attempt == attempt and note.state == CLAIMED:
            stock.leases.begin(note.ref, now)
            return True
        self.claim(agenda_id, attempt, now)
        return note is not None and note.attempt == attempt

    def renew_running(self, agenda_id: str, attempt: int, now: float) -> None:
        """A sign of life of whoever may hold the attempt: only a lease that runs begins anew.

        Nothing else is concluded from it, for nobody has looked up whether there ever was
        such an attempt.
        """
        stock = self._stock
        ref = stock.slots.find(agenda_id)
        note = stock.slots.out(ref) if ref is not None else None
        if note is not None and note.attempt == attempt and stock.leases.is_running(note.ref):
            stock.leases.begin(note.ref, now)

    def note_by_http(self, agenda_id: str, attempt: int) -> None:
        """Who holds the attempt can be heard through the API alone."""
        note = self._out(agenda_id, attempt)
        if note is not None:
            self._stock.leases.note_by_http(note.ref)

    @property
    def leases(self) -> Leases:
        """Those that run."""
        return self._stock.leases

    @property
    def any_by_http(self) -> bool:
        """Whether anyone holds an attempt who can be heard through the API alone."""
        return self._stock.leases.any_by_http

    def settle(self, settlement: Settlement, now: float) -> bool:
        """An attempt ended: correct its cost, and see what follows.

        Returns:
            False if the attempt is not out: told before, or outdated.
        """
        note = self._out(settlement.agenda_id, settlement.attempt)
        if note is None:
            return False
        stock = self._stock
        is_done = settlement.outcome == "succeeded"
        stock.free(note, settlement.spent_s, learn=is_done)
        mark = note.mark or NO_MARK
        if is_done:
            stock.forget(note.ref)
        elif mark.stopping and (settlement.retryable or settlement.outcome == "stopped"):
            self._conclude(note, now)
        elif settlement.outcome == "failed" and not settlement.retryable:
            # Its lifecycle has ended with the failure; only the letter is left to write.
            stock.outbox.buried(self._failed(note, "final_failure", settlement.message))
            stock.forget(note.ref)
        else:
            self._fall(note, "retry", settlement.message or "it was stopped unasked", now)
        return True

    def passed(self, lags: Sequence[int], since: int, now: float) -> list[int]:
        """Places of unclaimed agendas that pullers have committed past.

        Args:
            lags: Records behind the pullers' commit, by partition of the insight's topic.
            since: How many were emitted after the lags were asked for.
            now: The present instant; what was emitted within the last second is left out.
        """
        return self._stock.unclaimed.passed(lags, since, now - _PASSED_AFTER_S)

    def pass_over(self, lags: Sequence[int], since: int, now: float) -> None:
        """Let leases begin for what `passed` finds: a claim of it may still be on its way."""
        stock = self._stock
        for ref in self.passed(lags, since, now):
            stock.unclaimed.remove(ref)
            if not stock.leases.is_running(ref):
                stock.leases.begin(ref, now)

    def has_unclaimed(self, now: float) -> bool:
        """Whether any could be found by `passed`."""
        oldest = self._stock.unclaimed.oldest
        return oldest is not None and oldest < now - _PASSED_AFTER_S

    def begin_anew(self, now: float) -> None:
        """All leases begin now: for a time nobody could be heard."""
        self._stock.leases.begin_anew(now)

    @property
    def lease_s(self) -> float:
        """How long an attempt may be silent."""
        return self._stock.insight.lease_ms / _SECOND_MS

    @property
    def lease_ends_at(self) -> float | None:
        """When the next lease ends, on the clock of what was heard; None if none runs."""
        oldest = self._stock.leases.oldest
        return None if oldest is None else oldest + self.lease_s

    def expire_leases(
        self, heard_until: float, now: float, *, is_api_away: bool = False
    ) -> int:
        """Take back what was silent for longer than its lease; returns how many.

        Args:
            heard_until: Everything told before it has been taken note of.
            now: The present instant.
            is_api_away: Leases of who speaks through it begin anew, but for what is to stop.
        """
        stock = self._stock
        silent = stock.leases.take_silent(heard_until - self.lease_s, MOST_LOST)
        lost: list[SlotNote] = []
        for ref in silent:
            note = stock.slots.out(ref)
            if note is None:
                stock.leases.end(ref)
            elif is_api_away and stock.leases.is_by_http(ref) and not _is_stopping(note):
                stock.leases.begin(ref, now)
            else:
                lost.append(note)
        for note in lost:
            self._lose(note, now)
        self.lost += len(lost)
        return len(lost)

    def _lose(self, note: SlotNote, now: float) -> None:
        stock = self._stock
        stock.free(note, {}, learn=False)
        agenda_id = stock.agenda_id(note.ref)
        self._remember(agenda_id, note.attempt)
        if (note.mark or NO_MARK).stopping:
            self._conclude(note, now)
            return
        stock.outbox.stop(note.ref, agenda_id, note.attempt, "outdated")
        what = "its puller fell silent" if note.state == CLAIMED else "no puller claimed it"
        self._fall(note, "lost", f"{what} for more than its lease of {self.lease_s:g} s", now)

    def _fall(self, note: SlotNote, why: WaitReason, message: str, now: float) -> None:
        """The attempt came to nothing: another one, unless it was the last."""
        stock = self._stock
        terms = stock.slots.terms(note.ref)
        tries = note.attempt - terms.attempt + 1
        if tries >= (terms.max_attempts or stock.insight.max_attempts):
            failed = self._failed(note, "attempts_exhausted", message)
            stock.outbox.given_up(failed, now)
            self._remember(failed.agenda_id, note.attempt)
            stock.forget(note.ref)
            return
        agenda_id = stock.agenda_id(note.ref)
        known, attempt = note.mark or NO_MARK, note.attempt + 1
        due = now + stock.pause_s(note.ref, attempt, why)
        mark = replace(known, due=due, why=why, hold=False)
        if known.hold:
            stock.hold(note.ref, attempt, mark)
            stock.outbox.held(agenda_id, attempt, now, reason=message)
        else:
            stock.wait(note.ref, attempt, mark)
            stock.outbox.waiting(
                agenda_id, attempt, now, until=mark.due, why=why, message=message
            )

    def _conclude(self, note: SlotNote, now: float) -> None:
        """The attempt was to stop and is over: so is the agenda."""
        mark = note.mark or NO_MARK
        agenda_id = self._stock.agenda_id(note.ref)
        self._stock.outbox.ended(
            agenda_id,
            note.attempt,
            now,
            reason=mark.stopping or "cancelled",
            message=mark.message,
        )
        self._stock.forget(note.ref)

    def _failed(self, note: SlotNote, code: str, message: str) -> Failed:
        agenda_id = self._stock.agenda_id(note.ref)
        return Failed(note.ref, agenda_id, note.attempt, code, message)

    # ---- which attempt is meant ----

    def _out(self, agenda_id: str, attempt: int) -> SlotNote | None:
        """The note of an attempt that is out; one that a crash made forgotten is out again."""
        slots = self._stock.slots
        ref = slots.find(agenda_id)
        if ref is None:
            return None
        note = slots.out(ref)
        if note is not None and note.attempt == attempt:
            return note
        known = slots.attempt(ref)
        if attempt != known and not self._catch_up(ref, known, attempt):
            return None
        return self._recalled(ref)

    def _catch_up(self, ref: int, known: int, attempt: int) -> bool:
        """Whether the attempt is one that was made before a crash and then forgotten."""
        stock = self._stock
        terms = stock.slots.terms(ref)
        last = terms.attempt - 1 + (terms.max_attempts or stock.insight.max_attempts)
        if not known < attempt <= last:
            return False
        note = stock.slots.out(ref)
        if note is not None:
            stock.free(note, {}, learn=False)
        else:
            stock.leave(ref)
        # Whatever held an earlier attempt was released, or this one had not been emitted.
        stock.ready(ref, attempt, replace(stock.slots.mark(ref), hold=False))
        return True

    def _recalled(self, ref: int) -> SlotNote:
        """Others have seen that it was emitted, and claimed, so it counts as emitted."""
        stock = self._stock
        if stock.slots.state(ref) != READY:
            mark, attempt = stock.slots.mark(ref), stock.slots.attempt(ref)
            is_held = stock.slots.state(ref) == HELD
            stock.leave(ref)
            stock.ready(ref, attempt, replace(mark, hold=is_held))
        page, slot = stock.slots.at(ref)
        pick = stock.queue.take(
            page.customers[slot], stock.entry(ref), page.keys[slot], cost=stock.cost(ref)
        )
        return stock.emit(pick)

    def _answer_outdated(self, agenda_id: str, attempt: int) -> None:
        """Tell whoever runs an attempt that is over, if it is known to be."""
        stock = self._stock
        ref = stock.slots.find(agenda_id)
        over = self._ended.get(agenda_id, 0)
        if attempt <= over or (ref is not None and attempt < stock.slots.attempt(ref)):
            stock.outbox.stop(ref, agenda_id, attempt, "outdated")

    def _remember(self, agenda_id: str, attempt: int) -> None:
        """Its puller was silent, so it may still be at it."""
        self._ended[agenda_id] = attempt
        self._ended.move_to_end(agenda_id)
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)


def _is_stopping(note: SlotNote) -> bool:
    return bool((note.mark or NO_MARK).stopping)
