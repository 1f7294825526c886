"""Rules over HTTP: their topics, what one would do, what became of records."""

from datetime import UTC, datetime, timedelta

import pytest
from api_fakes import AGENDA, open_api

from pop_stream.api.submissions.rules import _progress
from pop_stream.model.events.rules import RuleState
from pop_stream.model.rule import Rule

LARGE = {"type": "object", "required": ["size"], "properties": {"size": {"minimum": 10}}}
SUBMISSION = {**AGENDA, "title": "@<pop.event::/value/name>"}
RULE = {"id": "big", "topic": "files", "where": LARGE, "submission": SUBMISSION}
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("prefix", ["pop.", "other.", ""])
async def test_no_rule_reads_a_topic_of_the_service_whatever_its_prefix(prefix):
    async with open_api(topic_prefix=prefix) as api:
        await api.call("POST", "/v1/rules", RULE)
        for name in ("agenda-events", "insight.files", "share.files", "rule-states"):
            topic = f"{prefix}{name}"
            status, answer, _ = await api.call(
                "POST", "/v1/rules", RULE | {"id": "own", "topic": topic}
            )
            assert (status, answer["issues"][0]["field"]) == (422, "topic")
            assert "a topic of the service itself" in answer["issues"][0]["message"]
            assert (await api.call("PATCH", "/v1/rules/big", {"topic": topic}))[0] == 422
        assert (await api.call("GET", "/v1/rules/big"))[1]["topic"] == "files"


async def test_a_test_shows_what_would_be_submitted_and_submits_nothing():
    async with open_api() as api:
        await api.call("POST", "/v1/rules", RULE)
        sample = {"value": {"size": 12, "name": "a.mov"}, "partition": 3, "offset": 8}
        status, answer, _ = await api.call("POST", "/v1/rules/big/test", sample)
        assert (status, answer["matches"], answer["issues"]) == (200, True, [])
        assert (answer["hops"], answer["insight_id"]) == (1, "files")
        assert answer["agenda"]["title"] == "a.mov"
        assert answer["agenda"]["series"]["position"] == 8
        assert answer["agenda_id"] == answer["agenda"]["id"]
        assert answer["agenda_id"].endswith("-3-8")
        assert not api.published


async def test_a_test_says_why_a_record_does_not_fit_or_would_be_refused():
    async with open_api() as api:
        await api.call("POST", "/v1/rules", RULE)
        _, answer, _ = await api.call("POST", "/v1/rules/big/test", {"value": {"size": 9}})
        assert (answer["matches"], answer["issues"][0]["field"]) == (False, "value.size")
        _, answer, _ = await api.call("POST", "/v1/rules/big/test", {"value": {"size": 10}})
        assert (answer["matches"], answer["agenda"]) == (True, None)
        assert answer["issues"]
        trace = {
            "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
            "tracestate": "pop=hops:5",
        }
        deep = {"value": {"size": 10, "name": "a"}, "headers": trace}
        _, answer, _ = await api.call("POST", "/v1/rules/big/test", deep)
        assert (answer["hops"], answer["issues"][0]["field"]) == (6, "hops")


def test_progress_is_the_sum_of_what_was_read_and_says_why_nothing_is():
    rule = Rule.model_validate(RULE)
    later = AT + timedelta(seconds=1)
    rows = [
        RuleState(
            rule_id="big",
            source="files",
            partition=0,
            fired=2,
            failures=1,
            last_fired_at=AT,
            last_failure_at=AT,
            last_failure="old",
        ),
        RuleState(
            rule_id="big",
            source="files",
            partition=1,
            fired=3,
            filtered=4,
            failures=1,
            last_fired_at=later,
            last_failure_at=later,
            last_failure="new",
        ),
        RuleState(rule_id="big", source="another", partition=1, fired=100, fault="gone"),
    ]
    shown = _progress(rule, rows)
    assert (shown.status, shown.fired, shown.filtered, shown.failures) == ("reading", 5, 4, 2)
    assert (shown.last_fired_at, shown.last_failure) == (later, "new")
    missing = RuleState(rule_id="big", source="files", fault="there is no such topic")
    assert _progress(rule, [*rows, missing]).status == "waiting"
    assert _progress(rule, [missing]).fault == "there is no such topic"
    paused = rule.model_copy(update={"paused": True})
    assert _progress(paused, rows).status == "paused"
