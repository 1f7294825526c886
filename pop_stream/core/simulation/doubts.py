"""From which round on a replay cannot be called exact, as something on record was lost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pop_stream.core.events import RoundDecided


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record, or a part of one, that was passed over.

    Attributes:
        is_decision: Whether a round may have been on it; else it was an event of `pop.ready`,
            which the scheduler may have been able to read.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    is_decision: bool


def first_inexact_round(
    decisions: Sequence[RoundDecided], unreadable: Iterable[UnreadableRecord]
) -> RoundDecided | None:
    """The first round that may come out otherwise for what is missing; None if none may.

    A round is missing where numbers leave one out. An event of `pop.ready` is missed by the
    rounds from it on; one from before the first of these rounds is in what that begins with,
    unless it is round 1.

    Args:
        decisions: The rounds that are chosen again, in order.
        unreadable: What was passed over.
    """
    missed = [one.offset for one in unreadable if not one.is_decision]
    known_from = decisions[0].offset if decisions and decisions[0].round > 1 else -1
    for before, after in pairwise([*decisions[:1], *decisions]):
        is_gap = after.round > before.round + 1
        if is_gap or any(known_from < offset <= after.offset for offset in missed):
            return after
    return None
