"""Instants of triggers, against two other readings of cron and of time zones."""

from datetime import UTC, datetime, time, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from pop_stream.model.trigger import Trigger, zone_of

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # its clock skipped midnight
    "Australia/Lord_Howe",  # by half an hour
    "Africa/Casablanca",  # several times a year, and back in between
    "Asia/Kathmandu",  # no full hours from UTC
    "Pacific/Apia",  # skipped a whole day
    "Antarctica/Troll",  # by two hours
)
SIMPLE_ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Pacific/Auckland",
    "Asia/Kathmandu",
)
BEGAN = datetime(1990, 1, 1, tzinfo=UTC)
FIFTY_YEARS = timedelta(days=50 * 365)

minutes = st.sampled_from(["0", "30", "*/7", "5,35", "0-10/5", "*"])
hours = st.sampled_from(["*", "0", "2", "1-3", "*/6", "23", "0,2"])
days = st.sampled_from(
    [("*", "*"), ("1", "*"), ("*", "SUN"), ("*", "0-3"), ("13", "5"), ("31", "*")]
)
months = st.sampled_from(["*", "3", "10", "*/2", "JAN,JUL"])
instants = st.integers(0, int(FIFTY_YEARS.total_seconds())).map(
    lambda seconds: BEGAN + timedelta(seconds=seconds)
)


@st.composite
def expressions(draw):
    day, weekday = draw(days)
    return f"{draw(minutes)} {draw(hours)} {day} {draw(months)} {weekday}"


def of_cron(text, after, zone="UTC", most=20):
    found = Trigger(cron=text).instants(after, zone=zone_of(zone), start=None)
    return [*islice(found, most)]


@given(text=expressions(), after=instants)
def test_without_a_wall_clock_croniter_finds_the_same_instants(text, after):
    other = croniter(text, after, ret_type=datetime)
    assert of_cron(text, after) == [other.get_next() for _ in range(20)]


# Elsewhere clocks were set by half an hour, or skipped midnight, and cronsim misses times or
# names some that never were. There the instants are counted minute by minute, see below.
@given(text=expressions(), after=instants, zone=st.sampled_from(SIMPLE_ZONES))
def test_on_a_wall_clock_cronsim_finds_the_same_instants(text, after, zone):
    """Given an aware instant it steps through UTC, which ours never does."""
    other = islice(CronSim(text, after.astimezone(ZoneInfo(zone))), 40)
    # It may name an instant twice, where several times of day fall into one gap.
    wanted = dict.fromkeys(one.astimezone(UTC) for one in other)
    assert of_cron(text, after, zone) == [one for one in wanted if one > after][:20]


def transitions(zone):
    """Days of fifty years, from 1990 on, at whose begin the clock was set otherwise before."""
    local = ZoneInfo(zone)
    offsets = [(BEGAN + timedelta(days=n)).astimezone(local).utcoffset() for n in range(18_300)]
    return [n for n in range(1, len(offsets)) if offsets[n] != offsets[n - 1]]


def by_scanning(zone, days, at):
    """For each day, the first minute of it at which the clock shows the time or a later one."""
    local = ZoneInfo(zone)
    for day in days:
        minute = datetime.combine(day, time(), UTC) - timedelta(hours=15)
        while (shown := minute.astimezone(local)).date() < day or (
            shown.date() == day and shown.time().replace(tzinfo=None) < at
        ):
            minute += timedelta(minutes=1)
        yield minute


@pytest.mark.parametrize("zone", ZONES)
def test_a_time_of_day_comes_once_a_day_for_fifty_years(zone):
    """Near every transition of fifty years, counted minute by minute."""
    local, changed = ZoneInfo(zone), transitions(zone)
    near = sorted(
        {(BEGAN + timedelta(days=n + d)).date() for n in changed[::3] for d in (-1, 0)}
    )
    at = time(2, 15) if zone != "America/Sao_Paulo" else time(0, 15)
    trigger = Trigger(cron=f"{at.minute} {at.hour} * * *")
    last = None
    for wanted in dict.fromkeys(by_scanning(zone, near, at)):
        after = wanted - timedelta(hours=20) if last is None else wanted - timedelta(minutes=1)
        found = next(trigger.instants(after, zone=local, start=None))
        assert found == wanted
        last = wanted


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("text", ["*/15 * * * *", "10 * * * *", "*/20 0-3 * * *"])
def test_the_rest_goes_by_the_time_that_passes(zone, text):
    """Near transitions, at every minute at which the clock shows a fitting time."""
    local = ZoneInfo(zone)
    step, offset, most = {"*/15": (15, 0, 24), "10": (60, 10, 24), "*/20": (20, 0, 4)}[
        text.split()[0]
    ]
    for day in transitions(zone)[::9]:
        begin = BEGAN + timedelta(days=day - 2)
        shown = [
            (at, at.astimezone(local))
            for at in (begin + timedelta(minutes=n) for n in range(1, 3 * 24 * 60))
        ]
        wanted = [at for at, wall in shown if wall.minute % step == offset and wall.hour < most]
        assert of_cron(text, begin, zone, most=len(wanted)) == wanted


