"""Signals, which customers give once something has come about; and waits that are over."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

MAX_SIGNAL_BYTES: Final = 64 * 1024
"""Largest payload, as JSON: it becomes an operation's result."""

MAX_KEPT_SIGNALS: Final = 10_000
"""Most signals that are kept of one customer at a time."""

DEFAULT_KEEP_S: Final = 86_400
"""How long a signal is kept by default: a day."""

MAX_KEEP_S: Final = 31_622_400
"""How long it is kept at most: 366 days."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One that was given.

    Attributes:
        payload: JSON; empty for none.
        expires_at: Until then it ends waits, also those that begin after it was given.
    """

    customer_id: str
    name: str
    payload: bytes
    given_at: datetime
    given_by: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AnsweredOperation:
    """An operation that waits for a signal that was given."""

    agenda_id: str
    insight_id: str
    attempt: int
    operation: str
    payload: bytes
    given_by: str


@dataclass(frozen=True, slots=True)
class DecidedWait:
    """An agenda whose wait for its conditions is over.

    Attributes:
        since: When it was accepted.
        unmet: Conditions that are not met, in words; empty if all are.
    """

    agenda_id: str
    insight_id: str
    attempt: int
    on_timeout: str
    since: datetime
    unmet: str
