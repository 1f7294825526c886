"""Periods: words such as `last_7_days`, and the days that they mean on a nominal day.

A name may contain `N`, which stands for a number from 1. Names of one's own are added to the
built-in ones; a module can offer some as entry points of the group `pop_stream.periods`, whose
names are those of the periods.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice
from typing import Final

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.validation import shorten

MAX_DAYS: Final = 3_660
"""Most days of one period, and the largest N: about ten years."""

ENTRY_POINTS: Final = "pop_stream.periods"
"""The group of entry points that name resolvers."""

_DAY: Final = timedelta(days=1)
_WEEK: Final = 7
_FIRST_OF_WEEKEND: Final = 5


@dataclass(frozen=True, slots=True)
class PeriodRequest:
    """What a period is resolved against.

    Attributes:
        nominal: The day that counts as today.
        number: What stands for `N` in the period's name; 0 if it has none.
        holidays: Besides Saturdays and Sundays, no working days.
    """

    nominal: date
    number: int = 0
    holidays: frozenset[date] = frozenset()

    def days_before(self, end: date, count: int) -> Iterator[date]:
        """That many days before a day, the earliest first."""
        return (end - _DAY * back for back in range(count, 0, -1))

    def working_days_before_nominal(self) -> Iterator[date]:
        """Working days before the nominal day, the latest first; ends after ten years."""
        for back in range(1, MAX_DAYS + 1):
            day = self.nominal - _DAY * back
            if day.weekday() < _FIRST_OF_WEEKEND and day not in self.holidays:
                yield day


PeriodResolver = Callable[[PeriodRequest], Iterable[date]]


def _last_week(asked: PeriodRequest) -> Iterable[date]:
    """The last week from Sunday to Saturday that is over on the nominal day."""
    sunday = asked.nominal - _DAY * (asked.nominal.isoweekday() % _WEEK)
    return asked.days_before(sunday, _WEEK)


def _last_iso_week(asked: PeriodRequest) -> Iterable[date]:
    return asked.days_before(asked.nominal - _DAY * asked.nominal.weekday(), _WEEK)


def _last_month(asked: PeriodRequest) -> Iterable[date]:
    first = asked.nominal.replace(day=1)
    return asked.days_before(first, (first - _DAY).day)


def _last_working_days(asked: PeriodRequest) -> Iterable[date]:
    return reversed([*islice(asked.working_days_before_nominal(), asked.number)])


def _working_days_back(asked: PeriodRequest) -> Iterable[date]:
    return islice(asked.working_days_before_nominal(), asked.number - 1, asked.number)


_BUILT_IN: Final[Mapping[str, PeriodResolver]] = {
    "today": lambda asked: (asked.nominal,),
    "yesterday": lambda asked: (asked.nominal - _DAY,),
    "N_days_back": lambda asked: (asked.nominal - _DAY * asked.number,),
    "last_N_days": lambda asked: asked.days_before(asked.nominal, asked.number),
    "previous_N_days": lambda asked: asked.days_before(
        asked.nominal - _DAY * asked.number, asked.number
    ),
    "last_week": _last_week,
    "last_iso_week": _last_iso_week,
    "last_month": _last_month,
    "last_N_working_days": _last_working_days,
    "N_working_days_back": _working_days_back,
}


class PeriodResolvers:
    """The periods that payloads may name.

    Args:
        custom: Resolvers by name, besides those built in.

    Raises:
        ValueError: If a name is built in, or no word.
    """

    def __init__(self, custom: Mapping[str, PeriodResolver] | None = None) -> None:
        custom = custom or {}
        for name in custom:
            if name in _BUILT_IN:
                msg = f"period {name!r} is built in; give yours another name"
                raise ValueError(msg)
            if not re.fullmatch(r"[A-Za-z0-9_]{1,100}", name) or name.split("_").count("N") > 1:
                msg = f"period {name!r}: use letters, digits and _, and N once at most"
                raise ValueError(msg)
        self._resolvers = {**_BUILT_IN, **custom}
        self._patterns = [(_pattern(name), one) for name, one in self._resolvers.items()]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, those built in first."""
        return tuple(self._resolvers)

    def days(self, period: object, asked: PeriodRequest, *, field: str) -> tuple[date, ...]:
        """The days of a period, in the order in which its resolver gives them.

        Args:
            period: As a payload names it.
            asked: The nominal day; its number is not looked at.
            field: Where the payload names it, for issues.

        Raises:
            SubmissionError: If there is no such period, or it has no day, or too many.
        """
        resolver, number = self._find(period, field)
        asked = PeriodRequest(asked.nominal, number, asked.holidays)
        try:
            days = tuple(islice(resolver(asked), MAX_DAYS + 1))
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            message = f"cannot be resolved on {asked.nominal}: {error}; name another"
            raise SubmissionError([Issue(field, shorten(period), message)]) from error
        if not days or len(days) > MAX_DAYS or not all(map(_is_day, days)):
            found = "no day" if not days else f"more than {MAX_DAYS} days, or what is no day"
            message = f"comes to {found} on {asked.nominal}; name another period"
            raise SubmissionError([Issue(field, shorten(period), message)])
        return days

    def _find(self, period: object, field: str) -> tuple[PeriodResolver, int]:
        for pattern, resolver in self._patterns:
            found = pattern.fullmatch(period) if isinstance(period, str) else None
            if found is None:
                continue
            number = int(found[1]) if found.groups() else 0
            if not found.groups() or 1 <= number <= MAX_DAYS:
                return resolver, number
            message = f"N is from 1 to {MAX_DAYS}; change it"
            raise SubmissionError([Issue(field, shorten(period), message)])
        message = f"is no period; name one of {', '.join(self.names)}, with a number for N"
        raise SubmissionError([Issue(field, shorten(period), message)])


def _pattern(name: str) -> re.Pattern[str]:
    parts = ["([0-9]{1,5})" if part == "N" else re.escape(part) for part in name.split("_")]
    return re.compile("_".join(parts))


def _is_day(day: object) -> bool:
    return type(day) is date


BUILT_IN_PERIODS: Final = PeriodResolvers()
"""Without any of one's own."""
