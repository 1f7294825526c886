"""What the most expensive schedules that can be defined cost whoever plans them: little.

One process plans the schedules of all customers, beside the ingest and the relay.
"""

import time
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from pydantic import ValidationError

from pop_stream.model.schedule import Schedule
from pop_stream.model.trigger import zone_of
from pop_stream.policy.schedules.plan import begin, plan, status

pytestmark = pytest.mark.timeout(120)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MOST_S = 2.0
"""Of processor time, on a slow machine; most take milliseconds, and took minutes or hours."""

SUBMISSION = {"customer_id": "acme", "operations": [{"name": "fetch", "type": "http"}]}
LONG_AGO = "1970-01-01T00:00:00Z"
A_YEAR_AGO = "2025-01-01T12:00:00Z"
YEAR_S = 366 * 86_400
HOURS = ",".join(map(str, range(24)))
EVERY_DAY = [(NOW + timedelta(days=n)).date().isoformat() for n in range(1_000)]
ZONES = ("UTC", "America/Havana", "Pacific/Apia")
"""In Havana the clock shows the end of a day twice; Apia left one out."""

HOSTILE = [
    {"start": LONG_AGO, "trigger": {"rrule": f"FREQ=DAILY;BYHOUR={HOURS}"}},
    {"start": LONG_AGO, "trigger": {"rrule": f"FREQ=WEEKLY;BYDAY=MO,SU;BYHOUR={HOURS}"}},
    {
        "start": LONG_AGO,
        "trigger": {"rrule": f"FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYHOUR={HOURS}"},
    },
    {"start": LONG_AGO, "trigger": {"rrule": f"FREQ=YEARLY;BYDAY=MO;BYHOUR={HOURS}"}},
    {"start": A_YEAR_AGO, "trigger": {"rrule": f"FREQ=DAILY;COUNT=10000;BYHOUR={HOURS}"}},
    {"start": LONG_AGO, "trigger": {"every_s": 1}, "catch_up_s": YEAR_S},
    {"start": A_YEAR_AGO, "trigger": {"every_s": 1}, "catch_up_s": YEAR_S},
    {"start": A_YEAR_AGO, "trigger": {"cron": "* * * * * *"}, "catch_up_s": YEAR_S},
    {"start": A_YEAR_AGO, "trigger": {"cron": "* * * * *"}, "catch_up_s": YEAR_S},
    {"start": LONG_AGO, "trigger": {"cron": "* * * * * * *"}, "catch_up_s": YEAR_S},
    {"trigger": {"every_s": 1}, "exceptions": EVERY_DAY},
    {"trigger": {"cron": "* * * * * *"}, "exceptions": EVERY_DAY},
    {"trigger": {"cron": "*/7 * * * *"}, "exceptions": EVERY_DAY, "jitter_s": 86_400},
    {
        "start": A_YEAR_AGO,
        "trigger": {"rrule": f"FREQ=DAILY;BYHOUR={HOURS}"},
        "exceptions": EVERY_DAY,
    },
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("says", HOSTILE, ids=lambda one: str(one)[:70])
def test_no_schedule_takes_long_to_define_to_plan_or_to_be_looked_at(says, zone):
    began_s = time.process_time()
    schedule = Schedule.model_validate(
        {"id": "s", "timezone": zone, "submission": SUBMISSION, **says}
    )
    state = begin(schedule, NOW)
    for now in (NOW, NOW + timedelta(hours=1)):
        state = plan(schedule, state, now).state
        assert status(schedule, state, now) in {"scheduled", "ended"}
        assert len([*islice(schedule.instants(now), 100)]) <= 100
    assert time.process_time() - began_s < MOST_S


NEVER = [
    "FREQ=DAILY;INTERVAL=0",
    "FREQ=MONTHLY;INTERVAL=0",
    "FREQ=DAILY;INTERVAL=-1",
    "FREQ=DAILY;COUNT=-5",
    "FREQ=DAILY;COUNT=10001",
    f"FREQ=DAILY;INTERVAL={'9' * 400}",
    "FREQ=DAILY;BYSETPOS=2",
    "FREQ=WEEKLY;BYSETPOS=9",
    "FREQ=DAILY;INTERVAL=7;BYDAY=MO",
    "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=31",
    "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=366",
    "FREQ=YEARLY;BYMONTH=1;BYWEEKNO=30",
]


@pytest.mark.parametrize("rule", NEVER, ids=lambda one: one[:40])
def test_a_rule_that_never_fires_or_without_end_is_refused_soon(rule):
    began_s = time.process_time()
    with pytest.raises(
        ValidationError, match=r"must be a whole number|costs too much|never fires"
    ):
        Schedule.model_validate(
            {
                "id": "s",
                "start": "2001-01-02T00:00:00Z",
                "trigger": {"rrule": rule},
                "submission": SUBMISSION,
            }
        )
    assert time.process_time() - began_s < MOST_S


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("trigger", [{"every_s": 1_800}, {"cron": "*/30 * * * *"}], ids=str)
def test_days_that_are_left_out_lack_each_of_their_instants_and_no_other(zone, trigger):
    """Around days on which clocks were changed, too."""
    for day in (datetime(2011, 12, 28), datetime(2025, 3, 7), datetime(2025, 10, 31)):  # noqa: DTZ001
        days = [day.date() + timedelta(days=n) for n in (1, 2, 4)]
        whole = Schedule.model_validate(
            {"id": "s", "timezone": zone, "trigger": trigger, "submission": SUBMISSION}
        )
        exceptions = tuple(one.isoformat() for one in days)
        left = whole.model_copy(update={"exceptions": exceptions})
        after = day.replace(tzinfo=UTC)
        known = islice(whole.instants(after), 500)
        wanted = [one for one in known if one.astimezone(zone_of(zone)).date() not in days]
        assert [*islice(left.instants(after), len(wanted))] == wanted
