"""How long an operation waits for something, and when the wait has taken too long.

A puller decides it when a handler says that something is not there yet, the API when a worker
does that pulls over HTTP; both by this.
"""

from datetime import datetime, timedelta
from typing import Final

from pop_stream.model.events.base import OperationWait, WaitKind
from pop_stream.model.retry import DEFAULT_WAIT_S, MAX_DEFERRAL_S, MIN_DEFERRAL_S

_NO_LIMIT: Final = frozenset[WaitKind]({"sleep"})
"""What knows its own end."""


def wait_on(  # what a wait consists of, each by its name
    *,
    since: datetime,
    now: datetime,
    recheck_s: float,
    within_s: float | None,
    kind: WaitKind = "check",
    signal: str = "",
) -> OperationWait | None:
    """What the operation waits for from now on; None if it has waited for too long.

    The last look is at the end of the time allowed, not after it.

    Args:
        since: When it first waited.
        now: The present instant.
        recheck_s: Seconds until it is to be looked at again; brought between a second and 366
            days.
        within_s: How long it may wait in all; None for a week.
        kind: What it waits for. A sleep is not limited.
        signal: That ends the wait.
    """
    until = now + timedelta(seconds=min(max(recheck_s, MIN_DEFERRAL_S), MAX_DEFERRAL_S))
    if kind in _NO_LIMIT:
        return OperationWait(since=since, until=until, kind=kind)
    gives_up_at = since + timedelta(seconds=DEFAULT_WAIT_S if within_s is None else within_s)
    if now >= gives_up_at:
        return None
    return OperationWait(
        since=since,
        until=min(until, gives_up_at),
        kind=kind,
        signal=signal,
        gives_up_at=gives_up_at,
    )


def timed_out(since: datetime, now: datetime, reason: str) -> str:
    """Why an operation fails that has waited for too long, in words."""
    waited_s = (now - since).total_seconds()
    said = f": {reason}" if reason else ""
    return (
        f"it waited {waited_s:.0f} s in vain{said}; wait_within_s, of the operation or its "
        "agenda, is how long it may wait"
    )
