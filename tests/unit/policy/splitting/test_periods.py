"""The days that periods mean, on a nominal day."""

from datetime import date, timedelta

import pytest

from pop_stream.model.errors import SubmissionError
from pop_stream.policy.splitting.periods import MAX_DAYS, PeriodRequest, PeriodResolvers

TUESDAY = date(2019, 4, 30)


def days(period, nominal=TUESDAY, *, resolvers=None, holidays=()):
    asked = PeriodRequest(nominal, holidays=frozenset(holidays))
    found = (resolvers or PeriodResolvers()).days(period, asked, field="payload.period")
    return [one.isoformat() for one in found]


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ("today", ["2019-04-30"]),
        ("yesterday", ["2019-04-29"]),
        ("1_days_back", ["2019-04-29"]),
        ("7_days_back", ["2019-04-23"]),
        ("last_3_days", ["2019-04-27", "2019-04-28", "2019-04-29"]),
        ("previous_2_days", ["2019-04-26", "2019-04-27"]),
        ("last_week", [f"2019-04-{one}" for one in range(21, 28)]),
        ("last_iso_week", [f"2019-04-{one}" for one in range(22, 29)]),
        ("last_month", [f"2019-03-{one:02}" for one in range(1, 32)]),
        ("last_3_working_days", ["2019-04-25", "2019-04-26", "2019-04-29"]),
        ("2_working_days_back", ["2019-04-26"]),
    ],
)
def test_built_in_periods(period, expected):
    assert days(period) == expected


@pytest.mark.parametrize("ahead", range(7))
def test_last_week_is_the_last_that_is_over_whatever_day_it_is(ahead):
    nominal = date(2019, 4, 28) + timedelta(days=ahead)  # from a Sunday on
    assert days("last_week", nominal) == [f"2019-04-{one}" for one in range(21, 28)]


def test_holidays_are_no_working_days():
    found = days("last_2_working_days", holidays=[date(2019, 4, 26)])
    assert found == ["2019-04-25", "2019-04-29"]


def test_periods_of_ones_own_stand_beside_those_built_in():
    quarter = PeriodResolvers({"last_N_quarters": lambda asked: [date(2019, asked.number, 1)]})
    assert days("last_2_quarters", resolvers=quarter) == ["2019-02-01"]
    assert days("today", resolvers=quarter) == ["2019-04-30"]


@pytest.mark.parametrize("name", ["today", "last_N_days", "a b", "N_to_N", ""])
def test_name_that_is_taken_or_no_word_is_refused(name):
    with pytest.raises(ValueError, match="period"):
        PeriodResolvers({name: lambda _: []})


@pytest.mark.parametrize(
    ("period", "says"),
    [
        ("todays", "name one of today, yesterday"),
        ("last_days", "is no period"),
        ("last_x_days", "is no period"),
        (7, "is no period"),
        ("last_0_days", "N is from 1"),
        (f"last_{MAX_DAYS + 1}_days", "N is from 1"),
        ("never", "comes to no day"),
        ("broken", "cannot be resolved on 2019-04-30: no calendar"),
        ("wrong", "what is no day"),
        ("endless", "more than"),
    ],
)
def test_period_that_cannot_be_resolved_says_why(period, says):
    def broken(_):
        msg = "no calendar"
        raise ValueError(msg)

    def endless(asked):
        while True:
            yield asked.nominal

    own = PeriodResolvers(
        {"never": lambda _: [], "broken": broken, "wrong": lambda _: ["x"], "endless": endless}
    )
    with pytest.raises(SubmissionError) as refused:
        days(period, resolvers=own)
    [issue] = refused.value.issues
    assert issue.field == "payload.period"
    assert says in issue.message


def test_period_before_the_calendar_begins_is_refused():
    with pytest.raises(SubmissionError) as refused:
        days("last_9_days", date(1, 1, 2))
    assert "cannot be resolved" in refused.value.issues[0].message
