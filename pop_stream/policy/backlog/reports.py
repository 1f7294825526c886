"""Applies whole events of `pop.ready` to a backlog: what the relay reports, and ticks."""

from pop_stream.model.events.scheduling import InsightAttemptsReported, InsightTick
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.backlog import Backlog


def apply_relayed(backlog: Backlog, event: InsightAttemptsReported, now: float) -> None:
    """Apply what pullers reported and people commanded.

    Ends are applied before commands, whichever came first, so that a success is not undone.

    Args:
        backlog: Of the insight that the event is about.
        event: As the relay wrote it.
        now: The present instant, in seconds since the epoch.
    """
    at = event.relayed_at.timestamp() if event.relayed_at is not None else now
    backlog.idle.update(event.idle, now)
    for claim in event.claims:
        backlog.claim(
            claim.agenda_id,
            claim.attempt,
            now,
            at,
            sync_matched=claim.sync_matched,
            deferrals=claim.deferrals,
        )
        if claim.by_http:
            backlog.attempts.mark_by_http(claim.agenda_id, claim.attempt)
    for renewal in event.heartbeats:
        backlog.attempts.renew(renewal.agenda_id, renewal.attempt, now, at)
    for settlement in event.settlements:
        backlog.settle(settlement, now, at)
    backlog.attempts.count_running(at)
    for command in event.commands:
        backlog.apply_command(command, now)


def apply_tick(backlog: Backlog, tick: InsightTick, now: float) -> None:
    """Start leases of what pullers committed past, expire those that have ended.

    What runs counts as what it has taken by then.

    Args:
        backlog: Of the insight that the tick is about.
        tick: As the ticker wrote it.
        now: The present instant, in seconds since the epoch.
    """
    if tick.divisions:
        backlog.queue.divide_weights(
            {CustomerId(one): division for one, division in tick.divisions.items()}
        )
    if tick.lags and tick.emitted is not None:
        since = max(0, backlog.emitted - tick.emitted)
        backlog.attempts.start_leases_of_skipped(tick.lags, since, now)
    if tick.relayed_until is not None:
        # The tick may be from a scheduler that had the insight before, whose clock is ahead.
        relayed_until = min(tick.relayed_until.timestamp(), now)
        backlog.attempts.count_running(relayed_until)
        backlog.attempts.expire_leases(relayed_until, now, is_api_down=tick.is_api_down)
