"""What the rows of an insight say, as JSON.

Whose rows are whose: the term in a row's key, and the term in which a page was written.

A term is the time for which one owner has a partition; later ones are greater.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby
from math import inf
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from pop_stream.model.events.base import Struct
from pop_stream.policy.delta import Delta


class JournaledRound(Struct, frozen=True, array_like=True):
    """A round, as far as must be known to emit and tell of it once more.

    Attributes:
        refs: Places of the chosen, in order of emission.
        at: When they were chosen, in seconds since the epoch.
        slots: How many could be.
        lag: Unclaimed before the round.
        in_flight: Emitted and not settled before the round.
        offset: Of the record of `pop.ready` that led to it.
        definitions: Version of those in force.
    """

    refs: tuple[int, ...]
    at: float
    slots: int
    lag: int
    in_flight: int
    offset: int
    definitions: int


class JournalRow(Struct, frozen=True):
    """What a handled event changed.

    Attributes:
        sequence: Of the insight's rows, from 1.
        offset: Of the last record of `pop.ready` that is told of.
        last_round: Sent with this row, or not known to be out; a later row without it says
            that it is.
    """

    sequence: int
    delta: Delta
    offset: int = -1
    last_round: JournaledRound | None = None


class SnapshotHeader(Struct, frozen=True):
    """Which side of the snapshot is whole.

    Attributes:
        sequence: Of the last row that the snapshot stands for; its `offset` and
            `last_round` are that row's.
        parts: Rows of the snapshot.
        spans: From which page number on pages are of which term.
    """

    sequence: int
    side: int
    parts: int
    offset: int = -1
    spans: tuple[tuple[int, int], ...] = ((0, 0),)
    last_round: JournaledRound | None = None


JOURNAL_ROW_DECODER: Final = msgspec.json.Decoder(JournalRow)
SNAPSHOT_PART_DECODER: Final = msgspec.json.Decoder(Delta)
SNAPSHOT_HEADER_DECODER: Final = msgspec.json.Decoder(SnapshotHeader)
PAGE_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])
BODY_SEPARATOR_SIZE: Final = len(b",\n")
"""Bytes between two bodies in a page's row."""


def snapshot_keys(start: str, head: SnapshotHeader) -> list[str]:
    """The rows of the snapshot that a head stands for, of a term whose keys begin so."""
    return [f"{start}/mark/{head.side}/{part}" for part in range(head.parts)]


def handled_offset(head: SnapshotHeader, newer: Sequence[JournalRow]) -> tuple[int, bool]:
    """The offset up to which all that records led to is known, and whether rows are missing.

    Args:
        head: Of the snapshot.
        newer: All rows after it that can be read, in order.
    """
    whole = [row for at, row in enumerate(newer, head.sequence + 1) if row.sequence == at]
    offset = max([head.offset, *(row.offset for row in whole)])
    return offset, len(whole) < len(newer)


def page_size(offsets: "array[int]") -> int:
    """Bytes of the row: where one more body would start, less the gap, and the bracket."""
    return offsets[-1] - BODY_SEPARATOR_SIZE + len(b"]")


def body_offsets(bodies: Sequence[bytes]) -> "array[int]":
    """Where each body starts in its page's row, and where one more would."""
    lengths = (len(body) + BODY_SEPARATOR_SIZE for body in bodies)
    return array("I", accumulate(lengths, initial=len(b"[")))


PageEpochs = Sequence[tuple[int, int]]
"""From which page number on pages are of which term, in order, and the first from 0."""


class RowKey(NamedTuple):
    """What a row's key says of it.

    Attributes:
        epoch: 0 for rows of versions that had no terms.
        kind: `page`, `journal`, `mark` or `head`; anything in a foreign key.
        page: Its number, if it is a page with one.
    """

    epoch: int
    kind: str
    page: int | None


def key_prefix(prefix: str, epoch: int) -> str:
    """What the keys of a term's rows begin with, after an insight's `prefix`."""
    return f"{prefix}/term/{epoch}" if epoch else prefix


def parse_key(prefix: str, key: str) -> RowKey:
    """Read a key below an insight's `prefix`."""
    kind, *rest = key.removeprefix(f"{prefix}/").split("/")
    epoch = 0
    if kind == "term" and len(rest) > 1 and rest[0].isdigit():
        epoch, kind, *rest = int(rest[0]), *rest[1:]
    is_page = kind == "page" and len(rest) == 1 and rest[0].isdigit()
    return RowKey(epoch, kind, int(rest[0]) if is_page else None)


def epoch_of(spans: PageEpochs, number: int) -> int:
    """In which term the page with this number was written; none has one of another's."""
    return spans[bisect_right(spans, (number, inf)) - 1][1]


def compact_epochs(spans: PageEpochs, numbers: Iterable[int]) -> PageEpochs:
    """The same for these pages; whatever is found in spans without one counts for nothing.

    Such spans go to the last term, which has written none of their pages and never will: in an
    earlier term's, a late row of it would count.
    """
    filled = {bisect_right(spans, (number, inf)) - 1 for number in numbers}
    newest = spans[-1][1]
    kept = [
        (start, epoch if index in filled else newest)
        for index, (start, epoch) in enumerate(spans)
    ]
    return tuple(next(same) for _, same in groupby(kept, key=itemgetter(1)))


def recovered_epochs(places: Iterable[RowKey]) -> PageEpochs:
    """Of whatever pages there are, where nothing tells; of several with a number the latest."""
    pages = sorted((one.page, one.epoch) for one in places if one.page is not None)
    return ((0, 0), *pages)
