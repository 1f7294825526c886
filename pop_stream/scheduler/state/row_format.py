"""The rows of an insight in the ReadyAgenda table: their JSON, their keys, and their epochs.

An ownership epoch is the time for which one process owns a partition; later ones are greater.
It stands in the key of each row, except that rows of epoch 0 have none. So rows of a former
owner that arrive late are recognised.
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
    """A round, as far as it takes to publish it once more.

    Attributes:
        refs: Page and slot of the chosen agendas, in order of emission.
        at: When they were chosen, in seconds since 1970.
        slots: How many could be chosen.
        lag: Agendas emitted and not claimed before the round.
        in_flight: Agendas emitted and not settled before the round.
        offset: Of the record of `pop.ready` that led to it.
        definitions: Version of the definitions in force.
    """

    refs: tuple[int, ...]
    at: float
    slots: int
    lag: int
    in_flight: int
    offset: int
    definitions: int


class JournalRow(Struct, frozen=True):
    """What a handled record changed.

    Attributes:
        sequence: Of the insight's journal rows, from 1.
        offset: Of the last record of `pop.ready` that was handled completely.
        last_round: Published together with this row, and perhaps not out. A later row without
            it says that it is out.
    """

    sequence: int
    delta: Delta
    offset: int = -1
    last_round: JournaledRound | None = None


class SnapshotHeader(Struct, frozen=True):
    """Which side of the double-buffered snapshot is in force.

    Attributes:
        sequence: Of the last journal row that the snapshot includes; `offset` and `last_round`
            are that row's.
        side: 0 or 1.
        parts: How many rows the snapshot has.
        spans: From which page number on pages are of which epoch.
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
    """The keys of a snapshot's rows; `start` is the key prefix of its epoch."""
    return [f"{start}/mark/{head.side}/{part}" for part in range(head.parts)]


def handled_offset(head: SnapshotHeader, newer: Sequence[JournalRow]) -> tuple[int, bool]:
    """The offset up to which no change is missing, and whether rows after it are.

    Args:
        head: Of the snapshot.
        newer: All journal rows after it that can be read, in order.
    """
    unbroken = [row for at, row in enumerate(newer, head.sequence + 1) if row.sequence == at]
    offset = max([head.offset, *(row.offset for row in unbroken)])
    return offset, len(unbroken) < len(newer)


def page_size(offsets: "array[int]") -> int:
    """Bytes of a page's row: where one more body would start, less the separator, plus `]`."""
    return offsets[-1] - BODY_SEPARATOR_SIZE + len(b"]")


def body_offsets(bodies: Sequence[bytes]) -> "array[int]":
    """Where each body starts in its page's row, and where one more would."""
    lengths = (len(body) + BODY_SEPARATOR_SIZE for body in bodies)
    return array("I", accumulate(lengths, initial=len(b"[")))


PageEpochs = Sequence[tuple[int, int]]
"""Pairs of a page number and the epoch of the pages from it on; in order, the first from 0."""


class RowKey(NamedTuple):
    """What a row's key says.

    Attributes:
        epoch: 0 if the key has none.
        kind: `page`, `journal`, `mark` or `head`; any text in a key of another form.
        page: The page's number; None if it is not a page, or its number cannot be read.
    """

    epoch: int
    kind: str
    page: int | None


def key_prefix(prefix: str, epoch: int) -> str:
    """What the keys of an epoch's rows begin with; `prefix` is the insight's."""
    return f"{prefix}/term/{epoch}" if epoch else prefix


def parse_key(prefix: str, key: str) -> RowKey:
    """Parse a key that begins with an insight's `prefix`."""
    kind, *rest = key.removeprefix(f"{prefix}/").split("/")
    epoch = 0
    if kind == "term" and len(rest) > 1 and rest[0].isdigit():
        epoch, kind, *rest = int(rest[0]), *rest[1:]
    is_page = kind == "page" and len(rest) == 1 and rest[0].isdigit()
    return RowKey(epoch, kind, int(rest[0]) if is_page else None)


def epoch_of(spans: PageEpochs, number: int) -> int:
    """The epoch in which the page was written; no two epochs write the same number."""
    return spans[bisect_right(spans, (number, inf)) - 1][1]


def compact_epochs(spans: PageEpochs, numbers: Iterable[int]) -> PageEpochs:
    """The same for these pages, with as few pairs as possible.

    Numbers without a page go to the last epoch, which has written none of them and never will.
    Left with an earlier epoch, a late row of its owner would be taken for a page.
    """
    filled = {bisect_right(spans, (number, inf)) - 1 for number in numbers}
    newest = spans[-1][1]
    compacted = [
        (start, epoch if index in filled else newest)
        for index, (start, epoch) in enumerate(spans)
    ]
    return tuple(next(same) for _, same in groupby(compacted, key=itemgetter(1)))


def recovered_epochs(places: Iterable[RowKey]) -> PageEpochs:
    """The epochs of the pages found, without a head; the latest of those with one number."""
    pages = sorted((one.page, one.epoch) for one in places if one.page is not None)
    return ((0, 0), *pages)
