"""What changed in a backlog, as absolute values that replace what was known before."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, Final, Literal, TypeVar

from msgspec import field
from msgspec.structs import replace

from pop_stream.model.events.base import HealthValue, Struct
from pop_stream.model.events.lifecycle import StopReason, WaitReason

T = TypeVar("T")


class Overrides(Struct, frozen=True, array_like=True):
    """What people or the clock want of an agenda; most have none.

    Attributes:
        due: While it waits, or would without being held: when it goes on, in seconds since
            the epoch; 0 for at once.
        why: While it waits: what for.
        priority: In place of the submitted one; None for that.
        rank: In place of the submitted one; None for that.
        hold: Whether the attempt after this one waits for its release.
        stopping: Why the attempt that is out is to stop; empty if it is not.
        message: Of the stop, in the words of who wants it.
        deferrals: Attempts of this run that ended because operations wait for something; they
            do not count as attempts.
        waiting_since: When the first of them ended, in seconds since the epoch.
        resolved: Operations that wait no more, at most `MAX_RESOLVED`.
        woken: Whether one of them was added while the attempt that is out had been emitted, so
            that it may wait for that one still.
    """

    due: float = 0.0
    why: WaitReason = "not_before"
    priority: int | None = None
    rank: int | None = None
    hold: bool = False
    stopping: StopReason | Literal[""] = ""
    message: str = ""
    deferrals: int = 0
    waiting_since: float = 0.0
    resolved: tuple[str, ...] = ()
    woken: bool = False


class AgendaRecord(Struct, frozen=True, array_like=True):
    """The state of an agenda's place, where it is not as the agenda came.

    Attributes:
        ref: Page number and slot in one integer, as `ref_of` makes it.
        charged: What it counts as, in microseconds of a worker; only while it is out.
        sure: Part of that without a declared cost beyond the usual; likewise.
        overrides: None where there are none.
        claimed_at: When its claim was relayed, in seconds since the epoch; 0 before that.
    """

    ref: int
    state: int
    attempt: int = 1
    charged: int = 0
    sure: int = 0
    overrides: Overrides | None = None
    claimed_at: float = 0.0


class FairnessState(Struct, frozen=True, array_like=True):
    """What a customer was given, but for its agendas that are out: records have those.

    Attributes:
        tag: What was delivered to it, in worker-seconds per weight.
        last: What its agenda emitted last surely counts as, in microseconds of a worker.
        level: Of urgency in its turn; 0 where it may not go, or has yet to join.
        weight: The weight by which the tag was computed; 0 where that is not known.
        largest_s: Worker-seconds of its largest agenda.
        keys_present: The present among its fairness keys.
        keys: Tag and last agenda, likewise, of those of its keys that moved; None of one that
            is forgotten.
        division: By which its weight is divided.
    """

    tag: float
    last: int = 0
    level: int = 0
    weight: float = 0.0
    largest_s: float = 0.0
    keys_present: float = 0.0
    keys: dict[str, tuple[float, int] | None] = field(default_factory=dict)
    division: int = 1

    def merged_onto(self, earlier: "FairnessState") -> "FairnessState":
        """This, with those of the keys of an earlier state that did not move since."""
        keys = {name: one for name, one in {**earlier.keys, **self.keys}.items() if one}
        return replace(self, keys=keys)


class KeyEnd(Struct, frozen=True, array_like=True):
    """The last run that ended of a deduplication key.

    Attributes:
        at: In seconds since the epoch.
        until: From when on nobody needs to know; 0 of one that is not remembered any more.
    """

    agenda_id: str
    at: float
    until: float


class Delta(Struct, frozen=True):
    """Values that replace what was known before; the newest delta is right.

    Attributes:
        presents: By level, most urgent first, the position from which an agenda was emitted
            last, in worker-seconds per weight.
        depth: Most agendas that were out at once since nothing waited and nothing ran.
        next_page: Page numbers are never used twice, or old records would fit new pages.
        records: States of slots that changed.
        gone: By page number, a hexadecimal bitmap of gone slots, least significant first.
        fairness: By customer.
        origins: By partition of `pop.submissions`, the last offset and index placed.
        learned: Worker-seconds by operation type.
        ratios: By customer, what its agendas took of what was declared.
        usual: By customer, worker-seconds of an attempt; of all under the empty name.
        reruns: The last attempt of agendas that ended after they were run again, in the order
            of their ends; 0 of one that is not remembered any more.
        series: By customer and series, the last position placed, in the order in which the
            series moved; -1 of one that is not remembered any more.
        health: What was reported of the insight's health, by name; of one that is void and
            not remembered any more, until 0.
        key_ends: By deduplication key, the last run that ended, in the order of their ends.
    """

    presents: tuple[float, ...]
    emitted: int
    claimed: int
    rounds: int
    next_page: int
    depth: int = 0
    records: tuple[AgendaRecord, ...] = ()
    gone: dict[str, str] = field(default_factory=dict)
    fairness: dict[str, FairnessState] = field(default_factory=dict)
    origins: dict[str, tuple[int, int]] = field(default_factory=dict)
    learned: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    reruns: dict[str, int] = field(default_factory=dict)
    series: dict[str, int] = field(default_factory=dict)
    health: dict[str, HealthValue] = field(default_factory=dict)
    key_ends: dict[str, KeyEnd] = field(default_factory=dict)

    def split(self, most: int) -> "Sequence[Delta]":
        """The same values as several deltas, each with at most `most` entries of a kind.

        Applied one after the other they come to the same.
        """
        none = ((), (), ())
        places = zip_longest(
            chunked(self.records, most),
            chunked(self.gone.items(), most),
            _chunked_fairness(self.fairness, most),
            fillvalue=(),
        )
        entries = [chunked(getattr(self, name).items(), most) for name in _CHUNKED]
        known = zip_longest(*entries, fillvalue=())
        rows = [(place or none, one or ()) for place, one in zip_longest(places, known)]
        empty: dict[str, Any] = {name: {} for name in _CHUNKED}
        parts = [
            replace(
                self,
                records=tuple(records),
                gone=dict(gone),
                fairness=dict(fairness),
                **empty | {name: dict(some) for name, some in zip(_CHUNKED, one, strict=False)},
            )
            for (records, gone, fairness), one in rows
        ]
        return parts or [self]


_CHUNKED: Final = ("learned", "ratios", "usual", "reruns", "series", "key_ends")
"""Fields that may have many entries, in no relation to each other."""


def chunked(items: Iterable[T], most: int) -> Iterator[list[T]]:
    """The same items in pieces of at most `most`."""
    rest = iter(items)
    while piece := [*islice(rest, most)]:
        yield piece


def _chunked_fairness(
    tags: Mapping[str, FairnessState], most: int
) -> Iterator[list[tuple[str, FairnessState]]]:
    """Customers with their keys, a key counting as much as a customer."""
    piece: list[tuple[str, FairnessState]] = []
    room = most
    for name, one in tags.items():
        for keys in chunked(one.keys.items(), most) if one.keys else ([],):
            if piece and len(keys) >= room:
                yield piece
                piece, room = [], most
            is_complete = len(keys) == len(one.keys)
            piece.append((name, one if is_complete else replace(one, keys=dict(keys))))
            room -= 1 + len(keys)
    if piece:
        yield piece
