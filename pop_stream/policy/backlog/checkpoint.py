"""All that an insight's choices depend on, as of one round: what a replay may begin with.

The bodies of agendas are not in it: `pop.ready` has them for as long as it is kept. Unlike a
snapshot, it has what is in memory only: leases, where records lie, and tokens.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Final

from msgspec import field

from pop_stream.model.events.base import Event, Instant, Struct
from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.agenda_index import GONE, BacklogPage
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.delta import Delta, chunked

MAX_ENTRIES: Final = 50_000
"""Of a checkpoint, all kinds together, or there is none: about 5 MB."""

_PART: Final = 1_000


class PageSource(Struct, frozen=True, array_like=True):
    """A page, and one agenda of it that has not ended, by which its record can be found."""

    number: int
    agendas: int
    slot: int
    agenda_id: str


class LeaseState(Struct, frozen=True, array_like=True):
    """When the attempt in a place last had a heartbeat, and whether through the API."""

    ref: int
    last_heartbeat_at: float
    by_http: bool = False


class EmittedOffset(Struct, frozen=True, array_like=True):
    """Where the record of an unclaimed place lies on its insight's topic, and since when."""

    ref: int
    partition: int
    number: int
    at: float


class TokenBucketState(Struct, frozen=True, array_like=True):
    """What was left of a customer's rate limit, as of when."""

    tokens: float
    at: float


class RoundCheckpoint(Event, frozen=True):
    """A part of the state that a round was chosen from, beside `round.decided` of the same one.

    Attributes:
        at: Of the round, as in `round.decided`; another instant is another try at the round.
        part: From 0, of `parts`; each lists up to 1,000 entries of a kind.
        begins: Whether the insight was just read from the table: leases and tokens are new.
        delta: The state as the table keeps it.
        pages: Of all agendas that wait or are out.
        sent: Of those out without a claim, with `counts`, records sent by partition.
    """

    insight_id: str
    at: Instant
    round: int
    part: int
    parts: int
    delta: Delta | None = None
    begins: bool = False
    pages: tuple[PageSource, ...] = ()
    leases: tuple[LeaseState, ...] = ()
    sent: tuple[EmittedOffset, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, TokenBucketState] = field(default_factory=dict)


def take_checkpoint(backlog: Backlog, now: float, *, begins: bool) -> Sequence[RoundCheckpoint]:
    """The parts of a checkpoint before a round is chosen; none if it would be too large.

    O(customers + agendas that are out + pages).

    Args:
        backlog: After what is due has happened.
        now: The instant of the round.
        begins: Whether it was just read from the table.
    """
    index, flows = backlog.index, [*backlog.queue.flows()]
    out_or_late = backlog.in_flight + backlog.waiting + backlog.held
    if len(flows) + index.page_count + out_or_late > MAX_ENTRIES:
        return ()
    sent, counts = backlog.emitted_offsets.entries()
    limited = (flow for flow in flows if not flow.has_full_burst(now))
    tokens = [
        (flow.customer_id, TokenBucketState(flow.tokens, flow.refilled_at)) for flow in limited
    ]
    kinds = zip_longest(
        backlog.state().split(_PART),
        chunked(map(_source, index.pages()), _PART),
        chunked((LeaseState(*one) for one in backlog.attempts.leases.entries()), _PART),
        chunked((EmittedOffset(*one) for one in sent), _PART),
        chunked(tokens, _PART),
        fillvalue=(),
    )
    rows = [*kinds]
    return [
        RoundCheckpoint(
            insight_id=backlog.insight.id,
            at=datetime.fromtimestamp(now, UTC),
            round=backlog.rounds + 1,
            part=number,
            parts=len(rows),
            begins=begins,
            delta=delta or None,
            pages=tuple(pages),
            leases=tuple(leases),
            sent=tuple(lie),
            counts={str(partition): count for partition, count in counts.items()},
            tokens=dict(left),
        )
        for number, (delta, pages, leases, lie, left) in enumerate(rows)
    ]


def restore_checkpoint(
    backlog: Backlog,
    parts: Sequence[RoundCheckpoint],
    pages: Iterable[tuple[int, Sequence[RoutedAgenda]]],
) -> None:
    """Bring a new backlog into the state that a checkpoint was taken of.

    Args:
        backlog: As made, never used.
        parts: All of one checkpoint, in order.
        pages: By number, the agendas of the pages that the parts name.
    """
    for part in parts:  # before anything waits, so that who has no token left gets no turn
        for name, left in part.tokens.items():
            flow = backlog.queue.flow(CustomerId(name))
            flow.tokens, flow.refilled_at = left.tokens, left.at
    deltas = [part.delta for part in parts if part.delta is not None]
    backlog.restore(pages, deltas, parts[0].at.timestamp())
    backlog.attempts.leases.restore(
        (one.ref, one.last_heartbeat_at, one.by_http) for part in parts for one in part.leases
    )
    backlog.emitted_offsets.restore(
        ((one.ref, one.partition, one.number, one.at) for part in parts for one in part.sent),
        {int(partition): count for partition, count in parts[0].counts.items()},
    )


def _source(page: BacklogPage) -> PageSource:
    slot = next(slot for slot, state in enumerate(page.states) if state != GONE)
    return PageSource(page.number, len(page.states), slot, page.ids[slot])
