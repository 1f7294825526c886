"""When a request is sent again."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pop_stream.core.values.retry import Backoff


@dataclass(frozen=True, slots=True)
class Retry:
    """How long, and how often, a request that may be sent again is.

    Whatever the API did not look at (429, no connection, no room) is sent again; what it may
    have done (503, a connection that broke, no answer in time) only if doing it twice is the
    same as doing it once.

    Attributes:
        within: From the first try to the beginning of the last.
        backoff: Between two tries, unless the API asks for longer.
    """

    within: timedelta = timedelta(seconds=30)
    backoff: Backoff = field(default=Backoff(first_s=0.2, factor=2, most_s=5, jitter=0.5))


RETRY: Final = Retry()
"""What a client does unless it is told otherwise."""

NO_RETRY: Final = Retry(within=timedelta(0))
"""Every request is sent once."""
