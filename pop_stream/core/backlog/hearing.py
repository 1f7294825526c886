"""What a backlog makes of what it hears: notes of the relay, and ticks."""

from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.events import InsightAttemptsReported, InsightTick


def apply_relayed(backlog: Backlog, noted: InsightAttemptsReported, now: float) -> None:
    """Take note of what pullers say and people want.

    Ends come before commands: whatever was told first, a success is not undone.

    Args:
        backlog: Of the insight that the note is about.
        noted: As the relay wrote it.
        now: The present instant, in seconds since the epoch.
    """
    backlog.idle.update({one.puller_id: one.runners for one in noted.idle}, now)
    for claim in noted.claims:
        backlog.claim(claim.agenda_id, claim.attempt, now, awaited=claim.awaited)
        if claim.by_http:
            backlog.attempts.mark_by_http(claim.agenda_id, claim.attempt)
    for renewal in noted.heartbeats:
        backlog.attempts.renew(renewal.agenda_id, renewal.attempt, now)
    for sign in noted.unverified:
        backlog.attempts.renew_if_running(sign.agenda_id, sign.attempt, now)
    for settlement in noted.settlements:
        backlog.settle(settlement, now)
    for command in noted.commands:
        backlog.apply_command(command, now)


def apply_tick(backlog: Backlog, tick: InsightTick, now: float) -> None:
    """Take note of what was passed over, and of leases that have ended.

    Args:
        backlog: Of the insight that the tick is about.
        tick: As the ticker wrote it.
        now: The present instant, in seconds since the epoch.
    """
    if tick.lags and tick.emitted is not None:
        since = max(0, backlog.emitted - tick.emitted)
        backlog.attempts.start_leases_of_skipped(tick.lags, since, now)
    if tick.relayed_until is not None:
        # The tick may be of a scheduler that had the insight before, whose clock is ahead.
        relayed_until = min(tick.relayed_until.timestamp(), now)
        backlog.attempts.expire_leases(relayed_until, now, is_api_down=tick.is_api_down)
