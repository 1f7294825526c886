"""What the rows of an insight say, as JSON."""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec

from pop_stream.core.delta import Delta
from pop_stream.core.events import Struct


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
