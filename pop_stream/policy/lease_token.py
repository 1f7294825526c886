"""The token by which a worker over HTTP proves which attempt it holds.

It comes with every agenda that is pulled, and goes back with every report. It holds, signed,
all that is needed to accept a report, so any process of the API can do so, whether or not it
has delivered the agenda, and while the database is away. It does not say that the lease still
runs: an attempt that is over is fenced by its number, as any other puller's.
"""

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from pop_stream.model.events.base import Instant
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.policy.signed_token import SignedTokens

MAX_TOKEN_LENGTH: Final = 2_000
"""In characters; no token is longer, whatever agenda and insight are called."""

_PURPOSE: Final = b"pop_stream lease token "


class LeaseClaims(msgspec.Struct, frozen=True, array_like=True):
    """The attempt that a token is for.

    Attributes:
        agenda_id: As it is called inside, not as its customer calls it.
        accepted_at: When the agenda was accepted, or run again: of another one under the same
            id, later, attempts begin at 1 again.
        run_from: The first attempt of the same run; 0 where that is not known.
        unfinished: How many operations had not succeeded when the attempt was delivered; what
            its worker appends is not counted.
    """

    agenda_id: str
    insight_id: str
    attempt: int
    accepted_at: Instant
    lease_ms: int
    run_from: int
    unfinished: int = 0

    @classmethod
    def of(cls, emitted: EmittedAgenda, unfinished: int = 0) -> Self:
        """The claims of an attempt that is delivered."""
        return cls(
            emitted.agenda_id,
            emitted.insight_id,
            emitted.attempt,
            emitted.accepted_at,
            emitted.lease_ms,
            emitted.run_from,
            unfinished,
        )


class LeaseTokens(SignedTokens[LeaseClaims]):
    """Signs and reads them; see `SignedTokens`."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        super().__init__(secrets, LeaseClaims, purpose=_PURPOSE)
