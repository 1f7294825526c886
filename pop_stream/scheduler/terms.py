"""Whose rows are whose: the term in a row's key, and the term in which a page was written.

A term is the time for which one owner has a partition; later ones are greater.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import NamedTuple

Spans = Sequence[tuple[int, int]]
"""From which page number on pages are of which term, in order, and the first from 0."""


class Place(NamedTuple):
    """What a row's key says of it.

    Attributes:
        term: 0 for rows of versions that had no terms.
        kind: `page`, `journal`, `mark` or `head`; anything in a foreign key.
        page: Its number, if it is a page with one.
    """

    term: int
    kind: str
    page: int | None


def base(prefix: str, term: int) -> str:
    """What the keys of a term's rows begin with, after an insight's `prefix`."""
    return f"{prefix}/term/{term}" if term else prefix


def place(prefix: str, key: str) -> Place:
    """Read a key below an insight's `prefix`."""
    kind, *rest = key.removeprefix(f"{prefix}/").split("/")
    term = 0
    if kind == "term" and len(rest) > 1 and rest[0].isdigit():
        term, kind, *rest = int(rest[0]), *rest[1:]
    is_page = kind == "page" and len(rest) == 1 and rest[0].isdigit()
    return Place(term, kind, int(rest[0]) if is_page else None)


def term_of(spans: Spans, number: int) -> int:
    """In which term the page with this number was written; none has one of another's."""
    return spans[bisect_right(spans, (number, inf)) - 1][1]


def used(spans: Spans, numbers: Iterable[int]) -> Spans:
    """The same for these pages; whatever is found in spans without one counts for nothing.

    Such spans go to the last term, which has written none of their pages and never will: in an
    earlier term's, a late row of it would count.
    """
    filled = {bisect_right(spans, (number, inf)) - 1 for number in numbers}
    newest = spans[-1][1]
    kept = [
        (start, term if index in filled else newest)
        for index, (start, term) in enumerate(spans)
    ]
    return tuple(next(same) for _, same in groupby(kept, key=itemgetter(1)))


def guessed(places: Iterable[Place]) -> Spans:
    """Of whatever pages there are, where nothing tells; of several with a number the latest."""
    pages = sorted((one.page, one.term) for one in places if one.page is not None)
    return ((0, 0), *pages)
