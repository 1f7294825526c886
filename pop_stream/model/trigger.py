"""When a schedule fires: cron expressions, intervals, recurrence rules, and lists of instants.

Expressions and rules speak of the wall clock of a time zone, which skips hours and repeats
others. They are read on that clock, and each reading is turned into an instant here:

- **A fixed time of day** (a cron expression whose minute and hour fields both do not begin with
  `*`, and every recurrence rule) fires once. If the clock skips it, it fires at the first
  instant after the gap; if the clock shows it twice, the first time.
- **Anything else**, as `*/5 * * * *`, goes by the time that passes: it fires whenever the clock
  shows a fitting time, in both of two repeated hours, and not in a gap.

That is how cron of Debian behaves. Intervals and instants know no wall clock.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import Annotated, Final, Self, cast
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from dateutil.rrule import rrule, rrulestr
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from pydantic import model_validator as after_fields

from pop_stream.model.json_types import WHOLE_NUMBER, InstantField

MAX_INSTANTS: Final = 1_000
"""Most instants that a trigger lists."""

_NEAR_TRANSITION: Final = timedelta(hours=26)
"""The wall clock of no zone was ever set by more."""

_SECOND: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR: Final = 8999
_CRON_FIELDS: Final = (5, 6, 7)
_NAMED: Final[Mapping[str, str]] = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@QUARTERLY": "0 0 1 1,4,7,10 *",
    "@YEARLY": "0 0 1 1 *",
}
_FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
_SHORT: Final = frozenset({"DAILY", "WEEKLY"})
_RARE: Final = frozenset(
    {"BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYEASTER", "BYSETPOS"}
)
"""Together, days are looked at one by one, for thousands of years if none fits."""

_DAYS: Final = frozenset(
    {"BYDAY", "BYWEEKDAY", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYEASTER"}
)
"""Without any of these, the day of the start is meant."""

_PERIOD_DAYS: Final[Mapping[str, int]] = {"YEARLY": 366, "MONTHLY": 31, "WEEKLY": 7, "DAILY": 1}
_CYCLE: Final = 400
_LATE_YEAR: Final = 9_899
_MAX_TIMES_A_DAY: Final = 24
_MAX_RULE_NUMBER: Final = 10_000
_RULE: Final = re.compile(r"^[A-Z]+=[A-Z0-9,+-]+(;[A-Z]+=[A-Z0-9,+-]+)*$")
_YEARS: Final = re.compile(r"^(\*|\d{4}(-\d{4})?)(/\d{1,3})?$")


class Trigger(BaseModel):
    """When a schedule fires: exactly one of the fields is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cron: Annotated[str, StringConstraints(max_length=500, strip_whitespace=True)] | None = (
        Field(
            default=None,
            description="minute hour day month weekday; with six fields seconds come first, "
            "with seven a year comes last. 0 and 7 are Sunday; names, L, LW, 5L, 5#2 work, and "
            "@hourly, @daily, @weekly, @monthly, @quarterly and @yearly.",
        )
    )
    every_s: Annotated[int, Field(ge=1, le=366 * 86_400), WHOLE_NUMBER] | None = Field(
        default=None, description="So many seconds apart, counted from `start`, else from 1970."
    )
    rrule: Annotated[str, StringConstraints(max_length=500, strip_whitespace=True)] | None = (
        Field(
            default=None,
            description="A recurrence rule of RFC 5545, daily or rarer, without UNTIL; counted "
            "from the schedule's `start`, which must be given.",
        )
    )
    at: (
        Annotated[tuple[InstantField, ...], Field(min_length=1, max_length=MAX_INSTANTS)] | None
    ) = Field(default=None, description="At these instants; parts of a second are left out.")

    @field_validator("cron")
    @classmethod
    def _cron_is_one(cls, text: str | None) -> str | None:
        if text is not None:
            _Cron.parse(text)
        return text

    @field_validator("rrule")
    @classmethod
    def _rule_is_one(cls, text: str | None) -> str | None:
        if text is not None:
            _Rule.parse(text)
        return text

    @after_fields(mode="after")
    def _is_one_kind(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            msg = (
                f"has {' and '.join(given) or 'nothing'}; give exactly one of cron, every_s, "
                "rrule and at"
            )
            raise ValueError(msg)
        return self

    @property
    def gap_s(self) -> int:
        """So many seconds are between two instants at least, on the average of a day."""
        if self.every_s is not None:
            return self.every_s
        if self.cron is not None:
            return _Cron.parse(self.cron).gap_s
        return 86_400 // _MAX_TIMES_A_DAY  # a list has no more than of some weeks

    def instants(
        self, after: datetime, *, zone: ZoneInfo, start: datetime | None
    ) -> Iterator[datetime]:
        """The instants at which it fires, in UTC, each once and in order, after one of them.

        The iterator ends where no other comes: of a cron expression, within fifty years.

        Args:
            after: An aware instant; the first one is later.
            zone: On whose wall clock expressions and rules are read.
            start: From where intervals and rules are counted. It does not bound the rest.
        """
        if self.at is not None:
            known = {one.astimezone(UTC).replace(microsecond=0) for one in self.at}
            return iter(sorted(one for one in known if one > after))
        if self.every_s is not None:
            return _intervals(timedelta(seconds=self.every_s), start or _EPOCH, after)
        if self.rrule is not None:
            return _rule_instants(_Rule.parse(self.rrule), start or _EPOCH, after, zone)
        return _cron_instants(_Cron.parse(self.cron or ""), after, zone)


class _Cron:
    """A cron expression: fields for the library, and the years that it does not know."""

    def __init__(self, expression: str, years: frozenset[int] | None, *, fixed: bool) -> None:
        self.expression = expression
        self.years = years
        self.is_fixed_time = fixed
        self.gap_s = 60 if len(expression.split()) == _CRON_FIELDS[0] else 1

    @classmethod
    @lru_cache(maxsize=4_096)
    def parse(cls, text: str) -> "_Cron":
        """The expression.

        Raises:
            ValueError: If it is none, or names a day that never comes.
        """
        named = _NAMED.get(text.upper(), text)
        fields = named.upper().replace("?", "*").split()
        if len(fields) not in _CRON_FIELDS:
            msg = (
                f"has {len(fields)} fields; give five, as in '30 2 * * MON-FRI', six with the "
                "seconds first, or seven with the year last"
            )
            raise ValueError(msg)
        years = _years(fields.pop()) if len(fields) == _CRON_FIELDS[-1] else None
        minute, hour = fields[-5], fields[-4]
        expression = " ".join(fields)
        try:
            CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001  # of the wall clock
        except CronSimError as error:
            wrong = str(error).removeprefix("Bad ")
            msg = (
                f"the field {wrong} cannot be used: it is malformed, out of range, or names a "
                "day that never comes; compare '30 2 * * MON-FRI', that is minute, hour, day, "
                "month and weekday"
            )
            raise ValueError(msg) from None
        fixed = not minute.startswith("*") and not hour.startswith("*")
        return cls(expression, years, fixed=fixed)

    def walls(self, after: datetime) -> Iterator[datetime]:
        """Readings of the wall clock, in order, later than one of them."""
        if self.years is None:
            yield from CronSim(self.expression, after)
            return
        for year in sorted(one for one in self.years if one >= after.year):
            begin = max(after, datetime(year, 1, 1) - _SECOND)  # noqa: DTZ001  # likewise
            for wall in CronSim(self.expression, begin):
                if wall.year > year:
                    break
                yield wall


def _years(text: str) -> frozenset[int] | None:
    found: set[int] = set()
    for term in text.split(","):
        if not _YEARS.match(term):
            msg = f"the field year cannot be used: {term!r}; give 2026, 2026-2030, */2 or *"
            raise ValueError(msg)
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if span == "*" and not step:
            return None
        begin = 1970 if span == "*" else int(first)
        end = int(last) if last else (2200 if span == "*" or step else begin)
        found.update(range(begin, end + 1, max(1, int(step or 1))))
    return frozenset(found)


class _Rule:
    """A recurrence rule of at most some times a day, without its number of times."""

    def __init__(self, parts: Mapping[str, str], count: int | None) -> None:
        self._parts = parts
        self._count = count

    @classmethod
    @lru_cache(maxsize=4_096)
    def parse(cls, text: str) -> "_Rule":
        """The rule.

        Raises:
            ValueError: If it is none, or one that costs too much to follow.
        """
        upper = text.upper().removeprefix("RRULE:")
        if not _RULE.match(upper):
            msg = "is no recurrence rule; compare 'FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9;BYMINUTE=0'"
            raise ValueError(msg)
        parts = dict(part.split("=") for part in upper.split(";"))
        if wrong := _unfit(parts):
            raise ValueError(wrong)
        try:
            count = int(parts.pop("COUNT", "0")) or None
            rrulestr(_joined(parts), dtstart=datetime(2000, 1, 1))  # noqa: DTZ001  # of the wall clock
        except (ValueError, TypeError, KeyError, IndexError) as error:
            msg = f"is no recurrence rule: {error}"
            raise ValueError(msg) from None
        return cls(parts, count)

    def walls(self, start: datetime, after: datetime) -> Iterator[datetime]:
        """Readings of the wall clock from the start on, in order; all that are later than one.

        Those of long before may be left out, as it would take ever longer to go by them.
        """
        parts = dict(self._parts)
        if parts["FREQ"] not in _SHORT and not _DAYS & parts.keys():
            parts["BYMONTHDAY"] = str(start.day)
            if parts["FREQ"] == "YEARLY":
                parts.setdefault("BYMONTH", str(start.month))
        begin = start if self._count else self._near(start, after)
        # A rule that never fires is followed up to the year 9999. The calendar is the same
        # every 400 years, so it is read some hundred years before that.
        years = 0 if "BYEASTER" in parts else (_LATE_YEAR - begin.year) // _CYCLE * _CYCLE
        late = begin.replace(year=begin.year + years)
        made = cast("rrule", rrulestr(_joined(parts), dtstart=late))
        walls = (wall.replace(year=wall.year - years) for wall in made)
        return islice(takewhile(lambda wall: wall.year <= _LAST_YEAR, walls), self._count)

    def _near(self, start: datetime, after: datetime) -> datetime:
        """A start from which the rule comes to the same later than `after`, close before it.

        It is whole periods later, so that every second week, say, stays the same one.
        """
        frequency, interval = self._parts["FREQ"], int(self._parts.get("INTERVAL", "1"))
        step_days = _PERIOD_DAYS[frequency] * interval
        periods = interval * ((after - start).days // step_days - 1)
        if periods <= 0:
            return start
        if frequency in _SHORT:
            return start + timedelta(days=periods * _PERIOD_DAYS[frequency])
        months = start.year * 12 + start.month - 1 + periods
        if frequency == "YEARLY":
            months = (start.year + periods) * 12
        return start.replace(year=months // 12, month=months % 12 + 1, day=1)


def _joined(parts: Mapping[str, str]) -> str:
    return ";".join("=".join(part) for part in parts.items())


def _unfit(parts: Mapping[str, str]) -> str:
    """What about a rule is not supported, with the remedy; empty if nothing is."""
    if parts.get("FREQ") not in _FREQUENCIES:
        return (
            f"FREQ must be one of {', '.join(_FREQUENCIES)}; use cron or every_s for the rest"
        )
    if "UNTIL" in parts:
        return "UNTIL has no time zone of its own here; give the schedule's `end` instead"
    if parts["FREQ"] in _SHORT and (rare := sorted(_RARE & parts.keys())):
        return (
            f"{rare[0]} with FREQ={parts['FREQ']} costs too much; use MONTHLY or YEARLY with it"
        )
    for name in ("INTERVAL", "COUNT"):
        text = parts.get(name, "1")
        if len(text) > 5 or not text.isdecimal() or not 1 <= int(text) <= _MAX_RULE_NUMBER:  # noqa: PLR2004
            return f"{name}={text[:20]} must be a whole number from 1 to {_MAX_RULE_NUMBER}"
    times = 1
    for name in ("BYHOUR", "BYMINUTE", "BYSECOND"):
        times *= len(parts.get(name, "").split(","))
    if times > _MAX_TIMES_A_DAY:
        return f"names {times} times a day, at most {_MAX_TIMES_A_DAY} are allowed; use cron"
    return ""


def _rule_instants(
    rule: _Rule, start: datetime, after: datetime, zone: ZoneInfo
) -> Iterator[datetime]:
    begin = start.astimezone(zone).replace(tzinfo=None, fold=0, microsecond=0)
    near = after.astimezone(zone).replace(tzinfo=None, fold=0) - _NEAR_TRANSITION
    return _later(_fixed(rule.walls(begin, near), zone), after)


def _intervals(step: timedelta, anchor: datetime, after: datetime) -> Iterator[datetime]:
    first = anchor.astimezone(UTC).replace(microsecond=0)
    number = max(0, (after - first) // step + 1)
    while (at := first + number * step).year <= _LAST_YEAR:
        yield at
        number += 1


def _cron_instants(cron: _Cron, after: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    walls = cron.walls(_wall(after, zone))
    resolved = _fixed(walls, zone) if cron.is_fixed_time else _passing(walls, zone)
    return _later(resolved, after)


def _wall(after: datetime, zone: ZoneInfo) -> datetime:
    """From which reading of the clock on instants after this one may come."""
    local = after.astimezone(zone).replace(tzinfo=None, fold=0)
    around = [
        (after + margin).astimezone(zone).utcoffset() or timedelta(0)
        for margin in (-_NEAR_TRANSITION, timedelta(0), _NEAR_TRANSITION)
    ]
    return local - (max(around) - min(around))


def _fixed(walls: Iterator[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """Fixed times of day as instants; those of a gap all at its end."""
    for wall in walls:
        at = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        yield at if _shows(at, zone, wall) else _end_of_gap(wall, zone)


def _passing(walls: Iterator[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """Every instant at which the clock shows one of the times, in order."""
    second: list[datetime] = []
    for wall in walls:
        at = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        while second and second[0] < at:
            yield heappop(second)
        if not _shows(at, zone, wall):
            continue
        again = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
        if again != at:
            heappush(second, again)
        yield at
    yield from sorted(second)


def _shows(at: datetime, zone: ZoneInfo, wall: datetime) -> bool:
    return at.astimezone(zone).replace(tzinfo=None, fold=0) == wall


def _end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant after the gap in which the wall clock never shows this time."""
    early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    before = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):
        middle = early + timedelta(seconds=(late - early) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late


def _later(found: Iterator[datetime], after: datetime) -> Iterator[datetime]:
    last = after
    for at in found:
        if at > last:
            yield at
            last = at


@lru_cache(maxsize=1_024)
def zone_of(name: str) -> ZoneInfo:
    """The time zone of the IANA database with this name.

    Raises:
        ValueError: If there is none, with names that are alike.
    """
    if name in _names():
        return ZoneInfo(name)
    alike = get_close_matches(name, _names(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(alike)}?" if alike else "compare Europe/Berlin, or UTC"
    msg = f"is no time zone of the IANA database; {hint}"
    raise ValueError(msg)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - {"localtime", "posixrules"})
