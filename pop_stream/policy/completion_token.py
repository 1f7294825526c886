"""The token by which an operation is completed from outside, after its handler has ended.

A handler asks the API for one, gives it to whoever completes the operation (a cloud function,
another service), and raises `CompletedElsewhere` with it. The operation then waits, as for a
signal, for a completion by this very token: its wait keeps the token's digest. So a token of an
older attempt, or of an older try, fits no wait and is refused, and no list of tokens is kept.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from pop_stream.model.events.base import Instant, OperationWait
from pop_stream.model.signal import OperationCompletion
from pop_stream.policy.lifecycle.states import OUTCOMES
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.policy.signed_token import SignedTokens, unverified_claims

MAX_COMPLETION_TOKEN_LENGTH: Final = 4_000
"""In characters; no token is longer, whatever its agenda, insight and operation are called."""

_PURPOSE: Final = b"pop_stream completion token "
_DIGEST_LENGTH: Final = 32
_LOOK_AGAIN: Final = timedelta(seconds=60)
"""How long after its end a hand-over waits for whoever decides that it is over."""

_SAME_ACCEPTANCE: Final = timedelta(seconds=1)
_FOLDED_WITHIN: Final = timedelta(minutes=1)


class CompletionClaims(msgspec.Struct, frozen=True, array_like=True):
    """The operation that a token completes.

    Attributes:
        agenda_id: As it is called inside, not as its customer calls it.
        attempt: The one in which it was asked for.
        accepted_at: When the agenda was accepted, or run again: one under the same id that
            was accepted later is another.
        issued_at: When it was asked for; no two tokens of an operation have the same.
        expires_at: From then on it completes nothing.
    """

    agenda_id: str
    insight_id: str
    attempt: int
    accepted_at: Instant
    operation: str
    issued_at: Instant
    expires_at: Instant


class CompletionTokens(SignedTokens[CompletionClaims]):
    """Signs and reads them; see `SignedTokens`."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        super().__init__(secrets, CompletionClaims, purpose=_PURPOSE)


def completion_digest(token: str) -> str:
    """By what a wait knows its token; nobody can make the token of it."""
    return hashlib.sha256(token.encode()).hexdigest()[:_DIGEST_LENGTH]


def completion_claims(token: str) -> CompletionClaims | None:
    """What a token says to a puller, which has no key to check it; None if it is none."""
    return unverified_claims(token, CompletionClaims)


def hand_over(token: str, claims: CompletionClaims, now: datetime) -> OperationWait:
    """What an operation waits for that is completed by this token."""
    return OperationWait(
        since=now,
        until=max(now, claims.expires_at) + _LOOK_AGAIN,
        kind="completion",
        token=completion_digest(token),
        gives_up_at=claims.expires_at,
    )


def renewed(wait: OperationWait, now: datetime) -> OperationWait:
    """The wait of an operation that was handed over in an earlier attempt, and still is.

    That its time is over, a puller does not decide: whoever keeps the completions does, once.
    """
    return msgspec.structs.replace(wait, until=max(wait.until, now + _LOOK_AGAIN))


Refusal = tuple[Literal["late", "outdated", "unknown"], str]
"""Why a token completes nothing: its time or its agenda is over; the operation goes another
way; or nothing is known of it yet, and it may be sent again. With the reason in words."""


def refusal_of(
    claims: CompletionClaims, token: str, summary: Summary | None, now: datetime
) -> Refusal | None:
    """Why a token completes nothing now; None if it completes its operation.

    A completion may come before the hand-over is reported: the attempt that the token is of
    runs still, or the summary has yet to learn of it. It is kept for the wait that follows.

    Args:
        claims: Of the token.
        token: The token.
        summary: Of its agenda; None if there is none.
        now: The present instant.
    """
    if now >= claims.expires_at:
        return "late", f"its time was over at {claims.expires_at.isoformat()}"
    if summary is None:
        if now - claims.issued_at > _FOLDED_WITHIN:
            return "late", "its agenda has ended, and was removed"
        return "unknown", "its agenda is not known yet; send the same again"
    if (refusal := _refusal_of_agenda(claims, summary)) is not None:
        return refusal
    return _refusal_of_operation(claims, completion_digest(token), summary)


def _refusal_of_agenda(claims: CompletionClaims, summary: Summary) -> Refusal | None:
    accepted_at = summary.accepted_at
    # A run after the first is accepted later than its agenda.
    if accepted_at is not None and accepted_at > claims.accepted_at + _SAME_ACCEPTANCE:
        return "late", "its agenda was removed, and another has its id"
    if summary.state in OUTCOMES:
        return "late", f"its agenda has ended: {summary.state.value}"
    if summary.insight_id and summary.insight_id != claims.insight_id:
        return "outdated", f"its agenda is not in insight {claims.insight_id!r}"
    if claims.operation not in summary.all_names:
        if summary.attempt <= claims.attempt:
            return "unknown", "its operation is not known yet; send the same again"
        return "outdated", "its agenda has no such operation any more"
    return None


def _refusal_of_operation(
    claims: CompletionClaims, digest: str, summary: Summary
) -> Refusal | None:
    one = summary.operations.get(claims.operation)
    state = one.state if one is not None else "waiting"
    held = one.wait.token if one is not None and one.wait is not None else ""
    if state == "waiting" and held == digest:
        return None
    if state == "waiting" and held:
        return "outdated", "the operation was handed over again, with another token"
    if summary.attempt > claims.attempt:
        why = f"it is of attempt {claims.attempt}, and attempt {summary.attempt} has followed"
        return "outdated", why
    if state in {"succeeded", "failed"}:
        return "outdated", f"the operation has {state} without it"
    return None


def is_same_completion(one: OperationCompletion, other: OperationCompletion) -> bool:
    """Whether two completions by one token say the same, whenever they came."""
    return (one.outcome, one.result, one.reason, one.is_retryable) == (
        other.outcome,
        other.result,
        other.reason,
        other.is_retryable,
    )
