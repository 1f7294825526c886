"""How much a customer may submit: a token bucket, pure."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """What is left of an allowance.

    Attributes:
        tokens: At the instant; at most the burst, below 0 if more was taken elsewhere.
        at_s: Of a clock that never goes back.
    """

    tokens: float
    at_s: float


def take_token(
    bucket: TokenBucket | None, *, rate_per_s: float, burst: int, now_s: float
) -> tuple[TokenBucket, float]:
    """Take one token, if there is one.

    Args:
        bucket: As the last call left it; None is a full one.
        rate_per_s: Tokens that come back per second, above 0.
        burst: Most that there can be, at least 1.
        now_s: The present; before the last call's it counts as that.

    Returns:
        The bucket as it is now, and the seconds until there is a token: 0 if one was taken.
    """
    if bucket is None:
        bucket = TokenBucket(float(burst), now_s)
    now_s = max(now_s, bucket.at_s)
    tokens = min(float(burst), bucket.tokens + (now_s - bucket.at_s) * rate_per_s)
    if tokens >= 1:
        return TokenBucket(tokens - 1, now_s), 0.0
    return TokenBucket(tokens, now_s), (1 - tokens) / rate_per_s


def deduct(bucket: TokenBucket, count: int) -> TokenBucket:
    """The bucket after so many tokens were taken that nobody could ask it for."""
    return replace(bucket, tokens=bucket.tokens - count)
