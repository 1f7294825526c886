"""Attempts that are in flight: claimed, renewed, ended, lost; and what follows each."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pop_stream.model.events.lifecycle import WaitReason
from pop_stream.model.events.scheduling import Settlement
from pop_stream.model.retry import MAX_DEFERRAL_S, MIN_DEFERRAL_S
from pop_stream.policy.backlog.agenda_index import CLAIMED, EMITTED, HELD, NO_OVERRIDES, READY
from pop_stream.policy.backlog.health import AttemptEnd
from pop_stream.policy.backlog.leases import Leases
from pop_stream.policy.backlog.outbox import FailedAgenda
from pop_stream.policy.backlog.state import BacklogState
from pop_stream.policy.delta import AgendaRecord, Overrides
from pop_stream.policy.fairness.turn_order import MICROSECONDS

MAX_EXPIRED: Final = 1_000
"""Leases ended at once, so that what they lead to fits the event's records."""

_SKIPPED_AFTER_S: Final = 1.0
_SECOND_MS: Final = 1000
_MAX_EXPIRED_KEPT: Final = 10_000


class Attempts:
    """Applies what pullers report, or fail to; `now` is in seconds since the epoch.

    What an attempt takes is counted between instants at which the relay wrote its reports
    (`relayed_at`, by default `now`): they are on record, so a replay counts the same.

    Attributes:
        leases_expired: Attempts whose lease ended.
    """

    def __init__(self, backlog: BacklogState) -> None:
        self.leases_expired = 0
        self._backlog = backlog
        self._expired_attempts: OrderedDict[str, int] = OrderedDict()

    def claim(
        self,
        agenda_id: str,
        attempt: int,
        now: float,
        relayed_at: float | None = None,
        *,
        deferrals: int = 0,
    ) -> bool:
        """A puller has claimed the attempt; False if it is not in flight and unclaimed.

        Args:
            agenda_id: Of the agenda.
            attempt: Its number.
            now: The present instant.
            relayed_at: When the claim was relayed; None for now.
            deferrals: How many attempts before it do not count, as in what was emitted.
        """
        record = self._in_flight_record(agenda_id, attempt, deferrals)
        if record is None:
            self._stop_outdated(agenda_id, attempt)
            return False
        if record.overrides is not None and record.overrides.stopping:
            # Whoever claims it now may have begun to read stops after this one was published.
            self._backlog.outbox.stop(record.ref, agenda_id, attempt, record.overrides.stopping)
        if record.state != EMITTED:
            self._backlog.leases.begin(record.ref, now)
            return False
        self._backlog.claim(record, now, now if relayed_at is None else relayed_at)
        return True

    def renew(
        self, agenda_id: str, attempt: int, now: float, relayed_at: float | None = None
    ) -> bool:
        """A heartbeat renews the lease; False if the attempt is not in flight.

        It counts as a claim if none was reported: only who claimed it can send one.
        """
        backlog = self._backlog
        ref = backlog.index.find(agenda_id)
        record = backlog.index.in_flight_record(ref) if ref is not None else None
        if record is not None and record.attempt == attempt and record.state == CLAIMED:
            backlog.leases.begin(record.ref, now)
            return True
        self.claim(agenda_id, attempt, now, relayed_at)
        return record is not None and record.attempt == attempt

    def mark_by_http(self, agenda_id: str, attempt: int) -> None:
        """Whoever has the attempt speaks through the API alone, as its lease then knows."""
        record = self._in_flight_record(agenda_id, attempt)
        if record is not None:
            self._backlog.leases.mark_by_http(record.ref)

    @property
    def leases(self) -> Leases:
        """Those that run."""
        return self._backlog.leases

    @property
    def any_by_http(self) -> bool:
        """Whether any lease is of a worker that speaks through the API alone."""
        return self._backlog.leases.any_by_http

    def settle(
        self, settlement: Settlement, now: float, relayed_at: float | None = None
    ) -> bool:
        """An attempt ended: count what it took, and decide what follows.

        Returns:
            False if the attempt is not in flight: reported before, or outdated.
        """
        record = self._in_flight_record(settlement.agenda_id, settlement.attempt)
        if record is None:
            return False
        backlog = self._backlog
        is_done = settlement.outcome == "succeeded"
        ended_at = now if relayed_at is None else relayed_at
        customer_id = backlog.customer_id(record.ref)
        backlog.release_slot(record, settlement.spent_s, ended_at, learn=is_done)
        if settlement.outcome in {"succeeded", "failed"}:
            end: AttemptEnd = "done" if is_done else "failed"
            backlog.health.note(customer_id, end, now, backlog.insight.health)
        overrides = record.overrides or NO_OVERRIDES
        if is_done:
            self._forget(record, now)
        elif overrides.stopping and _may_be_stopped(settlement):
            self._finish_stop(record, now)
        elif settlement.outcome == "deferred":
            self._defer(record, settlement, now)
        elif settlement.outcome == "failed" and not settlement.retryable:
            # Its lifecycle has ended with the failure; only the dead letter is left to write.
            backlog.outbox.dead_lettered(
                self._failed(record, "final_failure", settlement.message)
            )
            self._forget(record, now)
        else:
            self._retry_or_exhaust(
                record, "retry", settlement.message or "it was stopped unasked", now
            )
        return True

    def count_running(self, relayed_at: float) -> None:
        """Count what runs as what it has taken by an instant on the clock of the relay."""
        self._backlog.count_running(relayed_at)

    def skipped(self, lags: Sequence[int], since: int, now: float) -> list[int]:
        """Places of unclaimed agendas that pullers have committed past.

        Args:
            lags: Records behind the pullers' commit, by partition of the insight's topic.
            since: How many were emitted after the lags were asked for.
            now: The present instant; what was emitted within the last second is left out.
        """
        return self._backlog.emitted_offsets.skipped(lags, since, now - _SKIPPED_AFTER_S)

    def start_leases_of_skipped(self, lags: Sequence[int], since: int, now: float) -> None:
        """Start leases for what `skipped` finds: a report of its claim may be on its way."""
        backlog = self._backlog
        for ref in self.skipped(lags, since, now):
            backlog.emitted_offsets.remove(ref)
            if not backlog.leases.is_running(ref):
                backlog.leases.begin(ref, now)

    def has_unclaimed(self, now: float) -> bool:
        """Whether any could be found by `skipped`."""
        oldest = self._backlog.emitted_offsets.oldest
        return oldest is not None and oldest < now - _SKIPPED_AFTER_S

    def restart_all(self, now: float) -> None:
        """Start all leases again now: for a time no heartbeat could arrive."""
        self._backlog.leases.restart_all(now)

    @property
    def lease_s(self) -> float:
        """How long an attempt may go without a heartbeat."""
        return self._backlog.insight.lease_ms / _SECOND_MS

    @property
    def lease_ends_at(self) -> float | None:
        """When the next lease ends, on the clock of relayed reports; None if none runs."""
        oldest = self._backlog.leases.oldest
        return None if oldest is None else oldest + self.lease_s

    def expire_leases(
        self, relayed_until: float, now: float, *, is_api_down: bool = False
    ) -> int:
        """End the attempts that were silent for longer than their lease; returns how many.

        Args:
            relayed_until: All reports sent before this instant were applied.
            now: The present instant.
            is_api_down: Then leases of workers that speak through the API start again, but for
                attempts that are to stop.
        """
        backlog = self._backlog
        silent = backlog.leases.pop_expired(relayed_until - self.lease_s, MAX_EXPIRED)
        lost: list[AgendaRecord] = []
        for ref in silent:
            record = backlog.index.in_flight_record(ref)
            if record is None:
                backlog.leases.end(ref)
            elif is_api_down and backlog.leases.is_by_http(ref) and not _is_stopping(record):
                backlog.leases.begin(ref, now)
            else:
                lost.append(record)
        for record in lost:
            self._expire(record, relayed_until, now)
        self.leases_expired += len(lost)
        return len(lost)

    def _expire(self, record: AgendaRecord, relayed_until: float, now: float) -> None:
        backlog = self._backlog
        backlog.release_slot(record, {}, relayed_until, learn=False)
        customer_id = backlog.customer_id(record.ref)
        backlog.health.note(customer_id, "lost", now, backlog.insight.health)
        agenda_id = backlog.agenda_id(record.ref)
        self._remember_expired(agenda_id, record.attempt)
        if (record.overrides or NO_OVERRIDES).stopping:
            self._finish_stop(record, now)
            return
        backlog.outbox.stop(record.ref, agenda_id, record.attempt, "outdated")
        what = "its puller fell silent" if record.state == CLAIMED else "no puller claimed it"
        self._retry_or_exhaust(
            record, "lost", f"{what} for more than its lease of {self.lease_s:g} s", now
        )

    def _retry_or_exhaust(
        self, record: AgendaRecord, why: WaitReason, message: str, now: float
    ) -> None:
        """The attempt did not succeed: another one follows, unless it was the last."""
        backlog = self._backlog
        known = record.overrides or NO_OVERRIDES
        tries = record.attempt - backlog.index.options(record.ref).attempt + 1
        if tries - known.deferrals >= self._max_attempts(record.ref):
            failed = self._failed(record, "attempts_exhausted", message)
            backlog.outbox.exhausted(failed, now)
            self._remember_expired(failed.agenda_id, record.attempt)
            self._forget(record, now)
            return
        due = now + backlog.pause_s(record.ref, record.attempt + 1, why)
        resolved = known.resolved if why == "lost" else ()
        overrides = replace(known, due=due, why=why, resolved=resolved, woken=False)
        self._go_on(record, overrides, message, now)

    def _defer(self, record: AgendaRecord, settlement: Settlement, now: float) -> None:
        """Operations wait for something: another attempt follows, however many there were.

        What ended waits before the attempt's own end is before it in the topic too, so whoever
        has come to the next attempt has it; and the same operation may wait once more.
        """
        known = record.overrides or NO_OVERRIDES
        until = now
        if settlement.until is not None and not known.woken:
            until = settlement.until.timestamp()
        overrides = replace(
            known,
            due=min(max(until, now + MIN_DEFERRAL_S), now + MAX_DEFERRAL_S),
            why="not_yet",
            deferrals=known.deferrals + 1,
            waiting_since=known.waiting_since or now,
            resolved=(),
            woken=False,
        )
        self._go_on(record, overrides, settlement.message, now)

    def _go_on(
        self, record: AgendaRecord, overrides: Overrides, message: str, now: float
    ) -> None:
        """The next attempt waits until it is due, or for its release."""
        backlog, attempt = self._backlog, record.attempt + 1
        agenda_id = backlog.agenda_id(record.ref)
        waiting = replace(overrides, hold=False)
        if overrides.hold:
            backlog.hold(record.ref, attempt, waiting)
            backlog.outbox.held(agenda_id, attempt, now, reason=message)
        else:
            backlog.wait(record.ref, attempt, waiting)
            backlog.outbox.waiting(
                agenda_id, attempt, now, until=waiting.due, why=waiting.why, message=message
            )

    def _max_attempts(self, ref: int) -> int:
        most = self._backlog.index.options(ref).max_attempts
        return most or self._backlog.insight.max_attempts

    def _finish_stop(self, record: AgendaRecord, now: float) -> None:
        """The attempt was to stop and has ended, so the agenda has ended."""
        overrides = record.overrides or NO_OVERRIDES
        agenda_id = self._backlog.agenda_id(record.ref)
        self._backlog.outbox.ended(
            agenda_id,
            record.attempt,
            now,
            reason=overrides.stopping or "cancelled",
            message=overrides.message,
        )
        self._forget(record, now)

    def _forget(self, record: AgendaRecord, now: float) -> None:
        """The agenda has ended with an attempt, which is the end of a run of its key."""
        backlog = self._backlog
        rule = backlog.index.options(record.ref).dedupe
        if rule is not None:
            backlog.keys.end(rule, backlog.agenda_id(record.ref), now)
        backlog.forget(record.ref)

    def _failed(self, record: AgendaRecord, code: str, message: str) -> FailedAgenda:
        agenda_id = self._backlog.agenda_id(record.ref)
        return FailedAgenda(record.ref, agenda_id, record.attempt, code, message)

    # ---- reports about attempts that a crash made forgotten ----

    def _in_flight_record(
        self, agenda_id: str, attempt: int, deferrals: int = 0
    ) -> AgendaRecord | None:
        """The record of an attempt in flight.

        A report may be the first that is known of an attempt: a crash lost the row that said it
        was emitted. Then the backlog catches up with it.
        """
        index = self._backlog.index
        ref = index.find(agenda_id)
        if ref is None:
            return None
        record = index.in_flight_record(ref)
        if record is not None and record.attempt == attempt:
            return record
        known = index.attempt(ref)
        if attempt != known and not self._fast_forward(ref, known, attempt, deferrals):
            return None
        return self._recover_emitted(ref)

    def _fast_forward(self, ref: int, known: int, attempt: int, deferrals: int) -> bool:
        """Move on to an attempt that was made before a crash; False if it cannot have been."""
        backlog = self._backlog
        overrides = backlog.index.overrides(ref)
        first = backlog.index.options(ref).attempt
        deferrals = max(deferrals, overrides.deferrals)
        last = first - 1 + self._max_attempts(ref) + deferrals
        if not known < attempt <= last:
            return False
        record = backlog.index.in_flight_record(ref)
        if record is not None:
            counted_until = record.claimed_at + record.sure / MICROSECONDS
            backlog.release_slot(record, {}, counted_until, learn=False)
        else:
            backlog.dequeue(ref)
        # Whatever held an earlier attempt was released, or this one had not been emitted.
        backlog.ready(ref, attempt, replace(overrides, hold=False, deferrals=deferrals))
        return True

    def _recover_emitted(self, ref: int) -> AgendaRecord:
        """Count as emitted what a puller reports on; it leaves the queue out of turn."""
        backlog = self._backlog
        if backlog.index.state(ref) != READY:
            overrides, attempt = backlog.index.overrides(ref), backlog.index.attempt(ref)
            is_held = backlog.index.state(ref) == HELD
            backlog.dequeue(ref)
            backlog.ready(ref, attempt, replace(overrides, hold=is_held))
        page, slot = backlog.index.at(ref)
        pick = backlog.queue.pick_out_of_turn(
            page.customers[slot],
            backlog.entry(ref),
            page.keys[slot],
            estimate=backlog.cost(ref),
        )
        return backlog.emit(pick)

    def _stop_outdated(self, agenda_id: str, attempt: int) -> None:
        """Stop whoever runs an attempt that is known to have ended."""
        backlog = self._backlog
        ref = backlog.index.find(agenda_id)
        over = self._expired_attempts.get(agenda_id, 0)
        if attempt <= over or (ref is not None and attempt < backlog.index.attempt(ref)):
            backlog.outbox.stop(ref, agenda_id, attempt, "outdated")

    def _remember_expired(self, agenda_id: str, attempt: int) -> None:
        """Its puller was silent, so it may still be running it."""
        self._expired_attempts[agenda_id] = attempt
        self._expired_attempts.move_to_end(agenda_id)
        if len(self._expired_attempts) > _MAX_EXPIRED_KEPT:
            self._expired_attempts.popitem(last=False)


def _may_be_stopped(settlement: Settlement) -> bool:
    """Whether the attempt left work undone, so that a stop which was wanted has its way."""
    return settlement.retryable or settlement.outcome in {"stopped", "deferred"}


def _is_stopping(record: AgendaRecord) -> bool:
    return bool((record.overrides or NO_OVERRIDES).stopping)
