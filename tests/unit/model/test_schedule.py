"""A schedule that cannot be is refused by field, value and remedy, with its next instants."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from pydantic import ValidationError

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.errors import DefinitionError
from pop_stream.model.schedule import Occurrence, Schedule, schedule_of
from pop_stream.model.validation import issues_of

KIND = "schedule"


def parse(content):
    """As definitions are parsed: strictly, with one issue for each fault."""
    try:
        return Schedule.model_validate_json(msgspec.json.encode(content), strict=True)
    except ValidationError as error:
        raise DefinitionError(KIND, issues_of(error, document=KIND)) from None


SUBMISSION = {"customer_id": "acme", "operations": [{"name": "a", "type": "noop"}]}
SOUND = {
    "owner": "acme",
    "timezone": "Europe/Berlin",
    "trigger": {"cron": "30 2 * * *"},
    "submission": SUBMISSION,
}


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"trigger": {"cron": "0 0 30 2 *"}}, "trigger.cron", "day-of-month cannot be used"),
        ({"trigger": {"cron": "61 * * * *"}}, "trigger.cron", "the field minute"),
        ({"trigger": {"cron": "* * *"}}, "trigger.cron", "has 3 fields"),
        ({"trigger": {"cron": "R * * * *"}}, "trigger.cron", "the field minute"),
        ({"trigger": {"cron": "0 0 0 1 1 * soon"}}, "trigger.cron", "the field year"),
        ({"trigger": {"cron": "* * * * *", "every_s": 5}}, "trigger", "exactly one"),
        ({"trigger": {}}, "trigger", "has nothing"),
        ({"trigger": {"every_s": 0}}, "trigger.every_s", "greater than or equal to 1"),
        ({"trigger": {"rrule": "FREQ=DAILY"}}, "trigger", "`start`; give it"),
        ({"trigger": {"rrule": "FREQ=HOURLY"}}, "trigger.rrule", "use cron or every_s"),
        ({"trigger": {"rrule": "FREQ=DAILY;UNTIL=20260101"}}, "trigger.rrule", "`end` instead"),
        ({"trigger": {"rrule": "FREQ=DAILY;BYMONTH=2"}}, "trigger.rrule", "MONTHLY or YEARLY"),
        ({"trigger": {"rrule": "every day"}}, "trigger.rrule", "is no recurrence rule"),
        ({"trigger": {"rrule": "FREQ=DAILY;BYHOUR=99"}}, "trigger.rrule", "no recurrence rule"),
        ({"trigger": {"at": ["2026-01-01"]}}, "trigger.at[0]", "must be an instant"),
        ({"timezone": "Europe/Berln"}, "timezone", "did you mean Europe/Berlin"),
        (
            {"start": "2026-03-29T00:00:00Z", "end": "2026-03-28T00:00:00Z"},
            "end",
            "later than start, 2026-03-29T00:00:00+00:00; without it the next are "
            "2026-03-29T01:00:00+00:00, 2026-03-30T00:30:00+00:00, 2026-03-31T00:30:00+00:00",
        ),
        (
            {"start": "2026-03-29T00:00:00Z", "end": "2026-03-29T00:30:00Z"},
            "end",
            "nothing is due before",
        ),
        (
            {"start": "2027-01-01T00:00:00Z", "trigger": {"cron": "0 0 0 1 1 * 2020-2025"}},
            "trigger",
            "never fires from start",
        ),
        ({"exceptions": ["yesterday"]}, "exceptions[0]", "neither a day"),
        ({"submission": {**SUBMISSION, "id": "x"}}, "submission", "has id"),
        ({"submission": {**SUBMISSION, "customer_id": "bob"}}, "submission", "owner, 'acme'"),
        ({"submission": {"customer_id": "acme"}}, "submission", "operations = nothing"),
        ({"submission": {"template_id": "t", "payload": "@<x>"}}, "submission", "payload"),
        ({"overlap": "sometimes"}, "overlap", "allow"),
        ({"id": "x" * 81 + "@acme"}, "schedule", "at most 80"),
        ({"id": "x@bob"}, "schedule", "own customer"),
    ],
)
def test_what_cannot_be_is_refused(fields, field, words):
    content = json.loads(json.dumps({**SOUND, "id": "nightly@acme", **fields}))
    with pytest.raises(DefinitionError) as refused:
        parse(content)
    [issue, *_] = refused.value.issues
    assert issue.field == field
    assert words in f"{issue.value} {issue.message}"


def test_a_template_is_run_with_the_occasion_in_its_payload():
    run = {
        "template_id": "report",
        "customer_id": "acme",
        "payload": {"day": "@<pop.occasion::/date>"},
    }
    made = parse({"id": "nightly@acme", **SOUND, "submission": run})
    assert made.id == "nightly@acme"


@pytest.mark.parametrize(
    ("agenda_id", "schedule_id"),
    [
        ("nightly.20260101T000000Z@acme", "nightly@acme"),
        ("a.b.20260101T000000Z~t5", "a.b"),
        ("nightly@acme", None),
        (".20260101T000000Z", None),
    ],
)
def test_the_id_of_an_agenda_says_of_which_schedule_it_is(agenda_id, schedule_id):
    assert schedule_of(agenda_id) == schedule_id


# ---- what an occurrence waits for ----


def waiting_for(*conditions, **fields):
    body = {"customer_id": "acme", "operations": [{"name": "a", "type": "noop"}], **fields}
    return Schedule.model_validate(
        {
            "id": "tick@acme",
            "owner": "acme",
            "timezone": "Europe/Berlin",
            "trigger": {"cron": "30 2 * * *"},
            "submission": {**body, "wait_for": [*conditions]},
        }
    )


NIGHT = datetime(2026, 1, 2, 1, 30, tzinfo=UTC)
NIGHT_BEFORE = NIGHT - timedelta(days=1)
BEFORE = {"link": "@<pop.occasion::/previous_agenda>"}


def test_an_occurrence_waits_for_the_one_before_and_for_its_day_s_data():
    named = {"signal": "sales.@<pop.occasion::/yesterday>"}
    other = {"agenda": "import.@<pop.occasion::/stamp>", "ended": "succeeded"}
    one = waiting_for(BEFORE, named, other, link_id="@<pop.occasion::/agenda>")
    agenda = parse_agenda(Occurrence(one, NIGHT, NIGHT_BEFORE, None).body())
    assert [(each.kind, each.key) for each in agenda.wait_for] == [
        ("link", "tick.20260101T013000Z"),
        ("signal", "sales.2026-01-01"),
        ("agenda", "import.20260102T013000Z"),
    ]
    assert agenda.link_id == "tick.20260102T013000Z"


def test_a_backfill_waits_for_its_own_occurrence_before():
    made = Occurrence(waiting_for(BEFORE), NIGHT, NIGHT_BEFORE, None, extra="b7")
    [condition] = parse_agenda(made.body()).wait_for
    assert condition.link == "tick.20260101T013000Z~b7"


def test_the_first_occurrence_has_none_before_it_to_wait_for():
    other = {"signal": "go"}
    first = Occurrence(waiting_for(BEFORE, other), NIGHT, None, None).body()
    assert first["wait_for"] == [other]
    alone = Occurrence(waiting_for(BEFORE, on_timeout="go_on"), NIGHT, None, None).body()
    assert not {"wait_for", "on_timeout"} & alone.keys()
    assert parse_agenda(alone).wait_for == ()


def test_a_condition_without_a_name_is_still_refused():
    with pytest.raises(ValidationError, match="exactly one of"):
        waiting_for({"ended": "succeeded"})
