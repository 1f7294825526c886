"""Whose rows are whose: the term in a row's key, and the term in which a page was written.

A term is the time for which one owner has a partition; later ones are greater.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import NamedTuple

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


def used(spans: PageEpochs, numbers: Iterable[int]) -> PageEpochs:
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