@given(after=instants, zone=st.sampled_from(ZONES), text=expressions())
def test_from_wherever_it_is_asked_the_instants_are_the_same(after, zone, text):
    found = of_cron(text, after, zone, most=12)
    for index, one in enumerate(found):
        assert of_cron(text, one, zone, most=11 - index) == found[index + 1 :]
        assert of_cron(text, one - timedelta(seconds=1), zone, most=1) == [one]


@given(after=instants, step=st.integers(1, 10**7), start=instants)
def test_intervals_are_counted_from_the_start(after, step, start):
    trigger = Trigger(every_s=step)
    found = next(trigger.instants(after, zone=zone_of("UTC"), start=start))
    assert found > after or found == start
    assert (found - start) % timedelta(seconds=step) == timedelta(0)
    assert found == start or found - timedelta(seconds=step) <= max(after, start)


RULES = (
    "FREQ=DAILY",
    "FREQ=WEEKLY;BYDAY=MO,WE,FR;INTERVAL=2",
    "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=2;BYMINUTE=30",
    "FREQ=MONTHLY;BYMONTHDAY=-1",
    "FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;BYHOUR=1,2;BYMINUTE=0,30",
    "FREQ=DAILY;COUNT=40",
    "FREQ=DAILY;INTERVAL=17;BYDAY=MO,TU,WE",
    "FREQ=WEEKLY;INTERVAL=3;WKST=SU;BYDAY=SU,MO",
    "FREQ=MONTHLY",
    "FREQ=MONTHLY;INTERVAL=5",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "FREQ=MONTHLY;BYMONTH=2,3",
    "FREQ=YEARLY",
    "FREQ=YEARLY;INTERVAL=3;BYMONTH=2",
    "FREQ=YEARLY;BYWEEKNO=1,53",
    "FREQ=YEARLY;BYYEARDAY=-1,366",
)


@settings(max_examples=200)
@given(text=st.sampled_from(RULES), start=instants, days=st.integers(0, 9_000))
def test_rules_follow_the_calendar_of_dateutil(text, start, days):
    after = start + timedelta(days=days)
    found = Trigger(rrule=text).instants(after, zone=zone_of("UTC"), start=start)
    naive = start.replace(tzinfo=None, microsecond=0)
    known = takewhile(lambda one: one.year < 2_200, rrulestr(text, dtstart=naive))
    wanted = (one.replace(tzinfo=UTC) for one in known)
    assert [*islice(found, 10)] == [*islice((one for one in wanted if one > after), 10)]


def test_a_rule_keeps_its_time_of_day_across_a_change_of_the_clock():
    start = datetime(2026, 3, 27, 1, 30, tzinfo=UTC)  # half past two in Berlin
    found = Trigger(rrule="FREQ=DAILY").instants(
        start, zone=zone_of("Europe/Berlin"), start=start
    )
    assert [f"{one:%d %H:%M}" for one in islice(found, 3)] == [
        "28 01:30",
        "29 01:00",
        "30 00:30",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("15 30 2 * * *", ["2026-01-01T02:30:15", "2026-01-02T02:30:15"]),
        ("0 0 12 ? JAN MON 2027", ["2027-01-04T12:00:00", "2027-01-11T12:00:00"]),
        ("0 0 0 29 2 * 2026-2040", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("0 0 0 1 1 * 2020/5", ["2030-01-01T00:00:00", "2035-01-01T00:00:00"]),
        ("0 0 0 1 1 * 2020-2025", []),
        ("0 8 LW * *", ["2026-01-30T08:00:00", "2026-02-27T08:00:00"]),
        ("0 8 * * 5#2", ["2026-01-09T08:00:00", "2026-02-13T08:00:00"]),
    ],
)
def test_seconds_come_first_and_years_last(text, wanted):
    after = datetime(2025, 12, 31, 23, tzinfo=UTC) + timedelta(minutes=59)
    found = [
        one for one in of_cron(text, after, most=3) if one > datetime(2026, 1, 1, tzinfo=UTC)
    ]
    assert [one.strftime("%Y-%m-%dT%H:%M:%S") for one in found[:2]] == wanted


def test_the_day_that_a_clock_skipped_is_made_up_for_at_its_end():
    found = of_cron(
        "0 12 * * *", datetime(2011, 12, 29, 12, tzinfo=UTC), "Pacific/Apia", most=3
    )
    apia = ZoneInfo("Pacific/Apia")
    shown = [one.astimezone(apia) for one in found]
    assert [one.day for one in shown] == [29, 31, 31]
    assert [one.hour for one in shown] == [12, 0, 12]


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@Quarterly", "0 0 1 JAN,APR,JUL,OCT *"),
        ("@yearly", "0 0 1 1 *"),
    ],
)
def test_names_of_frequencies_are_expressions(name, expression):
    zone, after = ZoneInfo("Europe/Berlin"), datetime(2026, 2, 3, tzinfo=UTC)
    named, plain = (
        [*islice(Trigger(cron=one).instants(after, zone=zone, start=None), 5)]
        for one in (name, expression)
    )
    assert named == plain
    assert len(named) == 5
