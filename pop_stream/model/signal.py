"""Signals that customers give, completions from outside, and waits that are over."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

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


OPERATION_RETRYABLE: Final = "operation_retryable"
OPERATION_FINAL: Final = "operation_final"
HAND_OVER_TIMED_OUT: Final = "hand_over_timed_out"
"""Codes of failures, as handlers' errors have them: of the first and the last, another attempt
may help."""

CompletionOutcome = Literal["succeeded", "failed", "timed_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCompletion:
    """How an operation ended that was handed over: completed by its token, or timed out.

    Attributes:
        token: The digest of the token.
        attempt: In which the token was asked for.
        result: JSON, in success; empty for none.
        reason: Of a failure.
        is_retryable: Whether another attempt may help.
    """

    agenda_id: str
    operation: str
    token: str
    attempt: int
    outcome: CompletionOutcome
    result: bytes = b""
    reason: str = ""
    is_retryable: bool = False
    completed_at: datetime


@dataclass(frozen=True, slots=True)
class AnsweredOperation:
    """An operation whose wait is over: its signal was given, or its hand-over has ended.

    Attributes:
        since: Since when it waits, if its hand-over has timed out.
    """

    agenda_id: str
    insight_id: str
    attempt: int
    operation: str
    payload: bytes
    given_by: str
    outcome: CompletionOutcome = "succeeded"
    reason: str = ""
    is_retryable: bool = False
    since: datetime | None = None


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
